package doctor

import (
	"context"
	"strings"

	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/sandbox"
)

// Machine looks at what judging needs here. Its program must call sandbox.Main first of all.
func Machine(ctx context.Context) []Finding {
	return []Finding{sandboxMode(sandbox.Detect(ctx)), languages(judge.ProbeLanguages(ctx))}
}

func sandboxMode(r sandbox.Report) Finding {
	found := ok("mode %s", r.Mode)
	switch r.Mode {
	case sandbox.ModeNone:
		found = warn("no sandbox: this machine does not judge ("+strings.Join(r.Reasons, "; ")+")", "mend one of the reasons, or judge on another machine")
	case sandbox.ModeUserns:
		found = warn("mode userns, with weaker limits on memory ("+strings.Join(r.Reasons, "; ")+")", "enough for programs you know; for others mend the reason")
	}
	found.Check = "sandbox"
	return found
}

func languages(all []judge.LanguageStatus) Finding {
	var have, missing []string
	for _, l := range all {
		if l.Missing != "" {
			missing = append(missing, l.Missing)
		} else {
			have = append(have, l.Name+" ("+l.Installed+")")
		}
	}
	found := ok("%s", strings.Join(have, ", "))
	if len(missing) > 0 {
		found = warn("submissions in some languages cannot be judged here", strings.Join(missing, "; "))
	}
	found.Check = "languages"
	return found
}
