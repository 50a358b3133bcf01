package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host user IDs of boxes when the sandbox runs as root. Each open box has its own, so that two share no per-user quota
// and no files. They fit into a container's usual 65536 IDs.
const (
	firstUser = 64000
	userCount = 1000
)

// insideUser is the user ID a payload sees in a user namespace. It is not 0: the exec then drops all capabilities.
const insideUser = 1000

// platform is the part of a Sandbox that only Linux has.
type platform struct {
	groups *hierarchy // ModeCgroup
	mode   Mode
}

func (p *platform) open(m Mode, log *slog.Logger) error {
	p.mode = m
	if m != ModeCgroup {
		return nil
	}
	h, err := openHierarchy()
	if err != nil {
		return err
	}
	me, err := self()
	if err != nil {
		return err
	}
	h.sweep(me, log)
	p.groups = h
	return nil
}

func (p *platform) close(name string) {
	if p.groups != nil {
		p.groups.removeOf(name)
		p.groups.close()
	}
}

// boxUser is the host user that owns the n-th box.
func (p *platform) boxUser(n int64) int {
	if p.mode == ModeNone || os.Geteuid() != 0 {
		return os.Geteuid()
	}
	return firstUser + int(n%userCount)
}

// modeReady finds what a trial run would only report as a bare errno.
func modeReady(m Mode) error {
	switch m {
	case ModeCgroup:
		if os.Geteuid() != 0 {
			return errors.New("needs root (run as root)")
		}
		h, err := openHierarchy()
		if err != nil {
			return err
		}
		for _, p := range h.parents {
			if err := os.Mkdir(p, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return fmt.Errorf("cgroups are not writable: %w (run outside of the container, or give it a writable /sys/fs/cgroup)", err)
			}
		}
		h.close()
	case ModeUserns:
		if n, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(n)) == "0" {
			return errors.New("user namespaces are switched off (sysctl user.max_user_namespaces=10000)")
		}
		if v, err := os.ReadFile("/proc/sys/kernel/unprivileged_userns_clone"); err == nil && os.Geteuid() != 0 && strings.TrimSpace(string(v)) == "0" {
			return errors.New("user namespaces are for root only (sysctl kernel.unprivileged_userns_clone=1)")
		}
	}
	return nil
}

// modeMend adds to the error of a failed trial run what usually mends it. The init process reports errors as text.
func modeMend(m Mode, err error) error {
	is := func(e syscall.Errno) bool { return errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) }
	switch {
	case is(syscall.EACCES) && m == ModeUserns:
		return fmt.Errorf("%w (the folders above the work folders must be searchable by everyone: choose another one)", err)
	case is(syscall.EPERM) && m == ModeUserns:
		return fmt.Errorf("%w (allow user namespaces and a fresh /proc: in a container switch its seccomp profile and path masking off, on Ubuntu sysctl kernel.apparmor_restrict_unprivileged_userns=0)", err)
	case is(syscall.EPERM), is(syscall.EACCES):
		return fmt.Errorf("%w (the process needs CAP_SYS_ADMIN: give it to the container)", err)
	case is(syscall.EBUSY) && m == ModeCgroup:
		return fmt.Errorf("%w (the top cgroup holds processes: move them into a child, or run outside of the container)", err)
	}
	return err
}

func self() (owner, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return owner{}, err
	}
	start, _, err := processStart(os.Getpid())
	return owner{ns: st.Ino, pid: os.Getpid(), start: start}, err
}

// alive says whether the very process still exists, not merely its number or its unreaped remains.
func alive(o owner) bool {
	start, state, err := processStart(o.pid)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH)
	}
	return start == o.start && state != 'Z' && state != 'X'
}

// processStart reads a process's start time, in clock ticks since boot, and its state.
func processStart(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The second field is the program's name in brackets and may hold anything; the third follows the last bracket.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}
