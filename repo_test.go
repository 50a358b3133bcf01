package lastword_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The budgets of docs/decisions.md: raise one there first.
const (
	maxExported      = 80
	maxFileLines     = 400
	maxFunctionLines = 60
)

func TestLibraryRequiresNothing(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word == "require" || word == "replace" || word == "tool" {
			t.Errorf("go.mod has the line %q: the library imports the standard library only", line)
		}
	}
}

func TestLibraryImportsTheStandardLibraryOnly(t *testing.T) {
	const self = "github.com/lastword-go/lastword"
	for _, path := range goFiles(t) {
		if first, _, nested := strings.Cut(path, "/"); nested && slices.Contains(otherModules(t), first) {
			continue
		}
		for _, spec := range parseFile(t, path).Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			first, _, _ := strings.Cut(imported, "/")
			if strings.Contains(first, ".") && imported != self && !strings.HasPrefix(imported, self+"/") {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
}

func TestExportedNames(t *testing.T) {
	var names []string
	for _, path := range goFiles(t) {
		if strings.Contains(path, "/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, decl := range parseFile(t, path).Decls {
			names = append(names, exported(decl)...)
		}
	}
	if len(names) > maxExported || len(names) < 20 {
		slices.Sort(names)
		t.Errorf("the root package exports %d names, %d are allowed: %v", len(names), maxExported, names)
	}
	t.Logf("%d exported names", len(names))
}

// exported counts names of the package's scope; methods and fields belong to their types.
func exported(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

func TestFileAndFunctionLengths(t *testing.T) {
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if lines := set.File(file.Pos()).LineCount(); lines > maxFileLines+1 { // the end of the last line counts as one
			t.Errorf("%s has %d lines, %d are allowed", path, lines, maxFileLines)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				if lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line - 1; lines > maxFunctionLines {
					t.Errorf("%s: %s has %d lines, %d are allowed", path, f.Name.Name, lines, maxFunctionLines)
				}
			}
		}
	}
}

func TestNoInitAndNoDrawers(t *testing.T) {
	for _, path := range goFiles(t) {
		file := parseFile(t, path)
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types"}, file.Name.Name) {
			t.Errorf("%s: a package named %s says nothing of what it is for", path, file.Name.Name)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init: nothing happens before main", path)
			}
		}
	}
}

func parseFile(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// goFiles returns every Go file of the repository, by its path from here.
func goFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go"):
			paths = append(paths, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 20 {
		t.Fatalf("only %d Go files were found", len(paths))
	}
	return paths
}

// otherModules are the folders with a go.mod of their own.
func otherModules(t *testing.T) (folders []string) {
	t.Helper()
	found, err := filepath.Glob("*/go.mod")
	if err != nil || len(found) == 0 {
		t.Fatalf("no other modules: %v", err)
	}
	for _, path := range found {
		folders = append(folders, filepath.Dir(path))
	}
	return folders
}
