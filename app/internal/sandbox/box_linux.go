package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setupTimeout bounds what happens before the payload starts. It only ends a sandbox that hangs.
const setupTimeout = 20 * time.Second

// run is one execution of a command in namespaces.
type run struct {
	box    *Box
	cmd    Command
	group  *group // nil in ModeUserns
	init   *exec.Cmd
	stop   stopper
	stdout capture
	stderr capture

	started bool
	begun   time.Time     // when the start was reported
	took    time.Duration // from then until the box was dead
	exit    *record
	noExec  syscall.Errno
	failed  string
	usage   record // the last one seen: its CPU and Memory
}

func (b *Box) runIsolated(ctx context.Context, c Command) (res Result, err error) {
	// The kernel ties the parent-death signal to the thread that forked, so this goroutine keeps it until the end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &run{box: b, cmd: c}
	if h := b.sb.plat.groups; h != nil {
		name := b.sb.name + "-" + strconv.FormatInt(b.sb.groups.Add(1), 10)
		if r.group, err = h.newGroup(name, c.Limits); err != nil {
			return res, err
		}
		defer func() {
			// Too late to change the result, which stands.
			if err := r.group.destroy(); err != nil {
				b.sb.log.Warn("sandbox: clean-up", "error", err)
			}
		}()
	}
	stdin, closeStdin, err := feed(c.Stdin)
	if err != nil {
		return res, err
	}
	defer closeStdin()
	if err := r.start(ctx, stdin); err != nil {
		return res, err
	}
	return r.result()
}

// start launches the init process and returns when it, and with it the whole box, is dead.
func (r *run) start(ctx context.Context, stdin *os.File) error {
	specR, specW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer specR.Close()
	defer specW.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer statusR.Close()
	defer statusW.Close()

	over := func() { r.stop.stop(OutputLimit) }
	r.stdout = capture{limit: r.cmd.Limits.Output, pass: r.cmd.Stdout, over: over}
	r.stderr = capture{limit: r.cmd.Limits.Stderr, over: over}
	r.init = r.initCommand(stdin, specR, statusW)
	r.stop.kill = func() { _ = r.init.Process.Kill() }
	if err := r.init.Start(); err != nil {
		return fmt.Errorf("start init process: %w", err)
	}
	specR.Close()
	statusW.Close()
	records := make(chan record, 16)
	go readRecords(statusR, records)
	if err := sendSpec(specW, r.spec()); err != nil {
		r.stop.abort(fmt.Errorf("send spec: %w", err))
	}
	r.watch(ctx, records)
	// Wait's errors tell of the exit code, which is always 0 or a kill, and of streams, which capture does not fail.
	_ = r.init.Wait()
	if r.started {
		r.took = time.Since(r.begun)
	}
	return nil
}

func (r *run) initCommand(stdin, spec, status *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{initName}
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &r.stdout, &r.stderr
	cmd.ExtraFiles = []*os.File{spec, status}
	// By then everything that could write is dead; this is for a Command.Stdout that blocks.
	cmd.WaitDelay = 10 * time.Second
	sys := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if r.group != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, r.group.files...)
	} else {
		userNamespace(sys, r.box.uid)
	}
	cmd.SysProcAttr = sys
	return cmd
}

// userNamespace maps the box's user, and nobody else, to insideUser. The init process keeps the capabilities it needs
// inside through the ambient set: as a user other than root it would lose them at its exec.
func userNamespace(sys *syscall.SysProcAttr, user int) {
	group, root := os.Getegid(), os.Geteuid() == 0
	if root {
		group = user
	}
	sys.Cloneflags |= unix.CLONE_NEWUSER
	sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: insideUser, HostID: user, Size: 1}}
	sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: insideUser, HostID: group, Size: 1}}
	sys.GidMappingsEnableSetgroups = root
	sys.Credential = &syscall.Credential{Uid: insideUser, Gid: insideUser, NoSetGroups: !root}
	sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
}

func (r *run) spec() *spec {
	s := &spec{
		Root:     filepath.Join(r.box.dir, rootName),
		Work:     filepath.Join(r.box.dir, workName),
		Writable: r.cmd.WritableDir,
		ReadOnly: slices.Concat(r.box.sb.readOnly, r.cmd.ReadOnly),
		Args:     r.cmd.Args,
		Env:      r.cmd.Env,
		Limits:   r.cmd.Limits,
		Userns:   r.group == nil,
		User:     insideUser,
	}
	if r.group != nil {
		s.User = r.box.uid
		s.Join, s.Leave = r.group.join, len(r.group.files)-r.group.join
	}
	return s
}

