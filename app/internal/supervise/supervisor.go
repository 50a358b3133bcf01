package supervise

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Flags are the arguments with which the program starts itself as a supervisor.
type Flags struct {
	Orders    int           `required:""`
	Reports   int           `required:""`
	Grace     time.Duration `required:""`
	LastGrace time.Duration `required:""`
	Deadline  int64         `required:"" help:"In nanoseconds, on the clock of Now."`
}

const (
	settle      = 100 * time.Millisecond // what the command left may still be on its way out by itself
	lookEvery   = 500 * time.Millisecond // at the clock, which goes on while the machine sleeps, unlike timers
	endingEvery = 10 * time.Millisecond
	patience    = 10 * time.Second // after SIGKILL
)

// supervisor is the state of the process between the program and the command.
type supervisor struct {
	Flags
	reports  *json.Encoder
	deadline time.Duration
	pid      int
	alone    bool // no child is left
	exited   bool
	exitedAt time.Duration
	status   int
	late     bool
	left     int
	ending   bool
	killAt   time.Duration
}

type childEvent struct {
	pid    int
	status syscall.WaitStatus
}

// Supervise is the supervisor's process. It returns when nothing of the command runs any more. Call it on the program's first
// goroutine and end the program with it.
func Supervise(f Flags, args []string) error {
	// The command's first process dies with the thread that forked it, so this thread has to stay.
	runtime.LockOSThread()
	unix.CloseOnExec(f.Orders)
	unix.CloseOnExec(f.Reports)
	pipe, reports := os.NewFile(uintptr(f.Orders), "orders"), os.NewFile(uintptr(f.Reports), "reports")
	if pipe == nil || reports == nil {
		return errors.New("this command is for lastword itself: use lastword run")
	}
	becomeSubreaper()
	s := &supervisor{Flags: f, reports: json.NewEncoder(reports), deadline: time.Duration(f.Deadline)}
	path, err := exec.LookPath(args[0])
	if err == nil {
		attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: commandAttributes()}
		s.pid, _, err = syscall.StartProcess(path, args, attr)
	}
	if err != nil {
		return s.reports.Encode(notStarted(err))
	}
	_ = s.reports.Encode(Report{Kind: Started, PID: s.pid}) // nobody to tell: the orders end then
	children, orders := make(chan childEvent), make(chan order)
	go reap(children)
	go read(pipe, orders)
	return s.run(children, orders)
}

func notStarted(err error) Report {
	r := Report{Kind: NotStarted, Status: 126, Reason: err.Error()}
	var look *exec.Error
	if errors.As(err, &look) {
		r.Reason = look.Err.Error()
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		r.Status = 127
	case errors.Is(err, exec.ErrDot):
		r.Status, r.Reason = 127, "it is in the working folder only: name it with ./"
	case errors.Is(err, syscall.ENOEXEC):
		r.Reason = "it is no program: a script begins with a line such as #!/bin/sh"
	}
	return r
}

func reap(events chan<- childEvent) {
	defer close(events)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == nil:
			events <- childEvent{pid, status}
		case !errors.Is(err, syscall.EINTR):
			return
		}
	}
}

func read(pipe *os.File, orders chan<- order) {
	defer close(orders)
	for decoder := json.NewDecoder(pipe); ; {
		var o order
		if decoder.Decode(&o) != nil {
			return
		}
		orders <- o
	}
}

func (s *supervisor) run(children <-chan childEvent, orders <-chan order) error {
	for {
		timer := time.NewTimer(s.pause(Now()))
		select {
		case e, ok := <-children:
			if !ok {
				children, s.alone = nil, true
			} else {
				s.child(e)
			}
		case o, ok := <-orders:
			if !ok {
				orders = nil
				s.end(0) // the program has died: nobody renews
			} else {
				s.order(o)
			}
		case <-timer.C:
		}
		timer.Stop()
		if done := s.look(Now()); done {
			return s.reports.Encode(Report{Kind: Ended, Status: s.status, Late: s.late, Left: s.left, Immune: s.immune()})
		}
	}
}

func (s *supervisor) pause(now time.Duration) time.Duration {
	switch {
	case s.ending || s.exited:
		return endingEvery
	case s.deadline > now:
		return min(s.deadline-now, lookEvery)
	}
	return 0
}

func (s *supervisor) child(e childEvent) {
	switch {
	case e.pid != s.pid:
	case e.status.Stopped():
		_ = s.reports.Encode(Report{Kind: Stopped, Signal: e.status.StopSignal()})
	case e.status.Signaled():
		s.exited, s.exitedAt, s.status = true, Now(), 128+int(e.status.Signal())
	default:
		s.exited, s.exitedAt, s.status = true, Now(), e.status.ExitStatus()
	}
}

func (s *supervisor) order(o order) {
	if o.Deadline > 0 {
		s.deadline = o.Deadline
	}
	if o.Signal > 0 && !s.exited {
		_ = unix.Kill(-s.pid, o.Signal)
	}
	if o.End {
		s.end(s.Grace)
	}
}

// look does what is due, and says whether all is over.
func (s *supervisor) look(now time.Duration) (done bool) {
	if s.exited && s.alone && s.groupEmpty() {
		return true
	}
	if now >= s.deadline && !s.late {
		s.late = true
		s.end(s.LastGrace)
	}
	switch {
	case s.ending && now >= s.killAt+patience:
		return true
	case s.ending && now >= s.killAt:
		s.signal(unix.SIGKILL)
	case s.exited && now >= s.exitedAt+settle && !s.ending:
		s.left = s.running()
		s.end(s.Grace)
	}
	return false
}

// end begins the end, or hastens it.
func (s *supervisor) end(grace time.Duration) {
	if at := Now() + grace; !s.ending || at < s.killAt {
		s.killAt = at
	}
	if !s.ending && grace > 0 {
		s.signal(unix.SIGTERM)
		s.signal(unix.SIGCONT) // a stopped process would not hear it
	}
	s.ending = true
}

// signal reaches the group, and the descendants that left it. The group's number can be somebody else's once its last member has been
// waited for.
func (s *supervisor) signal(signal syscall.Signal) {
	inGroup := !s.exited || !tracksDescendants
	for _, pid := range descendants() {
		switch group, err := unix.Getpgid(pid); {
		case err != nil:
		case group == s.pid:
			inGroup = true
		default:
			_ = unix.Kill(pid, signal)
		}
	}
	if inGroup {
		_ = unix.Kill(-s.pid, signal)
	}
}

func (s *supervisor) groupEmpty() bool {
	return tracksDescendants || unix.Kill(-s.pid, 0) != nil
}

func (s *supervisor) running() int {
	if s.alone && s.groupEmpty() {
		return 0
	}
	return max(len(descendants()), 1)
}

// immune counts what SIGKILL did not end.
func (s *supervisor) immune() int {
	if s.exited && s.alone && s.groupEmpty() {
		return 0
	}
	return s.running()
}
