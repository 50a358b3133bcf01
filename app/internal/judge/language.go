package judge

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Language is one entry of the table: how a source becomes a program, and how the program is run. {source} and {program} stand for
// the files' names in the work folder.
type Language struct {
	Name       string
	Title      string
	Extensions []string
	SourceName string // the source's name in the work folder
	Compile    []string
	Run        []string
	Version    []string // prints the version; its first line is shown
	Toolchain  string   // the program that must exist
}

// languages is the table. Only toolchains below /usr are used: those are what the sandbox shows.
func languages() []Language {
	return []Language{
		{Name: "c", Title: "C", Extensions: []string{".c"}, SourceName: "main.c", Toolchain: "/usr/bin/gcc",
			Compile: []string{"/usr/bin/gcc", "-x", "c", "-std=gnu17", "-O2", "-o", "program", "main.c", "-lm"}, Run: []string{"./program"}, Version: []string{"/usr/bin/gcc", "--version"}},
		{Name: "cpp", Title: "C++", Extensions: []string{".cpp", ".cc", ".cxx", ".c++"}, SourceName: "main.cpp", Toolchain: "/usr/bin/g++",
			Compile: []string{"/usr/bin/g++", "-x", "c++", "-std=gnu++20", "-O2", "-o", "program", "main.cpp"}, Run: []string{"./program"}, Version: []string{"/usr/bin/g++", "--version"}},
		{Name: "python", Title: "Python 3", Extensions: []string{".py"}, SourceName: "main.py", Toolchain: "/usr/bin/python3",
			Compile: []string{"/usr/bin/python3", "-I", "-m", "py_compile", "main.py"}, Run: []string{"/usr/bin/python3", "-I", "main.py"}, Version: []string{"/usr/bin/python3", "--version"}},
	}
}

// LanguageStatus is a language as this machine has it.
type LanguageStatus struct {
	Language
	Installed string // the version's first line; "" when the toolchain is missing
	Missing   string // the mend, when it is
}

// ProbeLanguages looks for each language's toolchain.
func ProbeLanguages(ctx context.Context) []LanguageStatus {
	var out []LanguageStatus
	for _, language := range languages() {
		status := LanguageStatus{Language: language}
		if _, err := os.Stat(language.Toolchain); err != nil {
			status.Missing = fmt.Sprintf("%s is not installed: install it to judge %s", language.Toolchain, language.Title)
		} else {
			status.Installed = version(ctx, language.Version)
		}
		out = append(out, status)
	}
	return out
}

func version(ctx context.Context, command []string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if err != nil {
		return "unknown version"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first)
}

// LanguageOf returns the name of the language that a file's ending stands for, or "".
func LanguageOf(filename string) string {
	ending := strings.ToLower(filepath.Ext(filename))
	for _, language := range languages() {
		for _, e := range language.Extensions {
			if e == ending {
				return language.Name
			}
		}
	}
	return ""
}
