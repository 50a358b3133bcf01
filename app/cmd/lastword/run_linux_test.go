package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// startAtTerminal starts a shell line at a terminal of its own and returns the terminal's other side.
func startAtTerminal(t *testing.T, line string) (r *runProcess, keyboard *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	db := "sqlite:" + filepath.Join(t.TempDir(), "lastword.db")
	r = newProcess(t, "bash", "-m", "-c", line)
	r.cmd.Env = append(r.cmd.Env, "LASTWORD_DB="+db)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = terminal, terminal, terminal
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	r.start()
	go func() {
		page := make([]byte, 4096)
		for {
			n, err := keyboard.Read(page)
			_, _ = r.out.Write(page[:n])
			if err != nil {
				return
			}
		}
	}()
	return r, keyboard
}

func press(t *testing.T, keyboard *os.File, keys string) {
	t.Helper()
	if _, err := keyboard.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func TestRunAtATerminal(t *testing.T) {
	t.Run("Ctrl-C reaches the command once", func(t *testing.T) {
		script := `n=0; trap "n=\$((n+1))" INT; echo ready; while [ $n = 0 ]; do sleep 0.05; done; sleep 0.3; echo "interrupts: $n"; exit 9`
		r, keyboard := startAtTerminal(t, `"$PROGRAM" run job -- sh -c '`+script+`'; echo "status $?"`)
		r.says("ready")
		press(t, keyboard, "\x03")
		r.says("interrupts: 1")
		r.says("status 9")
	})
	t.Run("the command reads from the terminal", func(t *testing.T) {
		r, keyboard := startAtTerminal(t, `"$PROGRAM" run job -- sh -c 'echo ready; read x; echo "got $x"; read y; exit 4'; echo "status $?"; read z; echo "shell got $z"`)
		r.says("ready")
		press(t, keyboard, "hello\n")
		r.says("got hello")
		press(t, keyboard, "\n")
		r.says("status 4")
		press(t, keyboard, "after\n") // the terminal is the shell's again
		r.says("shell got after")
	})
	t.Run("Ctrl-Z and fg", func(t *testing.T) {
		r, keyboard := startAtTerminal(t, `"$PROGRAM" run job --ttl 1m -- sh -c 'echo ready; read x; echo "got $x"; exit 4'; echo "stopped $?"; fg; echo "status $?"`)
		r.says("ready")
		press(t, keyboard, "\x1a")
		r.says("stopped 1") // 128 and a signal
		press(t, keyboard, "hello\n")
		r.says("got hello")
		r.says("status 4")
	})
	t.Run("another program has the terminal", func(t *testing.T) {
		r, keyboard := startAtTerminal(t, `"$PROGRAM" run job -- sh -c 'echo out; sleep 0.2' | sh -c 'cat; read x </dev/tty; echo "reader got $x"'; echo "status ${PIPESTATUS[0]}"`)
		r.says("out")
		press(t, keyboard, "page\n")
		r.says("reader got page")
		r.says("status 0")
	})
}

// Descriptors that a shell, make or systemd hands over reach the command, and those of lastword do not.
func TestRunPassesDescriptors(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "lastword.db")
	const list = `echo $(ls /proc/self/fd)`
	r := newProcess(t, "sh", "-c", `exec 3>&1; `+list+`; exec "$PROGRAM" run --db "$0" job -- sh -c 'echo through >&3; `+list+`'`, db)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	r.start()
	r.wantStatus(0, "through")
	if lines := strings.Split(r.out.String(), "\n"); len(lines) != 4 || lines[0] != lines[2] {
		t.Errorf("descriptors without lastword, and with it:\n%s", &r.out)
	}
}
