package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is the program's side of job control. The command runs in a group of its own, in the background as the terminal sees it:
// the program passes Ctrl-C on, and other members of a pipeline (less, say) keep the terminal. A command that reads from the
// terminal or sets it up is stopped by it, and is lent the foreground then.
type Terminal struct {
	tty   *os.File // nil without a terminal
	group int
	lent  bool
	asked time.Time // when the user asked to suspend
}

// OpenTerminal finds the controlling terminal, if there is one.
func OpenTerminal() *Terminal {
	t := &Terminal{group: unix.Getpgrp()}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0); err == nil {
		t.tty = tty
	}
	return t
}

// Stopped answers a command that was stopped by the signal: it is continued with the terminal in hand where it waits for that, or the
// program stops with it, as the shell expects of a job.
func (t *Terminal) Stopped(c *Child, group int, by syscall.Signal) {
	wantsTerminal := by == unix.SIGTTIN || by == unix.SIGTTOU
	switch {
	case by == unix.SIGSTOP:
	case wantsTerminal && time.Since(t.asked) > askedLately && t.give(group):
		c.Signal(unix.SIGCONT)
	case sessionLeader():
		c.Signal(unix.SIGCONT) // nobody could continue us
	default:
		t.asked = time.Time{}
		t.takeBack()
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
}

// Suspend passes Ctrl-Z on. When the command has stopped, Stopped stops the program.
func (t *Terminal) Suspend(c *Child) {
	if !sessionLeader() {
		t.asked = time.Now()
		c.Signal(unix.SIGTSTP)
	}
}

// askedLately: a command that asks for the terminal just then is not continued, which would undo what the user asked for.
const askedLately = time.Second

// Close takes the terminal back.
func (t *Terminal) Close() {
	t.takeBack()
	if t.tty != nil {
		_ = t.tty.Close()
	}
}

func sessionLeader() bool {
	session, err := unix.Getsid(0)
	return err == nil && session == os.Getpid()
}

// give lends the foreground to the group if the program has it.
func (t *Terminal) give(group int) bool {
	if t.tty == nil || t.foreground() != t.group {
		return false
	}
	// Once in the background, the program could not take the terminal back without being stopped for it.
	signal.Ignore(unix.SIGTTOU)
	t.lent = unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, group) == nil
	return t.lent
}

func (t *Terminal) takeBack() {
	if t.lent {
		_ = unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, t.group)
		t.lent = false
	}
}

func (t *Terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}
