//go:build unix

package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// install runs the steps that bring a missing program to Debian, one test binary at a time; found says whether another one
// was faster. Where we may not, the error names the mend.
func install(ctx context.Context, what string, found func() string, steps ...[]string) error {
	_, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 || os.Getenv("LASTWORD_TEST_INSTALL") == "0" {
		return fmt.Errorf("testserver: %s is not installed: install it, put its programs in PATH, or (as root on Debian) let the tests install it", what)
	}
	turn, err := os.Open("/etc/apt") // any folder can be locked, and this one is there
	if err != nil {
		return fmt.Errorf("testserver: %w", err)
	}
	defer func() { _ = turn.Close() }() // gives the lock back
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("testserver: %w", err)
	}
	if found() != "" {
		return nil
	}
	fmt.Fprintf(os.Stderr, "testserver: installing %s (LASTWORD_TEST_INSTALL=0 forbids it)\n", what)
	for _, step := range append([][]string{{"apt-get", "update", "-qq"}}, steps...) {
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("testserver: install %s: %v: %w\n%s", what, step, err, out)
		}
	}
	return nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
