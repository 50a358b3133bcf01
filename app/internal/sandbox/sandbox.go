// Package sandbox compiles and runs programs nobody vouches for.
//
// A Sandbox hands out boxes. A Box is a work folder plus the right to run commands over it, each under limits and cut
// off from the host. On Linux a command runs in fresh mount, process, network, IPC, UTS and cgroup namespaces, under a
// seccomp filter, without capabilities and never as root. What holds its limits depends on the Mode:
//
//   - ModeCgroup: root with writable cgroups (v1 or v2). Memory, CPU time and process count are the kernel's own figures.
//   - ModeUserns: no cgroups. CPU time and memory are sampled every 5 ms over the box's processes and there are rlimits
//     underneath. Weaker in these ways: a program may overshoot its memory between two samples, or end within one, and
//     is then known by its largest process only; what it parks in /tmp (capped at 256 MiB) or in unmapped shared memory
//     is not counted; shared pages count once per process; and the CPU time of children that nobody waits for is lost
//     when they end, so that such a program is stopped by the wall clock.
//   - ModeNone: a process group, rlimits and the wall clock. It keeps nothing away from the program, so it runs only
//     with Options.AllowUnsafe.
//
// The sandbox starts itself again as the first process of each box. So main must call Main first of all, and a test
// binary must call it from TestMain.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// Mode is how strongly commands are held.
type Mode string

// The modes, strongest first. The package comment says what each one rests on.
const (
	ModeCgroup Mode = "cgroup"
	ModeUserns Mode = "userns"
	ModeNone   Mode = "none"
)

// WorkDir is where a command finds its box's work folder, and where it starts. In ModeNone the folder stays where it is
// on the host, so commands that are to run in every mode use paths relative to it.
const WorkDir = "/box"

// ErrUnsafe is returned by New when only ModeNone is left and Options.AllowUnsafe is not set.
var ErrUnsafe = errors.New("no sandbox on this machine")

// Report is what Detect found.
type Report struct {
	// Mode is the strongest mode that works here.
	Mode Mode
	// Reasons says, for each stronger mode, in one line why it does not work and what would mend it.
	Reasons []string
}

// String is one line for a start-up log.
func (r Report) String() string {
	if len(r.Reasons) == 0 {
		return "sandbox mode " + string(r.Mode)
	}
	return "sandbox mode " + string(r.Mode) + " (" + strings.Join(r.Reasons, "; ") + ")"
}

// Detect finds the strongest mode by running /bin/true in a box of each, strongest first, and leaves nothing behind.
func Detect(ctx context.Context) Report { return detect(ctx, "") }

