package problem

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fault is a change of the minimal package and what must be in the only finding.
type fault struct {
	change files
	want   string
}

func yamlIs(text string) files { return files{"problem.yaml": text} }

func faults() map[string]fault {
	all := settingsFaults()
	maps.Copy(all, dataFaults())
	return all
}

func settingsFaults() map[string]fault {
	return map[string]fault{
		"no settings":        {files{"problem.yaml": ""}, "sum/problem.yaml: is missing; write it"},
		"broken yaml":        {yamlIs("name: Sum\nlimits: [1\nx: 2\n"), "sum/problem.yaml:"},
		"yaml is a list":     {yamlIs("- a\n- b\n"), "sum/problem.yaml:1: is not a YAML map"},
		"key twice":          {yamlIs("name: a\nname: b\n"), `sum/problem.yaml:2: is not a YAML map: mapping key "name" already defined`},
		"settings a folder":  {files{"problem.yaml": "", "problem.yaml/": ""}, "sum/problem.yaml: is a folder; put a file"},
		"oversized yaml":     {yamlIs("name: " + strings.Repeat("a", maxSettings)), "is larger than 256 KiB"},
		"limits not a map":   {yamlIs("name: a\nlimits: 3\n"), "sum/problem.yaml:2: limits is not a map"},
		"name a list":        {yamlIs("name: [a]\nlimits: {time_limit: 1}\n"), "sum/problem.yaml:1: name is neither"},
		"name an empty map":  {yamlIs("name: {}\nlimits: {time_limit: 1}\n"), "name is neither"},
		"license a map":      {yamlIs("license: {a: b}\n"), "license is not a text"},
		"time zero":          {yamlIs("name: a\nlimits:\n  time_limit: 0\n"), "sum/problem.yaml:3: limits.time_limit is 0 s; write a number of seconds"},
		"time negative":      {yamlIs("limits: {time_limit: -1}"), "limits.time_limit is -1 s"},
		"time absurd":        {yamlIs("limits: {time_limit: 601}"), "limits.time_limit is 601 s"},
		"time tiny":          {yamlIs("limits: {time_limit: 1e-9}"), "limits.time_limit is 1e-09 s"},
		"time infinite":      {yamlIs("limits: {time_limit: .inf}"), "limits.time_limit is +Inf s"},
		"time nan":           {yamlIs("limits: {time_limit: .nan}"), `limits.time_limit is ".nan"`},
		"time text":          {yamlIs("limits: {time_limit: 1s}"), `limits.time_limit is "1s"`},
		"time a list":        {yamlIs("limits: {time_limit: [1]}"), "limits.time_limit is not a number"},
		"memory zero":        {yamlIs("limits: {time_limit: 1, memory: 0}"), "limits.memory is 0 MiB; write a number of MiB"},
		"memory negative":    {yamlIs("limits: {time_limit: 1, memory: -64}"), "limits.memory is -64 MiB"},
		"memory in bytes":    {yamlIs("limits: {time_limit: 1, memory: 67108864}"), "limits.memory is 6.7108864e+07 MiB"},
		"output zero":        {yamlIs("limits: {time_limit: 1, output: 0}"), "limits.output is 0 MiB"},
		"compile time":       {yamlIs("limits: {time_limit: 1, compilation_time: -3}"), "limits.compilation_time is -3 s"},
		"code":               {yamlIs("limits: {time_limit: 1, code: 0}"), "limits.code is 0 KiB"},
		"margin":             {yamlIs("limits: {time_limit: 1, time_multiplier: 0.5}"), "limits.time_multiplier is 0.5; write a number >= 1"},
		"time file empty":    {files{".timelimit": "\n"}, `sum/.timelimit: the time limit is ""`},
		"time file zero":     {files{".timelimit": "0\n"}, `sum/.timelimit: the time limit is "0"; write`},
		"time file nan":      {files{".timelimit": "NaN"}, "the time limit is"},
		"time file folder":   {files{".timelimit/": ""}, "sum/.timelimit: is a folder"},
		"time file disagree": {files{".timelimit": "2\n"}, "says 2s, but problem.yaml says 1s; keep one"},
		"time file long":     {files{".timelimit": strings.Repeat("1", 2000)}, "larger than 1 KiB"},
		"flag unknown":       {yamlIs("limits: {time_limit: 1}\nvalidator_flags: fuzzy\n"), `sum/problem.yaml:2: unknown validator flag "fuzzy"`},
		"flag value":         {yamlIs("limits: {time_limit: 1}\nvalidator_flags: float_tolerance x\n"), `has the value "x"`},
		"version":            {yamlIs("problem_format_version: 2031-01\n"), `"2031-01" is not yet supported`},
		"interactive":        {yamlIs("type: interactive\n"), `sum/problem.yaml:1: type "interactive" is not yet supported`},
		"scoring":            {yamlIs("type: scoring\n"), `type "scoring" is not yet supported`},
		"multi-pass":         {yamlIs("type: [pass-fail, multi-pass]\n"), `type "multi-pass" is not yet supported`},
		"submit-answer":      {yamlIs("type: submit-answer\n"), `type "submit-answer" is not yet supported`},
		"custom validator":   {yamlIs("validation: custom interactive\n"), `validation "custom interactive" is not yet supported`},
		"constants":          {yamlIs("constants: {n: 3}\n"), "constants is not yet supported"},
		"include":            {files{"include/cpp/x.h": "x"}, "sum/include: is not yet supported"},
		"output validator": {files{"problem.yaml": "problem_format_version: 2023-07\nname: a\nlimits: {time_limit: 1}\n",
			"output_validator/v.py": "x"}, "sum/output_validator: is not yet supported"},
	}
}

