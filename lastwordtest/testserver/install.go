//go:build unix

package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// withoutService is a step for install: a package of Debian whose service neither starts now nor at the next boot, as
// nobody needs it. A policy-rc.d that the machine has stays in force.
func withoutService(service, pkg string) []string {
	return []string{"sh", "-ec", `
		policy=/usr/sbin/policy-rc.d
		if [ ! -e $policy ]; then
			trap 'rm -f $policy' EXIT
			printf '#!/bin/sh\ncase $1 in %s|%s.*) exit 101 ;; esac\n' "$1" "$1" >$policy
			chmod 755 $policy
		fi
		apt-get install -y -qq --no-install-recommends "$2"
		update-rc.d "$1" disable`, "sh", service, pkg}
}

// lookFor returns the first program of these names, in PATH or one of the folders, or "".
func lookFor(names []string, folders ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		for _, folder := range folders {
			if path := filepath.Join(folder, name); executable(path) {
				return path
			}
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
