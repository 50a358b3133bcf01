package adapter_test

import (
	"errors"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lastword-go/lastword"

// notToBeShown are methods that other packages call: fmt, errors, slog and encoding/json.
var notToBeShown = []string{"String", "Error", "Unwrap", "Is", "Format", "LogValue", "MarshalJSON"}

func TestEveryExportedNameIsShown(t *testing.T) {
	check := &typeChecker{fset: token.NewFileSet(), std: importer.Default(), done: map[string]*types.Package{}}
	shown := map[string]bool{}
	for name, files := range check.parse(t, "*example*_test.go") {
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: check, Error: func(error) {}} // helpers of other tests may be missing here
		_, _ = config.Check(name, check.fset, files, info)
		for _, object := range info.Uses {
			if f, ok := object.(*types.Func); ok {
				shown[f.Origin().FullName()] = true
			}
		}
	}
	wanted := 0
	for _, path := range []string{module, module + "/reconcile"} {
		pkg, err := check.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range exportedFuncs(pkg) {
			wanted++
			if !shown[name] {
				t.Errorf("no example shows %s", name)
			}
		}
	}
	if wanted < 50 {
		t.Errorf("only %d exported functions and methods were found", wanted)
	}
	t.Logf("%d functions and methods", wanted)
}

func TestEveryExampleHasAnOutput(t *testing.T) {
	check := &typeChecker{fset: token.NewFileSet()}
	n := 0
	for _, files := range check.parse(t, "*example*_test.go") {
		for _, example := range doc.Examples(files...) {
			n++
			if example.Output == "" {
				t.Errorf("Example%s has no output: it is compiled, but not run", example.Name)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d examples were found", n)
	}
}

func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut("\n"+string(readme), "\n```go\n")
	block, _, closed := strings.Cut(block, "\n```\n")
	if !found || !closed {
		t.Fatal("README.md has no block of Go")
	}
	_, example, begun := strings.Cut(string(source), "// README begin\n")
	example, _, ended := strings.Cut(example, "// README end\n")
	if !begun || !ended {
		t.Fatal("example_test.go has lost its README marks")
	}
	lines := unindent(example)
	if len(lines) > 20 {
		t.Errorf("the example has %d lines, 20 are allowed", len(lines))
	}
	if want := strings.Join(lines, "\n"); block != want {
		t.Errorf("README.md shows\n%s\n\nand example_test.go has\n%s", block, want)
	}
}

// unindent cuts off the empty lines around a text, and the tabs that all its lines begin with.
func unindent(text string) []string {
	lines := strings.Split(strings.Trim(strings.TrimRight(text, "\t"), "\n"), "\n")
	isTabbed := func(line string) bool { return line == "" || line[0] == '\t' }
	for slices.ContainsFunc(lines, func(line string) bool { return line != "" }) && !slices.ContainsFunc(lines, func(line string) bool { return !isTabbed(line) }) {
		for i, line := range lines {
			lines[i] = strings.TrimPrefix(line, "\t")
		}
	}
	return lines
}

// exportedFuncs are the exported functions, methods and methods of interfaces, by their full names.
func exportedFuncs(pkg *types.Package) (names []string) {
	add := func(f *types.Func) {
		if f.Exported() && !slices.Contains(notToBeShown, f.Name()) {
			names = append(names, f.FullName())
		}
	}
	for _, name := range pkg.Scope().Names() {
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			add(object)
		case *types.TypeName:
			if named, ok := object.Type().(*types.Named); ok && object.Exported() {
				for method := range named.Methods() {
					add(method)
				}
			}
		}
	}
	return names
}

// typeChecker reads this module's packages from their files, so that what it says of an example is true of the code beside it.
type typeChecker struct {
	fset *token.FileSet
	std  types.Importer
	done map[string]*types.Package
}

func (c *typeChecker) Import(path string) (*types.Package, error) {
	folder, ours := strings.CutPrefix(path, module)
	switch {
	case c.done[path] != nil:
		return c.done[path], nil
	case ours:
		pattern := filepath.Join("..", filepath.FromSlash(folder), "*.go")
		files, err := parseFiles(c.fset, pattern)
		if err != nil {
			return nil, err
		}
		config := types.Config{Importer: c}
		pkg, err := config.Check(path, c.fset, slices.Concat(slices.Collect(maps.Values(files))...), nil)
		c.done[path] = pkg
		return pkg, err
	case strings.Contains(strings.Split(path, "/")[0], "."):
		return nil, errors.New("a driver is imported for its side effects")
	}
	return c.std.Import(path)
}

func (c *typeChecker) parse(t *testing.T, pattern string) map[string][]*ast.File {
	t.Helper()
	files, err := parseFiles(c.fset, pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// parseFiles returns files by the name of their package. Test files are read if the pattern asks for them.
func parseFiles(fset *token.FileSet, pattern string) (map[string][]*ast.File, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	files := map[string][]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") != strings.HasSuffix(pattern, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files[file.Name.Name] = append(files[file.Name.Name], file)
	}
	return files, nil
}
