package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tracksDescendants: a process without a parent becomes the supervisor's child, so waiting finds every descendant.
const tracksDescendants = true

// executable stays the same program when its file is replaced. The supervisor's short name is "exe" then, so that pkill lastword does not
// end both processes at once.
func executable() (string, error) { return "/proc/self/exe", nil }

// Now is a clock that all processes share and that goes on while the machine sleeps.
func Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail for this clock
	return time.Duration(t.Nano())
}

func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

func commandAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// descendants lists the processes below this one that are not zombies.
func descendants() []int {
	var found []int
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", queue[0]))
		for _, list := range lists {
			text, _ := os.ReadFile(list) // its thread may have ended
			for field := range strings.FieldsSeq(string(text)) {
				var pid int
				if _, err := fmt.Sscan(field, &pid); err == nil && !zombie(pid) {
					found, queue = append(found, pid), append(queue, pid)
				}
			}
		}
	}
	return found
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name stands in parentheses and may contain any character; the state follows the last one.
	end := strings.LastIndexByte(string(text), ')')
	return err != nil || end < 0 || strings.HasPrefix(string(text)[end+1:], " Z")
}