func dataFaults() map[string]fault {
	return map[string]fault{
		"no data":            {files{"data/secret/1.in": "", "data/secret/1.ans": "", "data/secret/": ""}, "sum/data: has no test cases; put NAME.in"},
		"no data folder":     {files{"data/secret/1.in": "", "data/secret/1.ans": ""}, "sum/data: is missing; put NAME.in"},
		"no answer":          {files{"data/secret/1.ans": ""}, "sum/data/secret/1.in: has no answer file; write 1.ans"},
		"no input":           {files{"data/secret/1.in": ""}, "sum/data/secret/1.ans: has no input file; write 1.in"},
		"test name":          {files{"data/secret/a b.in": "x"}, "sum/data/secret/a b.in: has a name outside"},
		"test without name":  {files{"data/secret/.in": "x"}, "sum/data/secret/.in: has a name outside"},
		"group name":         {files{"data/secret/a b/1.in": "x"}, "sum/data/secret/a b: has a name outside"},
		"input a folder":     {files{"data/secret/1.in": "", "data/secret/1.in/": ""}, "sum/data/secret/1.in: is a folder"},
		"secret a file":      {files{"data/sample": "x"}, "sum/data/sample: is a file; put a folder"},
		"group and test":     {files{"data/secret/1/2.in": "x", "data/secret/1/2.ans": "x"}, "sum/data/secret/1: is a test group and a test case"},
		"files":              {files{"data/secret/1.files/x": "x"}, "sum/data/secret/1.files: is not yet supported"},
		"args":               {files{"data/secret/1.yaml": "hint: x\nargs: [-v]\n"}, "sum/data/secret/1.yaml:2: args is not yet supported"},
		"custom grading":     {files{"data/testdata.yaml": "grading: custom\n"}, "sum/data/testdata.yaml:1: grading is not yet supported"},
		"grader flags":       {files{"data/testdata.yaml": "grader_flags: first_error accept_if_any_accepted\n"}, "grader_flags is not yet supported"},
		"static validation":  {files{"data/test_group.yaml": "static_validation: true\n"}, "static_validation is not yet supported"},
		"named validator":    {files{"data/testdata.yaml": "output_validator_flags: {name: a, flags: b}\n"}, "output_validator_flags is not yet supported"},
		"group flag unknown": {files{"data/testdata.yaml": "output_validator_flags: fuzzy\n"}, "unknown validator flag"},
		"group yaml broken":  {files{"data/testdata.yaml": "{\n"}, "sum/data/testdata.yaml:"},
		"flags differ": {files{"data/sample/1.in": "x", "data/sample/1.ans": "x", "data/sample/2.in": "x", "data/sample/2.ans": "x",
			"data/secret/testdata.yaml": "output_validator_flags: case_sensitive\n"}, "give all tests the same"},

		"input link out":    {files{"data/secret/1.in": "-> ../../../outside"}, "sum/data/secret/1.in: is a link out of the package"},
		"input link root":   {files{"data/secret/1.in": "-> /etc/passwd"}, "sum/data/secret/1.in: is a link out of the package"},
		"link elsewhere":    {files{"attachments/x": "-> ../.."}, "sum/attachments/x: is a link out of the package"},
		"settings link out": {files{"problem.yaml": "-> ../../outside"}, "sum/problem.yaml: is a link out of the package"},
		"link to nothing":   {files{"data/secret/1.ans": "-> nothing"}, "sum/data/secret/1.ans: is a link to nothing"},
		"link in a circle":  {files{"data/secret/loop": "-> ../secret"}, "sum/data/secret/loop: is a link to a folder"},
		"link to itself":    {files{"data/secret/1.in": "-> 1.in"}, "sum/data/secret/1.in: is a link"},
		"submission name":   {files{"submissions/accepted/a b.py": "x"}, "sum/submissions/accepted/a b.py: has a name outside"},
		"verdict a file":    {files{"submissions/wrong_answer": "x"}, "sum/submissions/wrong_answer: is a file"},
	}
}

