//go:build unix

package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds each operation whose context has no nearer deadline.
const patience = time.Minute

// engine is what differs from one database to the next.
type engine struct {
	name      string
	args      func(folder string, port int) []string  // the command line, binary first
	ready     func(folder string, port, pid int) bool // does it, and nobody else, answer now?
	terminate os.Signal                               // asks for a graceful end
	transient []string                                // in the log of a failed start: try again
	sweep     string                                  // shell: removes what a killed server leaves outside $folder
}

// server is one private server process with its folder and port. Its methods may be called at the same time from several
// goroutines; they take turns.
type server struct {
	engine
	given  bool                // not ours: every fault answers ErrGiven
	folder string              // everything the server writes is in here
	owner  *syscall.Credential // the user it runs as; nil is our own
	port   int                 // 0 until the first start

	mu     sync.Mutex
	cmd    *exec.Cmd     // nil before the first start
	exited chan struct{} // closed when cmd has ended
	frozen bool
	closed bool
	keeper *undertaker
}

// Stop ends the server gracefully. A server that is not running stays so.
func (s *server) Stop(ctx context.Context) error {
	return s.locked(ctx, s.stop)
}

// Kill ends the server and all its child processes by SIGKILL, and returns when they are gone. What it had acknowledged
// must be there after Restart.
func (s *server) Kill(ctx context.Context) error {
	return s.locked(ctx, s.kill)
}

// Freeze stops the server and all its child processes where they stand (SIGSTOP): connections stay open, nothing answers.
func (s *server) Freeze(ctx context.Context) error {
	return s.locked(ctx, s.freeze)
}

// Thaw lets a frozen server go on. A server that is not frozen goes on anyway.
func (s *server) Thaw(ctx context.Context) error {
	return s.locked(ctx, func(context.Context) error { return s.thaw() })
}

// Restart starts the server again on the same data and port, after Stop or Kill; one that still runs is stopped first. It
// returns when the server answers.
func (s *server) Restart(ctx context.Context) error {
	return s.locked(ctx, func(ctx context.Context) error {
		if err := s.stop(ctx); err != nil {
			return err
		}
		return s.start(ctx)
	})
}

// Close ends the server and removes its folder. A second Close does nothing, and so does the Close of a given server.
func (s *server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given || s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(s.kill(ctx), s.keeper.dismiss())
}

func (s *server) locked(ctx context.Context, do func(context.Context) error) error {
	if s.given {
		return ErrGiven
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("testserver: %s is closed", s.name)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return do(ctx)
}

// open makes the folder and hires its undertaker.
func (s *server) open() (err error) {
	if s.folder, err = newFolder(s.name, s.owner); err != nil {
		return err
	}
	if s.keeper, err = hireUndertaker(s.folder, s.sweep); err != nil {
		return errors.Join(err, os.RemoveAll(s.folder))
	}
	return nil
}

// answers says whether a client can be served: running, and not frozen.
func (s *server) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running() && !s.frozen
}

func (s *server) running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// start runs the server until it answers. A port that was taken meanwhile, or shared memory that a killed server's last
// child still holds, is tried again: at first with another port, later with the same one, as clients know it.
func (s *server) start(ctx context.Context) error {
	first := s.port == 0
	var why string
	for {
		if first {
			port, err := freePort()
			if err != nil {
				return err
			}
			s.port = port
		}
		said, err := s.startOnce(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || why == "" {
			why = said // the last try may be cut short before it says why
		}
		passing := slices.ContainsFunc(s.transient, func(part string) bool { return strings.Contains(said, part) })
		if !passing || !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("testserver: start %s: %w\n%s", s.name, err, why)
		}
	}
}

// startOnce also returns what the server wrote to its log.
func (s *server) startOnce(ctx context.Context) (said string, err error) {
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	cmd := s.command(s.args(s.folder, s.port)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	s.cmd, s.exited, s.frozen = cmd, exited, false
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
		runtime.KeepAlive(s) // a caller who keeps only the URL keeps the server: else the collector would close the undertaker's pipe
	}()
	for !s.ready(s.folder, s.port, cmd.Process.Pid) {
		select {
		case <-exited:
			text, _ := io.ReadAll(io.NewSectionReader(log, before, 1<<20))
			return string(text), errors.New("it ended while starting")
		case <-ctx.Done():
			err := errors.Join(context.Cause(ctx), s.kill(context.WithoutCancel(ctx)))
			text, _ := io.ReadAll(io.NewSectionReader(log, before, 1<<20))
			return string(text), err
		case <-time.After(5 * time.Millisecond):
		}
	}
	return "", nil
}

// command prepares a program of the engine: as the server's user, in a session of its own so that the terminal's Ctrl-C
// does not reach it, in the server's folder, and with nothing of our environment that could change what it does.
func (s *server) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.folder, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.owner}
	return cmd
}

// run runs a program of the engine to its end; when the context ends, the program is killed with what it started.
func (s *server) run(ctx context.Context, args ...string) error {
	var said bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("testserver: %s: %w", args[0], err)
	}
	unwatch := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer unwatch()
	if err := cmd.Wait(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("testserver: %s: %w\n%s", args[0], err, said.String()))
	}
	return nil
}

func (s *server) stop(ctx context.Context) error {
	if !s.running() {
		return nil
	}
	if err := s.thaw(); err != nil {
		return err
	}
	if err := s.cmd.Process.Signal(s.terminate); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testserver: stop %s: %w", s.name, err)
	}
	select {
	case <-s.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("testserver: stop %s: %w", s.name, context.Cause(ctx))
	}
}

// kill ends the parent first, so that it starts no more children, and then whoever is left. A group kill would not do:
// every child of PostgreSQL leads a process group of its own.
func (s *server) kill(ctx context.Context) error {
	if s.running() {
		_ = s.cmd.Process.Kill() // it may have ended just now
		<-s.exited
	}
	s.frozen = false
	for {
		pids, err := processesIn(s.folder)
		if err != nil {
			return fmt.Errorf("testserver: kill %s: %w", s.name, err)
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return fmt.Errorf("testserver: kill %s: processes %v do not end: %w", s.name, pids, context.Cause(ctx))
		}
	}
}

// freeze stops the parent first, so that it starts no more children, and then lists until nobody new is found.
func (s *server) freeze(context.Context) error {
	if !s.running() {
		return fmt.Errorf("testserver: freeze %s: it is not running", s.name)
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("testserver: freeze %s: %w", s.name, err)
	}
	s.frozen = true
	stopped := map[int]bool{}
	for more := true; more; {
		more = false
		pids, err := processesIn(s.folder)
		if err != nil {
			return fmt.Errorf("testserver: freeze %s: %w", s.name, err)
		}
		for _, pid := range pids {
			if !stopped[pid] {
				_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended just now
				stopped[pid], more = true, true
			}
		}
	}
	return nil
}

func (s *server) thaw() error {
	if !s.frozen || !s.running() {
		return nil
	}
	pids, err := processesIn(s.folder)
	if err != nil {
		return fmt.Errorf("testserver: thaw %s: %w", s.name, err)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
	}
	s.frozen = false
	return nil
}

// freePort finds a port on the loopback that nobody listens on now. It is taken from below the range that the kernel hands
// to clients: while a killed server is down, nobody's outgoing connection can sit on its port, nor connect to itself there.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 15000 + rand.IntN(15000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("testserver: no free port: %w", err)
}

// sleep reports whether the time passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
