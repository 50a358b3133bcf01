// Package supervise runs a command so that nothing of it outlives the right it was started under.
//
// Between the program and the command stands a second process of the same program, the supervisor. It is the command's parent, puts it
// into a process group of its own, and ends that group when it is told to, when the program has died (even by SIGKILL: a pipe between
// the two then reads as ended), or when a deadline has passed that the program did not move on, because it is frozen, say. Each of these
// takes its course without the program's help. When the supervisor itself is killed, the program ends the group.
//
// On Linux both are child subreapers: descendants that left the group (setsid, daemons that fork twice) are found and ended too,
// and the command's first process dies with the supervisor. Elsewhere only the group is ended.
//
// Not covered on any system: a process that another one was asked to start (docker run, systemd-run, at, ssh), one that this user may not
// signal (setuid programs), the death of both processes at once, where only the command's first process is sure to die (Linux), and a
// supervisor that is frozen by itself: nothing is ended until it goes on.
package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is what to run.
type Command struct {
	// Self are the arguments that make this program call Supervise; those of the protocol and of the command are put after them.
	Self           []string
	Args           []string
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// LastGrace is the same where a deadline has passed: SIGTERM is sent at the deadline, SIGKILL so much later.
	LastGrace time.Duration
}

// Report is what became of the command so far.
type Report struct {
	Kind   Kind           `json:"kind"`
	PID    int            `json:"pid,omitempty"`    // Started: the command's process, and its group
	Signal syscall.Signal `json:"signal,omitempty"` // Stopped: by which signal
	Status int            `json:"status,omitempty"` // Ended: as a shell gives it, 128+signal for a signal. NotStarted: 127 or 126
	Reason string         `json:"reason,omitempty"` // NotStarted: why
	Late   bool           `json:"late,omitempty"`   // Ended: the deadline had passed
	Left   int            `json:"left,omitempty"`   // Ended: processes that the command had left running, and that were ended
	Immune int            `json:"immune,omitempty"` // Ended: processes that could not be ended
}

// Kind is the kind of a Report.
type Kind string

// The kinds of reports. NotStarted, Ended and Lost are the last ones.
const (
	Started    Kind = "started"
	NotStarted Kind = "not started"
	Stopped    Kind = "stopped" // by job control; it can be continued with Signal(SIGCONT)
	Ended      Kind = "ended"   // and nothing of it runs, but for what Immune counts
	Lost       Kind = "lost"    // the supervisor died; the group has been ended
)

// order is what the program tells the supervisor.
type order struct {
	Signal   syscall.Signal `json:"signal,omitempty"`   // pass on to the group
	End      bool           `json:"end,omitempty"`      // SIGTERM now, SIGKILL after the grace
	Deadline time.Duration  `json:"deadline,omitempty"` // on the clock of Now
}

// Child is a supervised command, seen from the program.
type Child struct {
	cmd     *exec.Cmd
	reports chan Report
	mu      sync.Mutex
	orders  *json.Encoder
	pipe    *os.File
}

// firstFD is where the supervisor's two pipes begin: out of the way of descriptors that a shell, make or systemd passes to the command.
const firstFD = 100

// Start starts the supervisor, and the command under it. The program must have no other children. The deadline is the first one. Reports tells whether the command came up.
func Start(c Command, deadline time.Duration) (*Child, error) {
	executable, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to supervise the command with: %w", err)
	}
	ordersIn, ordersOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersIn.Close()
	reportsIn, reportsOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ordersOut.Close())
	}
	defer reportsOut.Close()
	args := append([]string{"lastword"}, c.Self...)
	var inherited []int
	for _, f := range []*os.File{ordersIn, reportsOut} {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, firstFD)
		if err != nil {
			return nil, errors.Join(err, ordersOut.Close(), reportsIn.Close())
		}
		defer func() { _ = unix.Close(fd) }()
		inherited = append(inherited, fd)
	}
	args = append(args, "--orders", strconv.Itoa(inherited[0]), "--reports", strconv.Itoa(inherited[1]),
		"--grace", c.Grace.String(), "--last-grace", c.LastGrace.String(), "--deadline", strconv.FormatInt(int64(deadline), 10), "--")
	becomeSubreaper() // of what the supervisor would leave if it were killed
	cmd := exec.Command(executable)
	cmd.Args, cmd.Env = append(args, c.Args...), c.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor of the command: %w", err), ordersOut.Close(), reportsIn.Close())
	}
	child := &Child{cmd: cmd, reports: make(chan Report, 4), orders: json.NewEncoder(ordersOut), pipe: ordersOut}
	go child.listen(reportsIn)
	return child, nil
}

// Reports are sent as they come; the channel is closed after the last one.
func (c *Child) Reports() <-chan Report { return c.reports }

// Signal passes a signal on to the command's group.
func (c *Child) Signal(signal syscall.Signal) { c.tell(order{Signal: signal}) }

// End ends all that the command started: SIGTERM now, SIGKILL after the grace.
func (c *Child) End() { c.tell(order{End: true}) }

// Deadline moves the deadline, on the clock of Now. It cannot call back an end that has begun.
func (c *Child) Deadline(at time.Duration) { c.tell(order{Deadline: at}) }

// tell has no error to return: when the supervisor has gone, the last report says so.
func (c *Child) tell(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.orders.Encode(o)
}

func (c *Child) listen(pipe *os.File) {
	defer close(c.reports)
	defer c.pipe.Close()
	defer pipe.Close()
	group := 0
	for decoder := json.NewDecoder(pipe); ; {
		var r Report
		if err := decoder.Decode(&r); err != nil {
			break
		}
		if r.Kind == Started {
			group = r.PID
		}
		if r.Kind == Ended || r.Kind == NotStarted {
			_ = c.cmd.Wait()
			c.reports <- r
			return
		}
		c.reports <- r
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	if group > 0 {
		killOrphans(group)
	}
	c.reports <- Report{Kind: Lost}
}

// killOrphans ends what has lost its supervisor: the group, and on Linux what left it, all of which are this process's children by then or
// become so. It gives up after a while.
func killOrphans(group int) {
	for end := Now() + patience; Now() < end; time.Sleep(endingEvery) {
		_ = unix.Kill(-group, unix.SIGKILL)
		for _, pid := range descendants() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		var err error
		for pid := 1; pid > 0 && err == nil; {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		if errors.Is(err, syscall.ECHILD) && (tracksDescendants || unix.Kill(-group, 0) != nil) {
			return
		}
	}
}
