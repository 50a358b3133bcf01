// Package problem reads problem packages in the Kattis/ICPC problem package
// format, versions legacy and 2023-07 (and 2025-09 where it asks for the same).
//
// Only pass-fail problems judged by the default output validator are read.
// Whatever would need more to be judged rightly (interactive, multi-pass and
// scoring problems, custom validators, files put beside a submission,
// arguments that differ between test groups) is refused as not yet supported,
// never judged in part. Keys that have no bearing on a verdict are tolerated,
// known or not.
//
// Three of the folders under submissions/ are an extension of ours, since the
// format has no verdict for them: compile_error, memory_limit_exceeded and
// output_limit_exceeded. Other tools pass over folders they do not know.
package problem

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lastword-go/lastword/app/internal/judge/checker"
)

// Package is one problem as read from its folder. It is not changed after Open.
// The files stay where they are and are read anew by the methods of Test and
// Submission; Hash tells whether they are still the same.
type Package struct {
	// ID is the folder's name: one to 255 lower-case letters and digits.
	ID string
	// Format is problem_format_version; "legacy" when it is not given.
	Format string
	UUID   string
	// Name is the problem's name, in English if it has one, else in the first
	// language by code; the ID when the package gives none.
	Name string
	// Names holds the name by language code.
	Names   map[string]string
	Authors []string
	Source  string
	// License is one of the format's words; "unknown" when it is not given.
	License     string
	RightsOwner string
	// Languages holds the codes of the languages allowed; empty means all.
	Languages []string
	Limits    Limits
	// ValidatorFlags are the default output validator's flags, one word an
	// element, known to be good for checker.Parse. They hold for every test.
	ValidatorFlags []string
	// Tests are in the order of judging: sample before secret, then by name,
	// groups in place. There is at least one.
	Tests       []Test
	Submissions []Submission
	Statements  []Statement
	// Dir is the package's absolute path.
	Dir string
	// Hash is the SHA-256, in hexadecimal, of all that can change a verdict:
	// the paths and contents of problem.yaml, .timelimit and data/.
	Hash string
	// Warnings are faults that leave the package fit for judging, one line each.
	Warnings []string
}

// Limits bound a submission. What a package does not state has the format's
// typical system default, given here.
type Limits struct {
	// Time is CPU time for one test: limits.time_limit or the file .timelimit;
	// 10 s if neither is there, since the format would then derive it by running
	// the example submissions. TimeStated tells which it was.
	Time       time.Duration
	TimeStated bool
	Memory     int64 // bytes; 2048 MiB
	Output     int64 // bytes of standard output, standard error and files; 8 MiB
	Code       int64 // bytes of source; 128 KiB

	CompileTime   time.Duration // 60 s
	CompileMemory int64         // bytes; 2048 MiB

	ValidationTime   time.Duration // 60 s
	ValidationMemory int64         // bytes; 2048 MiB
	ValidationOutput int64         // bytes; 8 MiB

	// The margins an author promises: the slowest accepted submission takes at
	// most Time/AcceptedMargin, the fastest too slow one at least
	// Time*TooSlowMargin. Both are 0 when the package does not state them.
	AcceptedMargin float64
	TooSlowMargin  float64
}

// Test is one test case. Its methods refuse to follow a link out of the package.
type Test struct {
	// Name is the path below data/ without the extension: "sample/1",
	// "secret/group/02".
	Name       string
	InputPath  string // absolute
	AnswerPath string // absolute
	Sample     bool
	dir        string
}

// Input reads the input. Its bytes are what the author wrote, unchanged.
func (t Test) Input() ([]byte, error) { return readAll(t.OpenInput()) }

// Answer reads the answer file, unchanged; the checker copes with its line
// endings.
func (t Test) Answer() ([]byte, error) { return readAll(t.OpenAnswer()) }

// OpenInput opens the input for a caller that streams it; the caller closes it.
func (t Test) OpenInput() (*os.File, error) { return openInside(t.dir, t.InputPath) }

// OpenAnswer opens the answer file; the caller closes it.
func (t Test) OpenAnswer() (*os.File, error) { return openInside(t.dir, t.AnswerPath) }

