package supervise

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tracksDescendants: nobody tells of descendants that left the group.
const tracksDescendants = false

func executable() (string, error) { return os.Executable() }

// Now is a clock that all processes share and that goes on while the machine sleeps.
func Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return time.Duration(t.Nano())
}

func becomeSubreaper() {}

func commandAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func descendants() []int { return nil }
