//go:build linux

package sandbox

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestCompileAndRun(t *testing.T) {
	forModes(t, func(t *testing.T, s *Sandbox) {
		b := newBox(t, s)
		put(t, b, "main.cc", []byte("#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }"), 0o644)
		r := mustRun(t, b, Command{Args: []string{"/usr/bin/g++", "-O2", "-o", "main", "main.cc"}, WritableDir: true})
		if r.Outcome != Exited || r.ExitCode != 0 {
			t.Fatalf("compile: %+v\n%s", r, r.Stderr)
		}
		program, err := b.Read("main", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		other := newBox(t, s)
		put(t, other, "main", program, 0o555)
		r = mustRun(t, other, Command{Args: []string{"./main"}, Stdin: strings.NewReader("1 2"), Limits: tight()})
		if r.Outcome != Exited || string(r.Stdout) != "3\n" {
			t.Errorf("%+v", r)
		}
	})
}

func TestCompileBombs(t *testing.T) {
	bombs := []struct{ name, source string }{
		{"random", "#include </dev/random>"},
		{"zero", "#include \"/dev/zero\""},
		{"stdin", "#include \"/dev/stdin\""},
		{"shadow", "#include \"/etc/shadow\""},
		{"environ", "#include \"/proc/1/environ\""},
		{"incbin", "__asm__(\".incbin \\\"/etc/shadow\\\"\"); int main() {}"},
		{"template", "template<int N> struct A { static const int v = A<N + 1>::v; };\nint main() { return A<0>::v; }"},
		{"wide", "template<int N, unsigned K> struct P { P<N - 1, 2 * K> a; P<N - 1, 2 * K + 1> b; };\ntemplate<unsigned K> struct P<0, K> {};\nP<31, 1> p; int main() {}"},
		{"self", "#include __FILE__\n#include __FILE__\n"},
		{"array", "int a[1000000000] = {1}; int main() {}"},
	}
	l := Limits{CPU: time.Second, Wall: 20 * time.Second, Memory: 256 << 20, FileSize: 16 << 20, Stderr: 256 << 10}
	forModes(t, func(t *testing.T, s *Sandbox) {
		for _, bomb := range bombs {
			t.Run(bomb.name, func(t *testing.T) {
				b := newBox(t, s)
				put(t, b, "main.cc", []byte(bomb.source), 0o644)
				r := mustRun(t, b, Command{Args: []string{"/usr/bin/g++", "-ftemplate-depth=100000000", "-o", "main", "main.cc"}, WritableDir: true, Limits: l})
				if r.Outcome == Exited && r.ExitCode == 0 {
					t.Error("compiled")
				}
				if bytes.Contains(r.Stderr, []byte("root:")) || bytes.Contains(r.Stderr, []byte("GOGC")) {
					t.Errorf("leaks:\n%.500s", r.Stderr)
				}
				t.Logf("%s, code %d, cpu %v, memory %d MiB", r.Outcome, r.ExitCode, r.CPU, r.Memory>>20)
			})
		}
	})
}