// Each fault gives one finding: one line that names the file, what is wrong and
// the mend.
func TestFaults(t *testing.T) {
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			files{"outside": "x"}.write(t, parent)
			p, err := Open(minimal().with(f.change).write(t, filepath.Join(parent, "sum")))
			if err == nil || p != nil {
				t.Fatalf("opened, %v", err)
			}
			if !strings.Contains(err.Error(), f.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error:\n%v\nwant one line with:\n%s", err, f.want)
			}
			var finding *Finding
			if !errors.As(err, &finding) || finding.What == "" || finding.Mend == "" {
				t.Errorf("finding %+v", finding)
			}
		})
	}
}

func TestYAMLLine(t *testing.T) {
	_, err := minimal().with(yamlIs("name: Sum\nlicense: cc0\nlimits: a: b\n")).open(t)
	var f *Finding
	if !errors.As(err, &f) || f.Line != 3 {
		t.Errorf("%v", err)
	}
}

func TestAllFindings(t *testing.T) {
	_, err := minimal().with(files{
		"problem.yaml":     "type: scoring\nlimits: {time_limit: 0, memory: -1, output: x}\nvalidator_flags: a b\n",
		"data/secret/2.in": "x", "data/secret/3.ans": "x",
	}).open(t)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 7 || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("%v", err)
	}
}

func TestFolderItself(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		"Upper":  "the folder's name is not a problem's name",
		"a b":    "the folder's name is not a problem's name",
		"a\nb":   "the folder's name is not a problem's name",
		"a-b":    "the folder's name is not a problem's name",
		"absent": "cannot open the folder: no such file",
		"file":   "cannot open the folder: not a directory",
	} {
		at := filepath.Join(dir, name)
		switch name {
		case "absent":
		case "file":
			files{name: "x"}.write(t, dir)
		default:
			minimal().write(t, at)
		}
		p, err := Open(at)
		if p != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := minimal().write(t, filepath.Join(t.TempDir(), "sum"))
	if err := os.Chmod(filepath.Join(dir, "data/secret/1.in"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		t.Skip("the superuser reads everything")
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "correct its permissions") {
		t.Error(err)
	}
}

// Whatever the settings hold, Open ends with a package or with findings of one
// printable line each.
func FuzzSettings(f *testing.F) {
	for _, fault := range faults() {
		f.Add(fault.change["problem.yaml"])
	}
	f.Add("a: &a [x, *a]\nname: *a\nlimits: {<<: {time_limit: 1}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := minimal().write(t, filepath.Join(t.TempDir(), "sum"))
		if err := os.WriteFile(filepath.Join(dir, "problem.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := Open(dir)
		if (p == nil) == (err == nil) {
			t.Fatal(p, err)
		}
		if err == nil {
			l := p.Limits
			if l.Time <= 0 || l.Memory <= 0 || l.Output <= 0 || l.CompileTime <= 0 || l.CompileMemory <= 0 {
				t.Fatalf("%+v", l)
			}
			return
		}
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			if strings.ContainsAny(e.Error(), "\n\r\x00\x1b") {
				t.Fatalf("%q", e)
			}
		}
	})
}