func detect(ctx context.Context, dir string) Report {
	var r Report
	for _, m := range []Mode{ModeCgroup, ModeUserns} {
		err := selfTest(ctx, m, dir)
		if err == nil {
			r.Mode = m
			return r
		}
		r.Reasons = append(r.Reasons, fmt.Sprintf("%s: %s", m, oneLine(err)))
	}
	r.Mode = ModeNone
	return r
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// selfTest runs a harmless command in the given mode, in a sandbox of its own.
func selfTest(ctx context.Context, m Mode, dir string) error {
	if err := modeReady(m); err != nil {
		return err
	}
	s, err := open(&Options{Mode: m, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := s.NewBox()
	if err != nil {
		return err
	}
	defer b.Close()
	r, err := b.Run(ctx, Command{Args: []string{"/bin/true"}})
	if err != nil {
		return fmt.Errorf("trial run: %w", modeMend(m, err))
	}
	if r.Outcome != Exited || r.ExitCode != 0 {
		return fmt.Errorf("trial run of /bin/true: %s, exit code %d", r.Outcome, r.ExitCode)
	}
	return nil
}

// Options tells New what to build.
type Options struct {
	// Mode asks for one mode; empty takes the strongest that Detect finds.
	Mode Mode
	// AllowUnsafe lets ModeNone run programs. They can then do whatever the calling user can.
	AllowUnsafe bool
	// Dir is where work folders go; empty is the system's temporary folder. In ModeUserns under root the folders above
	// it must be searchable by everyone.
	Dir string
	// ReadOnly lists host folders and files that every command sees at the same path, read-only, beside the system's own
	// (/usr, /bin, /sbin, /lib*, /etc/alternatives, /etc/ld.so.cache): toolchains that live elsewhere. Unused in ModeNone.
	ReadOnly []string
	// Log takes clean-up troubles, which never change a result; nil is slog.Default.
	Log *slog.Logger
}

// Sandbox makes boxes. It is safe for concurrent use.
type Sandbox struct {
	mode     Mode
	dir      string
	name     string // unique among all sandboxes; starts with the owner
	readOnly []string
	log      *slog.Logger
	plat     platform
	boxes    atomic.Int64
	groups   atomic.Int64
}

// New checks that the mode works, removes the cgroups and work folders that a killed process left behind, and returns a
// Sandbox. Leftovers of a live process, or of one in another PID namespace, are not touched. If only ModeNone is left and
// that is not allowed, it returns an error that wraps ErrUnsafe and states the mend.
func New(ctx context.Context, opt *Options) (*Sandbox, error) {
	o := Options{}
	if opt != nil {
		o = *opt
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	var reasons []string
	switch o.Mode {
	case "":
		r := detect(ctx, o.Dir)
		o.Mode, reasons = r.Mode, r.Reasons
		o.Log.Info(r.String())
	case ModeCgroup, ModeUserns:
		if err := selfTest(ctx, o.Mode, o.Dir); err != nil {
			return nil, fmt.Errorf("sandbox mode %s does not work here: %w", o.Mode, err)
		}
	case ModeNone:
	default:
		return nil, fmt.Errorf("unknown sandbox mode %q: want %s, %s or %s", o.Mode, ModeCgroup, ModeUserns, ModeNone)
	}
	if o.Mode == ModeNone && !o.AllowUnsafe {
		return nil, refusal(reasons)
	}
	for _, p := range o.ReadOnly {
		if err := checkBind(p); err != nil {
			return nil, err
		}
		if _, err := os.Stat(p); err != nil {
			return nil, fmt.Errorf("read-only path: %w", err)
		}
	}
	return open(&o)
}

// refusal is the error for a machine on which programs may not be run.
func refusal(reasons []string) error {
	mend := "use Linux as root with writable cgroups, or allow user namespaces, or allow running without a sandbox (only for programs you trust)"
	if len(reasons) == 0 {
		return fmt.Errorf("%w: mode %s was asked for; %s", ErrUnsafe, ModeNone, mend)
	}
	return fmt.Errorf("%w: %s; %s", ErrUnsafe, strings.Join(reasons, "; "), mend)
}

// open builds a Sandbox without trying the mode.
func open(o *Options) (*Sandbox, error) {
	own, err := self()
	if err != nil {
		return nil, fmt.Errorf("sandbox: own process: %w", err)
	}
	top := cmp.Or(o.Dir, os.TempDir())
	if top, err = filepath.Abs(top); err != nil {
		return nil, fmt.Errorf("sandbox folder: %w", err)
	}
	if err := os.MkdirAll(top, 0o755); err != nil {
		return nil, fmt.Errorf("sandbox folder: %w", err)
	}
	sweepFolders(top, o.Log)
	s := &Sandbox{mode: o.Mode, readOnly: slices.Clone(o.ReadOnly), log: o.Log}
	if err := s.plat.open(s.mode, o.Log); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(top, folderPrefix+own.String()+"-"); err != nil {
		return nil, fmt.Errorf("sandbox folder: %w", err)
	}
	s.name = strings.TrimPrefix(filepath.Base(s.dir), folderPrefix)
	// Boxes of different users live below it: they may pass through, but not list it.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return nil, fmt.Errorf("sandbox folder: %w", err)
	}
	return s, nil
}

// Mode says which mode the commands run in.
func (s *Sandbox) Mode() Mode { return s.mode }

// Close removes the sandbox's folder, with boxes that were not closed, and its cgroup parent if that is empty. No Run may
// be under way. Calling it again does nothing.
func (s *Sandbox) Close() error {
	s.plat.close(s.name)
	return removeTree(s.dir)
}
