package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"
	"time"
)

// Command is one program to run in a box.
type Command struct {
	// Args is the program and its arguments. The program is an absolute path, or one relative to the work folder
	// ("./prog"); PATH is not searched.
	Args []string
	// Env is the whole environment, "KEY=value" each; nil is a small default (PATH, HOME, LANG).
	Env []string
	// Stdin is fed unchanged; nil is an empty input. An *os.File is handed over as it is; any other reader is copied, and
	// one that blocks for ever keeps a goroutine, but not Run, until it returns.
	Stdin io.Reader
	// Stdout, if set, gets the standard output as it comes, at most Limits.Output bytes, and Result.Stdout stays empty.
	// Its errors are ignored. It must not block for ever: if it is a pipe to another program, close the reading end when
	// that program is done.
	Stdout io.Writer
	// Limits bound the run; zero fields take the default.
	Limits Limits
	// WritableDir lets the command write in its work folder. Its scratch space in /tmp is writable either way.
	WritableDir bool
	// ReadOnly adds to Options.ReadOnly for this command.
	ReadOnly []string
}

// Limits bound one run, all its processes together unless said otherwise. A zero field takes the value in brackets, so
// that nothing runs unbounded by oversight.
type Limits struct {
	CPU       time.Duration // user + system time [10 s]
	Wall      time.Duration // from the program's start [3 × CPU + 1 s]
	Memory    int64         // bytes; also the stack limit [512 MiB]
	Processes int           // processes and threads alive at once [64]
	Output    int64         // bytes to standard output [16 MiB]
	Stderr    int64         // bytes to standard error [64 KiB]
	FileSize  int64         // bytes of any one file written [64 MiB]
}

func (l Limits) withDefaults() Limits {
	l.CPU = cmp.Or(l.CPU, 10*time.Second)
	l.Wall = cmp.Or(l.Wall, 3*l.CPU+time.Second)
	l.Memory = cmp.Or(l.Memory, 512<<20)
	l.Processes = cmp.Or(l.Processes, 64)
	l.Output = cmp.Or(l.Output, 16<<20)
	l.Stderr = cmp.Or(l.Stderr, 64<<10)
	l.FileSize = cmp.Or(l.FileSize, 64<<20)
	return l
}

// Outcome is how a run ended.
type Outcome int

// The outcomes. If several apply, the sandbox's own reason for killing comes first, then running out of memory, then
// the time limits as measured at the end, then the signal, then the exit code.
const (
	Exited      Outcome = iota + 1 // by itself, with Result.ExitCode
	Signaled                       // by Result.Signal, not sent by the sandbox
	CPULimit                       // used more than Limits.CPU
	WallLimit                      // took longer than Limits.Wall
	MemoryLimit                    // wanted more than Limits.Memory
	OutputLimit                    // wrote more than Limits.Output, Stderr or FileSize
)

func (o Outcome) String() string {
	switch o {
	case Exited:
		return "exited"
	case Signaled:
		return "signaled"
	case CPULimit:
		return "cpu limit"
	case WallLimit:
		return "wall limit"
	case MemoryLimit:
		return "memory limit"
	case OutputLimit:
		return "output limit"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// Result is what a program did.
type Result struct {
	Outcome  Outcome
	ExitCode int            // if Exited
	Signal   syscall.Signal // if Signaled
	CPU      time.Duration  // user + system time of all processes
	Wall     time.Duration  // from start to end
	Memory   int64          // peak in bytes; in ModeCgroup with the page cache it filled
	Stdout   []byte         // at most Limits.Output bytes
	Stderr   []byte         // at most Limits.Stderr bytes
	// Truncated says that Stdout or Stderr is cut at its limit.
	Truncated bool
}

// check refuses commands that no box could run.
func (c *Command) check() error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return errors.New("command without a program")
	}
	if p := c.Args[0]; !path.IsAbs(p) && !strings.HasPrefix(p, "./") {
		return fmt.Errorf("program %q is neither an absolute path nor starts with ./", p)
	}
	l := c.Limits
	if l.CPU < 0 || l.Wall < 0 || l.Memory < 0 || l.Processes < 0 || l.Output < 0 || l.Stderr < 0 || l.FileSize < 0 {
		return errors.New("negative limit")
	}
	for _, p := range c.ReadOnly {
		if err := checkBind(p); err != nil {
			return err
		}
	}
	return nil
}

// checkBind refuses read-only paths that would hide or be hidden by the box's own mounts.
func checkBind(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return fmt.Errorf("read-only path %q is not a clean absolute path below /", p)
	}
	for _, own := range []string{"/proc", "/dev", "/tmp", "/sys", "/etc", WorkDir} {
		if p == own || own != "/etc" && strings.HasPrefix(p, own+"/") {
			return fmt.Errorf("read-only path %q: the box has its own %s", p, own)
		}
	}
	return nil
}

// ownProgram says whether the program is a file of the work folder, which the payload may have written itself: if such
// a one cannot be executed, that is the payload's failure and not the sandbox's.
func ownProgram(arg0 string) bool {
	return !path.IsAbs(arg0) || strings.HasPrefix(path.Clean(arg0), WorkDir+"/")
}

func defaultEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}
}
