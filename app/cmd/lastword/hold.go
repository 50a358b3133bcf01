package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/supervise"
)

const releaseTime = 5 * time.Second

// holding is a lease held for a command. It renews by itself, not through Store.WithLease, because the supervisor has to hear of each
// renewal: it ends the command before the lease ends, even when this process is frozen.
type holding struct {
	run     *runCommand
	lease   *lastword.Lease
	log     *slog.Logger
	signals <-chan os.Signal

	child    *supervise.Child
	terminal *supervise.Terminal
	group    int
	renewed  chan renewal
	next     *time.Timer
	lost     error
	end      supervise.Report
}

type renewal struct {
	asked time.Duration // on supervise.Now
	err   error
}

// lastGrace is what SIGTERM is given where the end of the lease is near.
func (h *holding) lastGrace() time.Duration { return min(h.run.Grace, h.run.TTL/3) }

// deadline is when the command has to be told to end, if no renewal follows the one that was asked for at that time. A tenth of the TTL
// stays for the difference between two clocks.
func (h *holding) deadline(asked time.Duration) time.Duration {
	return asked + h.run.TTL - h.run.TTL/10 - h.lastGrace()
}

func (h *holding) hold(ctx context.Context, p *program, env []string) error {
	// The grant's own time is not known to us: it may have waited. A renewal's is.
	first := h.renew(ctx)
	if first.err != nil {
		h.release(ctx)
		return lost(first.err)
	}
	command := supervise.Command{Self: []string{"supervise"}, Args: h.run.Command, Env: env, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr,
		Grace: h.run.Grace, LastGrace: h.lastGrace()}
	child, err := supervise.Start(command, h.deadline(first.asked))
	if err != nil {
		h.release(ctx)
		return err
	}
	h.child, h.terminal, h.renewed, h.next = child, supervise.OpenTerminal(), make(chan renewal, 1), time.NewTimer(h.run.TTL/3)
	renewing, stop := context.WithCancel(ctx)
	h.watch(renewing)
	stop()
	h.terminal.Close()
	return h.outcome(ctx)
}

// watch returns when the command has ended.
func (h *holding) watch(ctx context.Context) {
	for {
		select {
		case report, ok := <-h.child.Reports():
			if !ok {
				return
			}
			h.report(report)
		case s := <-h.signals:
			if number, ok := s.(syscall.Signal); ok {
				h.signal(number)
			}
		case <-h.next.C:
			go func() { h.renewed <- h.renew(ctx) }()
		case r := <-h.renewed:
			h.renewal(r)
		}
	}
}

func (h *holding) report(r supervise.Report) {
	switch r.Kind {
	case supervise.Started:
		h.group = r.PID
	case supervise.Stopped:
		h.terminal.Stopped(h.child, h.group, r.Signal)
	default:
		h.end = r
	}
}

func (h *holding) signal(number syscall.Signal) {
	if number == unix.SIGTSTP {
		h.terminal.Suspend(h.child)
		return
	}
	h.child.Signal(number)
}

// renew asks once, for at most a third of the TTL: one that hangs is not worth waiting for.
func (h *holding) renew(ctx context.Context) renewal {
	ctx, cancel := context.WithTimeout(ctx, h.run.TTL/3)
	defer cancel()
	r := renewal{asked: supervise.Now()}
	_, r.err = h.lease.Renew(ctx)
	return r
}

func (h *holding) renewal(r renewal) {
	switch {
	case h.lost != nil:
	case r.err == nil:
		h.child.Deadline(h.deadline(r.asked))
		h.next.Reset(max(0, r.asked+h.run.TTL/3-supervise.Now()))
	case errors.Is(r.err, lastword.ErrFenced), errors.Is(r.err, lastword.ErrExpired):
		h.lost = r.err
		h.child.End()
	default:
		h.log.Warn("a renewal failed; it is tried again", "error", r.err)
		h.next.Reset(h.run.TTL / 12)
	}
}

// outcome releases the lease and says how it went.
func (h *holding) outcome(ctx context.Context) error {
	name := h.run.Name
	if h.end.Left > 0 {
		h.log.Warn("the command left processes running, which were ended", "lease", name, "processes", h.end.Left)
	}
	if h.lost == nil && h.end.Late {
		h.lost = errors.New("no renewal got through in time")
	}
	if h.end.Immune > 0 {
		return fmt.Errorf("lease %q: %d processes of the command could not be ended; the lease is not released and ends by itself (end them: ps -ef)", name, h.end.Immune)
	}
	if released := h.release(ctx); !released && h.lost == nil {
		h.lost = errors.New("it was taken over before the command ended")
	}
	switch {
	case h.lost != nil:
		return &exitError{status: exitLost, err: fmt.Errorf("lease %q was lost while its command ran; the command has ended: %w", name, h.lost)}
	case h.end.Kind == supervise.NotStarted:
		return &exitError{status: h.end.Status, err: fmt.Errorf("%s cannot be started: %s", h.run.Command[0], h.end.Reason)}
	case h.end.Kind == supervise.Lost:
		return fmt.Errorf("lease %q: the process that supervised the command was killed, and the command with it", name)
	case h.end.Status != 0:
		return &exitError{status: h.end.Status}
	}
	return nil
}

// release returns false when the lease was another's already. One that cannot be released ends by itself.
func (h *holding) release(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	released, err := h.lease.Release(ctx)
	if err != nil {
		h.log.Warn("the lease could not be released; it ends by itself", "lease", h.lease.Token(), "error", err)
	}
	return released || err != nil
}
