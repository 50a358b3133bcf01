package problem

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is what a folder of test data holds under one base name.
type node struct {
	input, answer, group bool
	settings             string // path of the test's own YAML file
}

// readTests lists the test cases. The format lets validator arguments differ
// from group to group; this reader asks that they come out the same for every
// test, so that they can stand once in the package.
func (l *loader) readTests() {
	if _, ok := l.list("data"); !ok {
		if !l.bad["data"] {
			l.fail("data", 0, "is missing", "put NAME.in and NAME.ans into data/secret")
		}
		return
	}
	w := &testWalk{loader: l}
	top := l.groupFlags("data", nil)
	for _, group := range []string{"sample", "secret"} {
		w.walk(group, top)
	}
	l.pkg.ValidatorFlags = append(slices.Clone(l.flags), w.flags...)
	if len(l.pkg.Tests) == 0 && !l.faultyData() {
		l.fail("data", 0, "has no test cases", "put NAME.in and NAME.ans into data/secret")
	}
	if n := len(l.pkg.Tests); n > 0 && l.pkg.Tests[n-1].Sample {
		l.warn("data/secret", "has no test cases; the samples alone decide")
	}
}

// faultyData reports whether a finding already tells why tests are missing.
func (l *loader) faultyData() bool {
	return slices.ContainsFunc(l.findings, func(err error) bool {
		var f *Finding
		return errors.As(err, &f) && strings.HasPrefix(f.File, "data")
	})
}

// testWalk goes through the groups in the order of judging.
type testWalk struct {
	*loader
	flags   []string // the first test's validator arguments
	differs bool     // and whether a later test's were reported
}

func (w *testWalk) walk(group string, inherited []string) {
	dir := "data/" + group
	entries, ok := w.list(dir)
	if !ok {
		return
	}
	flags := w.groupFlags(dir, inherited)
	nodes := map[string]*node{}
	for _, e := range entries {
		w.sort(nodes, dir, e.Name(), e.IsDir())
	}
	// Tests and groups share one order, that of their base names.
	for _, base := range slices.Sorted(maps.Keys(nodes)) {
		w.take(nodes[base], group+"/"+base, flags)
	}
}

// sort puts a folder's entry where it belongs.
func (w *testWalk) sort(nodes map[string]*node, dir, name string, isDir bool) {
	file, ext := dir+"/"+name, path.Ext(name)
	at := func(base string) *node {
		if nodes[base] == nil {
			nodes[base] = &node{}
		}
		return nodes[base]
	}
	data := ext == ".in" || ext == ".ans"
	switch {
	case w.bad[file]:
		// Its partner must not be reported as alone.
		if data {
			at(stem(name)).input, at(stem(name)).answer = true, true
		}
	case isDir && data:
		w.reject(file, "is a folder", "put a file in its place")
		at(stem(name)).input, at(stem(name)).answer = true, true
	case isDir && ext == ".files":
		w.fail(file, 0, "is not yet supported", "use a problem whose programs read standard input only")
	case isDir && ext == ".download", !isDir && !data && ext != ".yaml":
		// Shown to contestants or not at all; no part of judging.
	case !filePattern(name):
		w.fail(file, 0, "has a name outside the format's pattern", "use letters, digits, _ . - and begin with a letter, a digit or _")
	case isDir:
		at(name).group = true
	case ext == ".in":
		at(stem(name)).input = true
	case ext == ".ans":
		at(stem(name)).answer = true
	case name != "testdata.yaml" && name != "test_group.yaml":
		at(stem(name)).settings = file
	}
}

func (w *testWalk) take(n *node, name string, flags []string) {
	file := "data/" + name
	switch {
	case n.input && n.answer:
		if n.settings != "" {
			flags = w.readFlags(n.settings, flags)
		}
		if !w.bad[file+".in"] && !w.bad[file+".ans"] {
			w.add(name, flags)
		}
	case n.input:
		w.fail(file+".in", 0, "has no answer file", "write "+path.Base(name)+".ans beside it")
	case n.answer:
		w.fail(file+".ans", 0, "has no input file", "write "+path.Base(name)+".in beside it")
	}
	if n.group {
		if n.input || n.answer {
			w.fail(file, 0, "is a test group and a test case", "rename one of the two")
		}
		w.walk(name, flags)
	}
}

func (w *testWalk) add(name string, flags []string) {
	switch {
	case len(w.pkg.Tests) == 0:
		w.flags = flags
	case !w.differs && !slices.Equal(w.flags, flags):
		w.differs = true
		w.fail("data/"+name+".in", 0, fmt.Sprintf("has the validator arguments %q, %s has %q, which is not yet supported",
			flags, w.pkg.Tests[0].Name, w.flags), "give all tests the same in data/ or problem.yaml")
	}
	at := filepath.Join(w.pkg.Dir, "data", filepath.FromSlash(name))
	w.pkg.Tests = append(w.pkg.Tests, Test{
		Name: name, InputPath: at + ".in", AnswerPath: at + ".ans",
		Sample: strings.HasPrefix(name, "sample/"), dir: w.pkg.Dir,
	})
}

// groupFlags reads a group's settings under their name in either version.
func (l *loader) groupFlags(dir string, inherited []string) []string {
	return l.readFlags(dir+"/test_group.yaml", l.readFlags(dir+"/testdata.yaml", inherited))
}

// readFlags reads the validator arguments of a group or a test, and refuses
// settings that would change a verdict in a way the judge does not know.
func (l *loader) readFlags(file string, inherited []string) []string {
	t, ok := l.readTable(file)
	if !ok {
		return inherited
	}
	refuse := func(key string) {
		l.fail(file, t[key].Line, key+" is not yet supported", "take it out")
	}
	if len(l.texts(file, t, "args")) > 0 {
		refuse("args")
	}
	if node, ok := t.at("static_validation"); ok && node.Value != "false" {
		refuse("static_validation")
	}
	if g := l.text(file, t, "grading"); g != "" && g != "default" {
		refuse("grading")
	}
	for flag := range strings.FieldsSeq(l.text(file, t, "grader_flags")) {
		// These two choose which failed test names the verdict, not whether there is one.
		if flag != "first_error" && flag != "worst_error" {
			refuse("grader_flags")
			break
		}
	}
	flags := inherited
	for _, key := range []string{"output_validator_flags", "output_validator_args"} {
		node, ok := t.at(key)
		if !ok {
			continue
		}
		if node.Kind == yaml.MappingNode {
			refuse(key)
			continue
		}
		flags = nil
		for _, s := range l.texts(file, t, key) {
			flags = append(flags, strings.Fields(s)...)
		}
	}
	return flags
}
