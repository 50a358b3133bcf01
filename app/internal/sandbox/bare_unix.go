//go:build linux || darwin

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// bareSpec is what the stage that sets rlimits is told, in its second argument.
type bareSpec struct {
	Args   []string
	Env    []string
	Limits Limits
}

// runBare runs a command in ModeNone: as the calling user, with rlimits, a process group to kill and the wall clock.
func (b *Box) runBare(ctx context.Context, c Command) (Result, error) {
	text, err := json.Marshal(bareSpec{c.Args, c.Env, c.Limits})
	if err != nil {
		return Result{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return Result{}, err
	}
	stdin, closeStdin, err := feed(c.Stdin)
	if err != nil {
		return Result{}, err
	}
	defer closeStdin()
	var stop stopper
	over := func() { stop.stop(OutputLimit) }
	stdout := capture{limit: c.Limits.Output, pass: c.Stdout, over: over}
	stderr := capture{limit: c.Limits.Stderr, over: over}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{bareName, string(text)}, Env: []string{}, Dir: filepath.Join(b.dir, workName),
		Stdin: stdin, Stdout: &stdout, Stderr: &stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   time.Second, // a process that left the group may hold the streams
	}
	stop.kill = func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	begun := time.Now()
	wall := time.AfterFunc(c.Limits.Wall, func() { stop.stop(WallLimit) })
	cancel := context.AfterFunc(ctx, func() { stop.abort(context.Cause(ctx)) })
	state, err := cmd.Process.Wait()
	took := time.Since(begun)
	wall.Stop()
	cancel()
	if err != nil {
		return Result{}, err
	}
	// The group outlives its leader if the program left children: they hold the streams and may not go on.
	stop.kill()
	_ = cmd.Wait() // only the streams are left to wait for; its error is that the process was waited for already
	outcome, err := stop.reason()
	if err != nil {
		return Result{}, err
	}
	res := Result{
		Outcome: outcome, Wall: took, CPU: state.UserTime() + state.SystemTime(), Memory: maxMemory(state),
		Stdout: stdout.kept, Stderr: stderr.kept, Truncated: stdout.truncated() || stderr.truncated(),
	}
	if res.Outcome == 0 {
		classifyBare(&res, state, c)
	}
	return res, nil
}

func classifyBare(res *Result, state *os.ProcessState, c Command) {
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case res.CPU > c.Limits.CPU, status.Signaled() && status.Signal() == syscall.SIGXCPU:
		res.Outcome = CPULimit
	case status.Signaled() && status.Signal() == syscall.SIGXFSZ:
		res.Outcome = OutputLimit
	case status.Signaled():
		res.Outcome, res.Signal = Signaled, status.Signal()
	default:
		res.Outcome, res.ExitCode = Exited, status.ExitStatus()
	}
}

// runBareStage sets the rlimits and becomes the program. Its failures look like the program's: a shell's exit codes.
func runBareStage() {
	var s bareSpec
	err := errors.New("no spec")
	if len(os.Args) == 2 {
		err = json.NewDecoder(strings.NewReader(os.Args[1])).Decode(&s)
	}
	if err == nil {
		for what, v := range map[int]uint64{
			syscall.RLIMIT_CORE:  0,
			syscall.RLIMIT_FSIZE: uint64(s.Limits.FileSize),
			syscall.RLIMIT_CPU:   uint64(math.Ceil(s.Limits.CPU.Seconds())),
		} {
			lowerLimit(what, v)
		}
		err = syscall.Exec(s.Args[0], s.Args, s.Env)
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, os.ErrNotExist) {
		os.Exit(127)
	}
	os.Exit(126)
}

// lowerLimit does what the system allows: in ModeNone limits are a courtesy.
func lowerLimit(what int, v uint64) {
	var now syscall.Rlimit
	if syscall.Getrlimit(what, &now) == nil && v < uint64(now.Max) {
		now.Cur = v
		now.Max = v
		if what == syscall.RLIMIT_CPU {
			now.Max++ // at the soft limit comes SIGXCPU, which tells; at the hard one SIGKILL
		}
		_ = syscall.Setrlimit(what, &now)
	}
}

// maxMemory is the largest resident size the process or a child it waited for had.
func maxMemory(state *os.ProcessState) int64 {
	ru, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return ru.Maxrss // bytes there, KiB elsewhere
	}
	return ru.Maxrss * 1024
}

// openNoFollow refuses a link and does not wait for a pipe's other end.
const openNoFollow = syscall.O_NONBLOCK | syscall.O_NOFOLLOW
