//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// build compiles C source outside of the sandbox and returns the binary.
func build(t testing.TB, source string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O1", "-w", "-pthread", "-o", bin, src}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// forModes runs a test in every mode that isolates. A machine that cannot offer one says what it lacks.
func forModes(t *testing.T, test func(t *testing.T, s *Sandbox)) {
	for _, m := range []Mode{ModeCgroup, ModeUserns} {
		t.Run(string(m), func(t *testing.T) { test(t, newSandbox(t, m)) })
	}
}

func newSandbox(t testing.TB, m Mode) *Sandbox {
	t.Helper()
	if err := selfTest(t.Context(), m, ""); err != nil {
		t.Skipf("this machine has no %s mode: %v", m, err)
	}
	var log bytes.Buffer
	s, err := New(t.Context(), &Options{Mode: m, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if log.Len() > 0 {
			t.Errorf("clean-up troubles:\n%s", &log)
		}
		if n := groupsOf(t, s); n > 0 {
			t.Errorf("%d cgroup folders left", n)
		}
		if _, err := os.Stat(s.dir); err == nil {
			t.Errorf("%s left", s.dir)
		}
	})
	return s
}

// groupsOf counts the cgroup folders a sandbox has.
func groupsOf(t testing.TB, s *Sandbox) int {
	t.Helper()
	h, err := openHierarchy()
	if err != nil {
		return 0
	}
	n := 0
	h.eachGroup(func(name, _ string) {
		if strings.HasPrefix(name, s.name) {
			n++
		}
	})
	return n
}

func newBox(t testing.TB, s *Sandbox) *Box {
	t.Helper()
	b, err := s.NewBox()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func put(t testing.TB, b *Box, name string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := b.Put(name, data, mode); err != nil {
		t.Fatal(err)
	}
}

// mustRun runs a command that the sandbox itself must not fail on, and checks that it leaves no process.
func mustRun(t testing.TB, b *Box, c Command) Result {
	t.Helper()
	marker := fmt.Sprintf("SANDBOX_TEST=%d-%d", os.Getpid(), time.Now().UnixNano())
	if c.Env == nil {
		c.Env = defaultEnv()
	}
	c.Env = append(c.Env, marker)
	r, err := b.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if pids := processesWith(t, marker); len(pids) > 0 {
		t.Fatalf("processes left: %v", pids)
	}
	return r
}

// processesWith lists the live processes whose environment has the entry.
func processesWith(t testing.TB, entry string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, f := range files {
		if env, err := os.ReadFile(f); err == nil && bytes.Contains(env, []byte(entry)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// hostile is one program that misbehaves in the way its first argument says.
const hostile = `
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void try(const char *what, long r) {
	printf("%s %s\n", what, r >= 0 ? "ALLOWED" : errno == ENOSYS ? "ENOSYS" : errno == EPERM ? "EPERM" : "refused");
	fflush(stdout);
}
static int deep(int n) { volatile char pad[1000]; pad[0] = n; return n == 0 ? pad[0] : deep(n - 1) + pad[0]; }
static void *thread(void *p) { return p; }

int main(int argc, char **argv) {
	const char *a = argc > 1 ? argv[1] : "";
#define IS(s) if (!strcmp(a, s))
	IS("sum") { long x, y; if (scanf("%ld %ld", &x, &y) != 2) return 9; printf("%ld\n", x + y); return 0; }
	IS("echo") { int c; while ((c = getchar()) != EOF) putchar(c); return 0; }
	IS("loop") for (;;) __asm__ volatile("");
	IS("sleep") for (;;) pause();
	IS("hog") for (;;) { char *p = malloc(1 << 20); if (!p) return 7; memset(p, 1, 1 << 20); }
	IS("childhog") { if (!fork()) for (;;) { char *p = malloc(1 << 20); if (!p) return 7; memset(p, 1, 1 << 20); } wait(0); return 0; }
	IS("bomb") for (;;) fork();
	IS("flood") { static char b[65536]; memset(b, 'x', sizeof b); for (int i = 0; i < 16384; i++) if (write(1, b, sizeof b) < 0) break; return 0; }
	IS("newlines") { static char b[65536]; memset(b, '\n', sizeof b); for (int i = 0; i < 16384; i++) if (write(2, b, sizeof b) < 0) break; return 0; }
	IS("daemon") { if (!fork()) { setsid(); if (!fork()) for (;;) pause(); _exit(0); } wait(0); puts("done"); return 0; }
	IS("orphans") { for (int i = 0; i < 500; i++) { pid_t p; while ((p = fork()) < 0) usleep(500); if (!p) { if (fork() == 0) _exit(0); _exit(0); } waitpid(p, 0, 0); } puts("done"); return 0; }
	IS("abort") abort();
	IS("segv") { *(volatile int *)8 = 1; }
	IS("kill9") { kill(getpid(), SIGKILL); pause(); }
	IS("exit3") return 3;
	IS("deep") { printf("%d\n", deep(100000) != -1); return 0; }
	IS("threads") { pthread_t t; for (int i = 0; i < 4; i++) if (pthread_create(&t, 0, thread, 0) || pthread_join(t, 0)) return 5; puts("ok"); return 0; }
	IS("bigfile") { int fd = open("/tmp/big", O_CREAT | O_WRONLY, 0600); static char b[65536]; for (;;) if (write(fd, b, sizeof b) < 0) return 6; }
	IS("int80") { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); printf("ALLOWED %d\n", r); return 0; }
	IS("files") {
		const char *f[] = {"/etc/shadow", "/root", "/home", "/srv", "/sys", "/var", "/proc/1/mem", "/proc/1/environ", "/proc/1/root/etc", "/proc/1/cwd/etc", "/proc/kcore", "/dev/mem"};
		for (int i = 0; i < sizeof f / sizeof *f; i++) try(f[i], open(f[i], O_RDONLY));
		const char *w[] = {"/x", "/etc/x", "/usr/x", "/dev/x", "/box/x", "../x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/1/oom_score_adj"};
		for (int i = 0; i < sizeof w / sizeof *w; i++) try(w[i], open(w[i], O_CREAT | O_WRONLY, 0600));
		try("chmod /usr/bin/env", chmod("/usr/bin/env", 0777));
		return 0;
	}
	IS("calls") {
		int af[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, 38 /* ALG */, 40 /* VSOCK */};
		for (int i = 0; i < 6; i++) try("socket", socket(af[i], SOCK_STREAM, 0));
		try("socket high bits", syscall(SYS_socket, 0x100000000L | AF_INET, SOCK_STREAM, 0));
		try("unshare user", unshare(CLONE_NEWUSER));
		try("unshare mount", unshare(CLONE_NEWNS));
		try("clone user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
		try("clone3", syscall(SYS_clone3, 0, 0));
		try("mount", mount("x", "/tmp", "tmpfs", 0, ""));
		try("umount", umount2("/tmp", MNT_DETACH));
		try("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
		try("chroot", chroot("/tmp"));
		try("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
		try("bpf", syscall(SYS_bpf, 0, 0, 0));
		try("io_uring", syscall(SYS_io_uring_setup, 8, 0));
		try("keyctl", syscall(SYS_keyctl, 0, -3, 0));
		try("perf", syscall(SYS_perf_event_open, 0, 0, -1, -1, 0));
		try("userfaultfd", syscall(SYS_userfaultfd, 0));
		try("setuid", setuid(0));
		try("setns", setns(0, 0));
		try("mknod", mknod("/tmp/dev", S_IFCHR | 0600, 0x100 + 1));
		struct rlimit none = {0, 0};
		try("prlimit of init", prlimit(1, RLIMIT_NOFILE, &none, 0));
		try("priority of init", setpriority(PRIO_PROCESS, 1, 19));
		struct sched_param idle = {0};
		try("scheduling of init", sched_setscheduler(1, SCHED_IDLE, &idle));
		try("tiocsti", syscall(SYS_ioctl, 0, 0x100000000L | TIOCSTI, "x"));
		return 0;
	}
	IS("fds") { for (int fd = 3; fd < 512; fd++) if (fcntl(fd, F_GETFD) >= 0) printf("open %d\n", fd); return 0; }
	IS("killinit") {
		for (int s = 1; s <= 64; s++) { kill(1, s); syscall(SYS_tkill, 2, s); syscall(SYS_tkill, 3, s); syscall(SYS_tkill, 4, s); }
		puts("alive"); return 0;
	}
	IS("swap") { unlink("out"); symlink(argv[2], "out"); return 0; }
	IS("fifo") { unlink("out"); return mkfifo("out", 0666); }
	IS("dir") { unlink("out"); return mkdir("out", 0777); }
	IS("large") { int fd = open("out", O_CREAT | O_WRONLY, 0644); return ftruncate(fd, 1 << 20); }
	IS("mess") {
		for (int i = 0; i < 10000; i++) { char n[32]; sprintf(n, "f%d", i); close(open(n, O_CREAT | O_WRONLY, 0)); }
		mkdir("locked", 0700); close(open("locked/x", O_CREAT | O_WRONLY, 0600)); mkdir("locked/in", 0); chmod("locked", 0);
		mkdir("d", 0700); chdir("d");
		for (int i = 0; i < 3000; i++) { if (mkdir("d", 0700) || chdir("d")) return 4; }
		return 0;
	}
	return 99;
}
`
