package problem

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// files is a package as path → content. A content that begins with "-> " is a
// link, a path that ends in "/" a folder.
type files map[string]string

// minimal is the smallest package without warnings.
func minimal() files {
	return files{
		"problem.yaml":                    "name: Sum\nlimits: {time_limit: 1}\n",
		"data/secret/1.in":                "1 2\n",
		"data/secret/1.ans":               "3\n",
		"problem_statement/problem.en.md": "Add.\n",
		"submissions/accepted/a.py":       "print(3)\n",
	}
}

// with changes a package; an empty content takes a file out.
func (f files) with(more files) files {
	for name, content := range more {
		if content == "" && !strings.HasSuffix(name, "/") {
			delete(f, name)
			continue
		}
		f[name] = content
	}
	return f
}

func (f files) write(t testing.TB, dir string) string {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	for name, content := range f {
		at := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(os.MkdirAll(at, 0o755))
			continue
		}
		must(os.MkdirAll(filepath.Dir(at), 0o755))
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			must(os.Symlink(target, at))
			continue
		}
		must(os.WriteFile(at, []byte(content), 0o644))
	}
	return dir
}

func (f files) open(t testing.TB) (*Package, error) {
	t.Helper()
	return Open(f.write(t, filepath.Join(t.TempDir(), "sum")))
}