// watch enforces the limits until the init process is gone.
func (r *run) watch(ctx context.Context, records <-chan record) {
	deadline := time.NewTimer(setupTimeout) // later: the wall limit
	defer deadline.Stop()
	poll := time.NewTimer(time.Hour)
	poll.Stop()
	defer poll.Stop()
	done := ctx.Done()
	for {
		select {
		case rec, more := <-records:
			if !more {
				return
			}
			if r.take(rec) {
				deadline.Reset(r.cmd.Limits.Wall)
				if r.group != nil {
					poll.Reset(r.checkCPU())
				}
			}
		case <-poll.C:
			poll.Reset(r.checkCPU())
		case <-deadline.C:
			if r.started {
				r.stop.stop(WallLimit)
			} else {
				r.stop.abort(errors.New("the init process did not start the program in time"))
			}
		case <-done:
			done = nil
			r.stop.abort(context.Cause(ctx))
		}
	}
}

// take handles a message of the init process and says whether it tells that the payload started.
func (r *run) take(rec record) bool {
	switch rec.Kind {
	case recStarted:
		r.started, r.begun = true, time.Now()
		if r.group != nil {
			if err := r.group.settle(); err != nil {
				r.stop.abort(err)
			}
		}
		return true
	case recUsage:
		r.usage = rec
		if rec.Memory > r.cmd.Limits.Memory {
			r.stop.stop(MemoryLimit)
		} else if rec.CPU > r.cmd.Limits.CPU {
			r.stop.stop(CPULimit)
		}
	case recExit:
		r.exit, r.usage = &rec, rec
	case recNoExec:
		r.noExec = syscall.Errno(rec.Status)
	case recFailed:
		r.failed = rec.Text
	}
	return false
}

// checkCPU kills at the CPU limit, or says when it can be reached at the earliest, with all processors busy.
func (r *run) checkCPU() time.Duration {
	used, err := r.group.cpuTime()
	if err != nil {
		r.stop.abort(err)
		return time.Hour
	}
	left := r.cmd.Limits.CPU - used
	if left < 0 {
		r.stop.stop(CPULimit)
		return time.Hour
	}
	return max(left/time.Duration(runtime.NumCPU()), 2*time.Millisecond)
}

// result classifies a finished run. All timers are stopped and all processes dead.
func (r *run) result() (Result, error) {
	outcome, err := r.stop.reason()
	switch {
	case err != nil:
		return Result{}, err
	case r.failed != "":
		return Result{}, errors.New(r.failed)
	}
	res := Result{
		Stdout:    r.stdout.kept,
		Stderr:    r.stderr.kept,
		Truncated: r.stdout.truncated() || r.stderr.truncated(),
		Wall:      r.took,
		CPU:       r.usage.CPU,
		Memory:    r.usage.Memory,
	}
	var ooms uint64
	if r.group != nil {
		var errs [3]error
		res.CPU, errs[0] = r.group.cpuTime()
		res.Memory, errs[1] = r.group.memory()
		ooms, errs[2] = r.group.oomKills()
		if err := errors.Join(errs[:]...); err != nil {
			return Result{}, fmt.Errorf("read cgroup: %w", err)
		}
	}
	if r.exit != nil {
		res.Wall = r.exit.Wall // as seen from close by
	}
	return r.classify(res, outcome, ooms)
}

func (r *run) classify(res Result, killed Outcome, ooms uint64) (Result, error) {
	lim := r.cmd.Limits
	switch {
	case killed != 0:
		res.Outcome = killed
	case ooms > 0, r.group == nil && res.Memory > lim.Memory:
		res.Outcome = MemoryLimit
	case r.noExec != 0:
		res.Outcome, res.ExitCode = Exited, 126
		if r.noExec == syscall.ENOENT {
			res.ExitCode = 127
		}
		res.Stderr = fmt.Appendf(res.Stderr, "%s: %v\n", r.cmd.Args[0], r.noExec)
	case r.exit == nil:
		return Result{}, fmt.Errorf("the init process ended without a report: %v", r.init.ProcessState)
	case res.CPU > lim.CPU:
		res.Outcome = CPULimit
	case res.Wall > lim.Wall:
		res.Outcome = WallLimit
	default:
		status := syscall.WaitStatus(r.exit.Status)
		if !status.Signaled() {
			res.Outcome, res.ExitCode = Exited, status.ExitStatus()
			break
		}
		switch status.Signal() {
		case syscall.SIGXCPU:
			res.Outcome = CPULimit
		case syscall.SIGXFSZ:
			res.Outcome = OutputLimit
		default:
			res.Outcome, res.Signal = Signaled, status.Signal()
		}
	}
	return res, nil
}