// Finding is one fault of a package. Open joins several; errors.As and the
// Unwrap() []error of the joined error give them one by one.
type Finding struct {
	Package string // the folder's name
	File    string // path below it, with slashes; empty for the folder itself
	Line    int    // from 1; 0 when no line can be told
	What    string // what is wrong
	Mend    string // what to do about it
}

// Error is one line of printable text: "sum/problem.yaml:3: what; mend".
func (f *Finding) Error() string {
	where := f.Package
	if f.File != "" {
		where += "/" + f.File
	}
	if f.Line > 0 {
		where = fmt.Sprintf("%s:%d", where, f.Line)
	}
	return oneLine(where + ": " + f.What + "; " + f.Mend)
}

// oneLine makes text from a package (file names, YAML) safe for a log line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Open reads the package in dir. If anything is wrong it returns no package and
// an error that joins every finding, each a *Finding.
func Open(dir string) (*Package, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("problem package %s: %w", dir, err)
	}
	l := &loader{
		pkg: &Package{ID: filepath.Base(abs), Dir: abs},
		bad: map[string]bool{},
	}
	if !idPattern(l.pkg.ID) {
		l.fail("", 0, "the folder's name is not a problem's name", "rename it to 1-255 lower-case letters a-z and digits")
	}
	l.root, err = os.OpenRoot(abs)
	if err != nil {
		l.fail("", 0, "cannot open the folder: "+reason(err), "give the path of a folder that can be read")
		return nil, errors.Join(l.findings...)
	}
	defer l.root.Close()
	l.readTree()
	l.readSettings()
	l.readTests()
	l.readStatements()
	l.readSubmissions()
	l.checkFlags()
	l.readContents()
	if len(l.findings) > 0 {
		return nil, errors.Join(l.findings...)
	}
	return l.pkg, nil
}

// OpenAll reads every package in a folder of packages, in the order of their
// IDs. Files and hidden entries of the folder are passed over. A bad package
// does not hide the good ones: they are returned together with an error that
// joins the findings of all bad ones, each naming its package.
func OpenAll(dir string) ([]*Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of problem packages: %w", err)
	}
	var packages []*Package
	var faults []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		// A link to a package is followed: whoever set up the folder placed it.
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			continue
		}
		p, err := Open(path)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		packages = append(packages, p)
	}
	return packages, errors.Join(faults...)
}

// loader gathers a package and its findings.
type loader struct {
	root     *os.Root
	pkg      *Package
	files    []string        // every regular file of the package, by path
	bad      map[string]bool // paths already reported
	flags    []string        // validator flags of problem.yaml
	flagsAt  int             // and their line
	stated   bool            // limits.time_limit was given
	findings []error
}

func (l *loader) fail(file string, line int, what, mend string) {
	l.findings = append(l.findings, &Finding{Package: l.pkg.ID, File: file, Line: line, What: what, Mend: mend})
}

func (l *loader) warn(file, what string) {
	l.pkg.Warnings = append(l.pkg.Warnings, oneLine(l.pkg.ID+"/"+file+": "+what))
}

func (l *loader) checkFlags() {
	if _, err := checker.Parse(l.pkg.ValidatorFlags); err != nil {
		l.fail("problem.yaml", l.flagsAt, err.Error(), "correct the validator's flags here or in data/")
	}
}

// legacy reports whether the package follows the format before 2023-07.
func (l *loader) legacy() bool { return strings.HasPrefix(l.pkg.Format, "legacy") }

// reason is an error's cause without the path, which a finding names itself.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// idPattern is the format's rule for the name of a package's folder.
func idPattern(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 255
}

// filePattern is the format's rule for names inside a package, in its widest
// version: [a-zA-Z0-9_][a-zA-Z0-9_.-]{0,254}.
func filePattern(s string) bool {
	for i := range len(s) {
		c := s[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
		if !word && (i == 0 || c != '.' && c != '-') {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 255
}

// openInside opens a file of a package. The path is absolute, but the opening
// starts at the package's folder, so a link put there after Open cannot lead out.
func openInside(dir, path string) (*os.File, error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return nil, err
	}
	return os.OpenInRoot(dir, rel)
}

func readAll(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
