package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/supervise"
)

type runCommand struct {
	storeFlags
	Name     string        `arg:"" help:"Name of the lease."`
	Command  []string      `arg:"" name:"command" help:"The command and its arguments, after --."`
	TTL      time.Duration `default:"30s" help:"How long the lease lives without a renewal; it is renewed every third of that (${default})."`
	Wait     time.Duration `default:"0s" help:"How long to wait for a held lease; negative waits without end (${default})."`
	Label    string        `placeholder:"TEXT" help:"Shown to others beside host and process."`
	HeldExit int           `default:"75" placeholder:"N" help:"Exit status when another holds the lease; 0 for timers (${default})."`
	Grace    time.Duration `default:"5s" help:"Time between SIGTERM and SIGKILL when the lease is lost (${default})."`
}

// Help is shown by --help.
func (*runCommand) Help() string {
	return `The command finds FENCE_TOKEN (the whole token, a secret), FENCE_EPOCH and LEASE_NAME in its environment, and LASTWORD_DB if a database was named.
SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to its process group.

The lease is released when nothing of the command runs any more: what it leaves in the background is ended with it. When the lease is lost, all of it gets SIGTERM, and SIGKILL after the
grace. When renewals do not get through, or lastword is stopped or suspended, SIGTERM comes early enough for SIGKILL to come before the lease ends. Killing lastword kills all of it.

Exit status: that of the command, or 128 and the number of the signal that ended it; 126 or 127 when it cannot be started; 75 when the lease is held (see --held-exit), 76 when it was lost, 1 for other failures.`
}

// passedOn are the signals that go to the command's group.
func passedOn() []os.Signal {
	return []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCONT}
}

// Run acquires the lease, runs the command and releases the lease.
func (r *runCommand) Run(ctx context.Context, p *program, c *commands) error {
	if r.HeldExit < 0 || r.HeldExit > 255 {
		return wrongUse("--held-exit %d: an exit status is 0 to 255", r.HeldExit)
	}
	if r.Grace < 0 {
		return wrongUse("--grace %v: it cannot be negative", r.Grace)
	}
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn() {
		if !signal.Ignored(s) { // by nohup, say
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	db, store, err := r.open(ctx, c.DB, lastword.Options{Log: log})
	if err != nil {
		return interrupted(ctx, signals, err)
	}
	defer db.Close()
	lease, err := r.acquire(ctx, store, log)
	if err := interrupted(ctx, signals, err); err != nil {
		if errors.Is(err, lastword.ErrHeld) && !isExit(err) {
			return &exitError{status: r.HeldExit, err: err}
		}
		return usage(err)
	}
	// The signal that ended ctx is passed on to the command; the lease is still to be renewed and released.
	h := &holding{run: r, lease: lease, log: log, signals: signals}
	return h.hold(context.WithoutCancel(ctx), p, r.environment(c, lease.Token()))
}

func (r *runCommand) acquire(ctx context.Context, store *lastword.Store, log *slog.Logger) (*lastword.Lease, error) {
	opts := lastword.LeaseOptions{TTL: r.TTL, Label: r.Label}
	lease, err := store.Acquire(ctx, r.Name, opts)
	var held *lastword.HeldError
	if !errors.As(err, &held) || r.Wait == 0 {
		return lease, err
	}
	log.Info("waiting for the lease", "lease", r.Name, "holder", held.Holder, "fence", held.Fence)
	opts.Wait = r.Wait
	return store.Acquire(ctx, r.Name, opts)
}

// interrupted turns an error that a signal caused into the exit status of that signal. The one that ended ctx reaches signals at about the
// same time.
func interrupted(ctx context.Context, signals <-chan os.Signal, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	patience := time.After(time.Second)
	for {
		select {
		case s := <-signals:
			if s == unix.SIGINT || s == unix.SIGTERM {
				number, _ := s.(syscall.Signal)
				return &exitError{status: 128 + int(number), err: err}
			}
		case <-patience:
			return err
		}
	}
}

func isExit(err error) bool {
	var exit *exitError
	return errors.As(err, &exit)
}

func (r *runCommand) environment(c *commands, token lastword.Token) []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name != "FENCE_TOKEN" && name != "FENCE_EPOCH" && name != "LEASE_NAME" && name != "LASTWORD_DB" && name != "LASTWORD_PREFIX" {
			env = append(env, entry)
		}
	}
	env = append(env, "FENCE_TOKEN="+token.String(), fmt.Sprintf("FENCE_EPOCH=%d", token.Epoch), "LEASE_NAME="+token.Name)
	if db, given := givenDatabase(c.DB); given {
		env = append(env, "LASTWORD_DB="+db)
	}
	if r.Prefix != "" {
		env = append(env, "LASTWORD_PREFIX="+r.Prefix)
	}
	return env
}

type superviseCommand struct {
	supervise.Flags
	Command []string `arg:""`
}

// Run is the process between lastword run and its command.
func (s *superviseCommand) Run() error { return supervise.Supervise(s.Flags, s.Command) }
