package problem

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Verdict is a judge's word on a submission.
type Verdict string

// The verdicts an example submission can be written for.
const (
	Accepted            Verdict = "AC"
	WrongAnswer         Verdict = "WA"
	TimeLimitExceeded   Verdict = "TLE"
	RunTimeError        Verdict = "RTE"
	CompileError        Verdict = "CE"
	MemoryLimitExceeded Verdict = "MLE"
	OutputLimitExceeded Verdict = "OLE"
)

// Submission is an example submission.
type Submission struct {
	// Name is the path below submissions/: "accepted/sum.cpp".
	Name string
	// Path is the absolute path of the file, or of the folder when the program
	// has several files.
	Path string
	// Expected holds the verdicts its folder allows: one, but for the format's
	// folders rejected and brute_force, which leave it open.
	Expected []Verdict
	dir      string
}

// Expects reports whether the verdict is one that was foreseen.
func (s Submission) Expects(v Verdict) bool { return slices.Contains(s.Expected, v) }

// SourceFile is one file of a submission.
type SourceFile struct {
	Name    string // as a slash-separated path inside the submission
	Content []byte
}

// maxSource bounds one source file. The limit on contestants' code is
// Limits.Code; this only keeps a stray file from filling the memory.
const maxSource = 4 << 20

// Files reads the submission's source files, in the order of their names.
func (s Submission) Files() ([]SourceFile, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	start := "submissions/" + s.Name
	info, err := root.Stat(start)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		content, err := readSource(root, start)
		return []SourceFile{{Name: path.Base(start), Content: content}}, err
	}
	var files []SourceFile
	err = fs.WalkDir(root.FS(), start, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := readSource(root, name)
		files = append(files, SourceFile{Name: strings.TrimPrefix(name, start+"/"), Content: content})
		return err
	})
	return files, err
}

func readSource(root *os.Root, name string) ([]byte, error) {
	// Opening a pipe would block.
	info, err := root.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("source file %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("source file %s: not a file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSource+1))
	if err == nil && len(content) > maxSource {
		return nil, fmt.Errorf("source file %s is larger than %d bytes", name, maxSource)
	}
	return content, err
}

// expected gives a folder's verdicts; none for a folder that is not known.
func expected(folder string) []Verdict {
	switch folder {
	case "accepted":
		return []Verdict{Accepted}
	case "wrong_answer":
		return []Verdict{WrongAnswer}
	case "time_limit_exceeded":
		return []Verdict{TimeLimitExceeded}
	case "run_time_error":
		return []Verdict{RunTimeError}
	case "compile_error": // our extension, like the next two
		return []Verdict{CompileError}
	case "memory_limit_exceeded":
		return []Verdict{MemoryLimitExceeded}
	case "output_limit_exceeded":
		return []Verdict{OutputLimitExceeded}
	// The format counts memory and output over the limit as run-time errors.
	case "rejected":
		return []Verdict{WrongAnswer, TimeLimitExceeded, RunTimeError, MemoryLimitExceeded, OutputLimitExceeded}
	case "brute_force":
		return []Verdict{TimeLimitExceeded, RunTimeError, MemoryLimitExceeded, OutputLimitExceeded}
	}
	return nil
}

func (l *loader) readSubmissions() {
	folders, _ := l.list("submissions")
	accepted := false
	for _, folder := range folders {
		name := folder.Name()
		verdicts := expected(name)
		switch {
		case strings.HasPrefix(name, "."):
		case verdicts == nil && folder.IsDir():
			l.warn("submissions/"+name, "is a folder without a known verdict; it is passed over")
		case verdicts == nil:
			l.warn("submissions/"+name, "is not read; the folders alone tell the verdicts")
		default:
			n := len(l.pkg.Submissions)
			l.readFolder(name, verdicts)
			accepted = accepted || name == "accepted" && len(l.pkg.Submissions) > n
		}
	}
	if !accepted {
		l.warn("submissions/accepted", "holds no submission, so nothing shows that the problem can be solved")
	}
}

func (l *loader) readFolder(folder string, verdicts []Verdict) {
	entries, _ := l.list("submissions/" + folder)
	for _, e := range entries {
		name := folder + "/" + e.Name()
		file := "submissions/" + name
		switch {
		case l.bad[file], strings.HasPrefix(e.Name(), "."):
		case !filePattern(e.Name()):
			l.fail(file, 0, "has a name outside the format's pattern", "use letters, digits, _ . - and begin with a letter, a digit or _")
		default:
			l.pkg.Submissions = append(l.pkg.Submissions, Submission{
				Name: name, Path: filepath.Join(l.pkg.Dir, filepath.FromSlash(file)),
				Expected: verdicts, dir: l.pkg.Dir,
			})
		}
	}
}
