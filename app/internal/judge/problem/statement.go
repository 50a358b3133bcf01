package problem

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Statement is one language's problem statement.
type Statement struct {
	Language string // code, such as "en"
	Format   string // "md", "tex" or "pdf"
	Path     string // absolute
	dir      string
}

// Read reads the statement. It refuses to follow a link out of the package.
func (s Statement) Read() ([]byte, error) { return readAll(openInside(s.dir, s.Path)) }

// Statement gives the statement in a language; if there is none, in English; if
// there is none either, the first one. ok is false when the package has none.
func (p *Package) Statement(language string) (s Statement, ok bool) {
	for _, want := range []string{language, "en"} {
		for _, s := range p.Statements {
			if s.Language == want {
				return s, true
			}
		}
	}
	if len(p.Statements) == 0 {
		return Statement{}, false
	}
	return p.Statements[0], true
}

// readStatements looks into the folders of both versions. Where a language has
// several files, the order is the one in which a page can show them best.
func (l *loader) readStatements() {
	formats := []string{"md", "tex", "pdf"}
	for _, dir := range []string{"statement", "problem_statement"} {
		entries, _ := l.list(dir)
		for _, e := range entries {
			file := dir + "/" + e.Name()
			format := strings.TrimPrefix(path.Ext(e.Name()), ".")
			base := stem(e.Name())
			language, named := strings.CutPrefix(base, "problem.")
			if base == "problem" {
				language, named = "en", true
			}
			if !named || language == "" || e.IsDir() || l.bad[file] || !slices.Contains(formats, format) {
				continue
			}
			l.pkg.Statements = append(l.pkg.Statements, Statement{
				Language: language, Format: format, dir: l.pkg.Dir,
				Path: filepath.Join(l.pkg.Dir, filepath.FromSlash(file)),
			})
		}
	}
	slices.SortStableFunc(l.pkg.Statements, func(a, b Statement) int {
		if c := strings.Compare(a.Language, b.Language); c != 0 {
			return c
		}
		return slices.Index(formats, a.Format) - slices.Index(formats, b.Format)
	})
	if len(l.pkg.Statements) == 0 {
		l.warn("statement", "holds no problem.LANGUAGE.md, .tex or .pdf")
	}
}