func (f files) mustOpen(t testing.TB) *Package {
	t.Helper()
	p, err := f.open(t)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDefaults(t *testing.T) {
	p := minimal().mustOpen(t)
	want := Limits{
		Time: time.Second, TimeStated: true, Memory: 2048 << 20, Output: 8 << 20, Code: 128 << 10,
		CompileTime: time.Minute, CompileMemory: 2048 << 20,
		ValidationTime: time.Minute, ValidationMemory: 2048 << 20, ValidationOutput: 8 << 20,
	}
	if p.Limits != want {
		t.Errorf("limits %+v", p.Limits)
	}
	if p.ID != "sum" || p.Name != "Sum" || p.License != "unknown" || p.Format != "legacy" || len(p.Warnings) != 0 {
		t.Errorf("%+v", p)
	}
	if len(p.Hash) != 64 || len(p.ValidatorFlags) != 0 || len(p.Languages) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestSettingsLegacy(t *testing.T) {
	p := minimal().with(files{
		"problem.yaml": `name: Größe
author: Ann, Bob and Cy
license: cc0
source: A contest
rights_owner: Ann
unknown_key: [1, {a: b}]
validation: default
validator_flags: case_sensitive  float_tolerance 1e-6
limits:
  time_multiplier: 4
  time_safety_margin: 1.5
  memory: 64
  output: 1
  code: 16
  compilation_time: 20
  compilation_memory: 512
  validation_time: 30
  validation_memory: 256
  validation_output: 2
  other: true
`,
		".timelimit": mark + " 2.5\r\n",
	}).mustOpen(t)
	want := Limits{
		Time: 2500 * time.Millisecond, TimeStated: true, Memory: 64 << 20, Output: 1 << 20, Code: 16 << 10,
		CompileTime: 20 * time.Second, CompileMemory: 512 << 20,
		ValidationTime: 30 * time.Second, ValidationMemory: 256 << 20, ValidationOutput: 2 << 20,
		AcceptedMargin: 4, TooSlowMargin: 1.5,
	}
	if p.Limits != want {
		t.Errorf("limits %+v", p.Limits)
	}
	if !slices.Equal(p.ValidatorFlags, []string{"case_sensitive", "float_tolerance", "1e-6"}) {
		t.Errorf("flags %q", p.ValidatorFlags)
	}
	if !slices.Equal(p.Authors, []string{"Ann", "Bob", "Cy"}) || p.Source != "A contest" || p.RightsOwner != "Ann" {
		t.Errorf("%+v", p)
	}
}

func TestSettings2023(t *testing.T) {
	p := minimal().with(files{
		"problem.yaml": mark + "problem_format_version: 2023-07\r\nname: {sv: Summa, en: Sum}\r\n" +
			"uuid: 12\r\ntype: [pass-fail]\r\ncredits: {authors: [Ann, Bob]}\r\nlanguages: [cpp, python3]\r\n" +
			"limits: {time_limit: 0.5, time_multipliers: {ac_to_time_limit: 3, time_limit_to_tle: 2}}\r\n",
		"data/test_group.yaml":        "output_validator_args: [float_tolerance, 1e-6]\n",
		"data/secret/test_group.yaml": "full_feedback: true\n",
		"data/secret/1.yaml":          "hint: think\noutput_validator_args: [float_tolerance, '1e-6']\n",
		"statement/problem.sv.tex":    "Addera.\n",
	}).mustOpen(t)
	if p.Name != "Sum" || p.Names["sv"] != "Summa" || p.UUID != "12" || !slices.Equal(p.Authors, []string{"Ann", "Bob"}) {
		t.Errorf("%+v", p)
	}
	if p.Limits.Time != 500*time.Millisecond || p.Limits.AcceptedMargin != 3 || p.Limits.TooSlowMargin != 2 {
		t.Errorf("%+v", p.Limits)
	}
	if !slices.Equal(p.ValidatorFlags, []string{"float_tolerance", "1e-6"}) || !slices.Equal(p.Languages, []string{"cpp", "python3"}) {
		t.Errorf("%q %q", p.ValidatorFlags, p.Languages)
	}
	for language, want := range map[string]string{"sv": "statement/problem.sv.tex", "de": "problem_statement/problem.en.md"} {
		s, ok := p.Statement(language)
		if content, err := s.Read(); !ok || err != nil || len(content) == 0 || s.Path != filepath.Join(p.Dir, want) {
			t.Errorf("%s: %+v %v", language, s, err)
		}
	}
}

func TestOrderOfTests(t *testing.T) {
	f := minimal().with(files{"data/secret/1.in": "", "data/secret/1.ans": ""})
	for _, name := range []string{"secret/b", "secret/a/2", "secret/a/10", "secret/c/d/1", "secret/aa", "sample/2", "sample/1", "other/x"} {
		f = f.with(files{"data/" + name + ".in": name, "data/" + name + ".ans": name + "!"})
	}
	p := f.with(files{
		"data/sample/1.in.statement": "x", "data/secret/notes.txt": "x", "data/secret/.DS_Store": "x",
		"data/secret/b.png": "x", "data/secret/readme.download/x": "x", "data/secret/empty/": "",
	}).mustOpen(t)
	var names []string
	for _, test := range p.Tests {
		names = append(names, test.Name)
		in, err1 := test.Input()
		ans, err2 := test.Answer()
		if string(in) != test.Name || string(ans) != test.Name+"!" || err1 != nil || err2 != nil {
			t.Errorf("%s: %q %q %v %v", test.Name, in, ans, err1, err2)
		}
		if test.Sample != strings.HasPrefix(test.Name, "sample") || !filepath.IsAbs(test.InputPath) || !filepath.IsAbs(test.AnswerPath) {
			t.Errorf("%+v", test)
		}
	}
	want := []string{"sample/1", "sample/2", "secret/a/10", "secret/a/2", "secret/aa", "secret/b", "secret/c/d/1"}
	if !slices.Equal(names, want) {
		t.Errorf("order %q", names)
	}
}

func TestSubmissions(t *testing.T) {
	p := minimal().with(files{
		"submissions/wrong_answer/w.cpp":            "w",
		"submissions/time_limit_exceeded/t.c":       "t",
		"submissions/run_time_error/two/b.py":       "b",
		"submissions/run_time_error/two/a.py":       "a",
		"submissions/compile_error/c.py":            "c",
		"submissions/memory_limit_exceeded/m.py":    "m",
		"submissions/output_limit_exceeded/o.py":    "o",
		"submissions/rejected/r.py":                 "r",
		"submissions/rejected/.hidden":              "x",
		"submissions/someday/x.py":                  "x",
		"submissions/submissions.yaml":              "x",
		"submissions/accepted/a-link.py":            "-> a.py",
		"submissions/brute_force/.keep":             "x",
		"submissions/wrong_answer/.ignored/file.py": "x",
	}).mustOpen(t)
	want := map[string]Verdict{
		"accepted/a.py": Accepted, "accepted/a-link.py": Accepted, "wrong_answer/w.cpp": WrongAnswer,
		"time_limit_exceeded/t.c": TimeLimitExceeded, "run_time_error/two": RunTimeError,
		"compile_error/c.py": CompileError, "memory_limit_exceeded/m.py": MemoryLimitExceeded,
		"output_limit_exceeded/o.py": OutputLimitExceeded, "rejected/r.py": WrongAnswer,
	}
	if len(p.Submissions) != len(want) {
		t.Errorf("%d submissions, want %d", len(p.Submissions), len(want))
	}
	for _, s := range p.Submissions {
		if !s.Expects(want[s.Name]) || s.Expects(Accepted) != (want[s.Name] == Accepted) {
			t.Errorf("%s expects %v", s.Name, s.Expected)
		}
		sources, err := s.Files()
		if err != nil || len(sources) == 0 {
			t.Errorf("%s: %v %v", s.Name, sources, err)
		}
		if s.Name == "run_time_error/two" && (len(sources) != 2 || sources[0].Name != "a.py" || string(sources[1].Content) != "b") {
			t.Errorf("%s: %v", s.Name, sources)
		}
	}
	if len(p.Warnings) != 2 {
		t.Errorf("warnings %q", p.Warnings)
	}
}

// What the format forbids in a text file must neither change the input nor
// keep the package out.
func TestTextFiles(t *testing.T) {
	p := minimal().with(files{
		"data/secret/1.in":  mark + "1\r\n2",
		"data/secret/1.ans": mark + "3\r\n",
		"data/secret/2.in":  "-> 3.in",
		"data/secret/2.ans": "4",
		"data/secret/3.in":  "1\n",
		"data/secret/3.ans": "4\n",
		"data/secret/4.in":  strings.Repeat("\n", 100_000) + "\r\n",
		"data/secret/4.ans": "\n",
	}).mustOpen(t)
	if in, err := p.Tests[0].Input(); string(in) != mark+"1\r\n2" || err != nil {
		t.Errorf("%q %v", in, err)
	}
	if in, err := p.Tests[1].Input(); string(in) != "1\n" || err != nil {
		t.Errorf("%q %v", in, err)
	}
	all := strings.Join(p.Warnings, "\n")
	for _, want := range []string{
		"sum/data/secret/1.in: begins with a byte-order mark, has CRLF line ends, does not end with a newline",
		"sum/data/secret/1.ans: begins with a byte-order mark, has CRLF line ends (",
		"sum/data/secret/2.ans: does not end with a newline",
		"sum/data/secret/4.in: has CRLF line ends",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning %q in\n%s", want, all)
		}
	}
	if len(p.Warnings) != 4 {
		t.Errorf("warnings:\n%s", all)
	}
}

func TestHash(t *testing.T) {
	base := minimal().mustOpen(t).Hash
	for name, more := range map[string]files{
		"other folder":  nil,
		"statement":     {"problem_statement/problem.en.md": "x"},
		"submission":    {"submissions/accepted/b.py": "x"},
		"link to equal": {"data/secret/1.in": "-> ../../copy", "copy": "1 2\n"},
	} {
		if minimal().with(more).mustOpen(t).Hash != base {
			t.Errorf("%s changed the hash", name)
		}
	}
	seen := map[string]string{base: "base"}
	for name, more := range map[string]files{
		"settings":   {"problem.yaml": "name: Sum\nlimits: {time_limit: 1 }\n"},
		"input":      {"data/secret/1.in": "1 3\n"},
		"answer":     {"data/secret/1.ans": "4\n"},
		"time limit": {".timelimit": "1"},
		"new test":   {"data/secret/2.in": "1 2\n", "data/secret/2.ans": "3\n"},
		"moved":      {"data/secret/1.in": "", "data/secret/1.ans": "", "data/secret/2.in": "1 2\n", "data/secret/2.ans": "3\n"},
		"shifted":    {"data/secret/1.in": "1 2\n3\n", "data/secret/1.ans": "\n"},
	} {
		hash := minimal().with(more).mustOpen(t).Hash
		if seen[hash] != "" {
			t.Errorf("%s has the hash of %s", name, seen[hash])
		}
		seen[hash] = name
	}
}

// A link placed after Open must not lead out either.
func TestLinkPlacedLater(t *testing.T) {
	p := minimal().mustOpen(t)
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.Tests[0].InputPath, p.Submissions[0].Path, p.Statements[0].Path} {
		if err := errors.Join(os.Remove(path), os.Symlink(outside, path)); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := p.Tests[0].Input(); err == nil {
		t.Errorf("input read %q", b)
	}
	if b, err := p.Submissions[0].Files(); err == nil {
		t.Errorf("submission read %q", b)
	}
	if b, err := p.Statements[0].Read(); err == nil {
		t.Errorf("statement read %q", b)
	}
}

func TestOpenAll(t *testing.T) {
	dir := t.TempDir()
	minimal().write(t, filepath.Join(dir, "b"))
	minimal().write(t, filepath.Join(dir, "a"))
	minimal().with(files{"problem.yaml": ""}).write(t, filepath.Join(dir, "bad1"))
	minimal().with(files{"data/secret/1.ans": ""}).write(t, filepath.Join(dir, "bad2"))
	files{"README.md": "x", ".git/x": "x"}.write(t, dir)
	packages, err := OpenAll(dir)
	if len(packages) != 2 || packages[0].ID != "a" || packages[1].ID != "b" {
		t.Errorf("packages %v", packages)
	}
	want := "bad1/problem.yaml: is missing; write it, or give the path of a problem package\n" +
		"bad2/data/secret/1.in: has no answer file; write 1.ans beside it"
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
	if packages, err := OpenAll(t.TempDir()); len(packages) != 0 || err != nil {
		t.Errorf("empty folder: %v %v", packages, err)
	}
	if _, err := OpenAll(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}
