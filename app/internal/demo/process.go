package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lastword-go/lastword"
)

// message is one line that a process of the demo prints.
type message struct {
	Event   string `json:"event"` // holds, ready, wrote, refused or failed
	Epoch   int64  `json:"epoch,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Rows    int64  `json:"rows,omitempty"`
	Orphans int64  `json:"orphans,omitempty"`
	Token   string `json:"token,omitempty"`
	Current int64  `json:"current,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// process is a child of the demo. It tells by lines what it did, and waits for a line before its last write.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan message
	ended chan struct{}
}

// start starts lastword as one process of the demo.
func (s *stage) start(ctx context.Context, name, role string, guarded bool, args ...string) (*process, error) {
	args = append([]string{"demo-process", role, "--db", s.Database, "--name", name, "--lease", s.Lease.String()}, args...)
	if guarded {
		args = append(args, "--guarded")
	}
	cmd := exec.CommandContext(ctx, s.Executable, args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start process %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, stdin: stdin, lines: make(chan message, 16), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer close(p.lines)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			var m message
			if json.Unmarshal(scanner.Bytes(), &m) == nil {
				p.lines <- m
			}
		}
		_ = cmd.Wait() // what it came to was said in a line
	}()
	return p, nil
}

// expect waits for the next line and for it to be the event named.
func (p *process) expect(ctx context.Context, event string) (message, error) {
	m, err := p.next(ctx)
	if err == nil && m.Event != event {
		err = fmt.Errorf("process %s said %q instead of %q: %s", p.name, m.Event, event, m.Reason)
	}
	return m, err
}

func (p *process) next(ctx context.Context) (message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 60*time.Second, fmt.Errorf("process %s said nothing for 60 s", p.name))
	defer cancel()
	select {
	case m, ok := <-p.lines:
		if !ok {
			return m, fmt.Errorf("process %s ended too early", p.name)
		}
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// freeze stops the process as a long pause would: it runs nothing, and does not know it.
func (p *process) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// proceed lets the process do its last write.
func (p *process) proceed() error {
	_, err := io.WriteString(p.stdin, "\n")
	return err
}

// end lets the process finish, so that it gives back what it holds, and makes sure that nothing is left of it.
func (p *process) end() {
	_ = p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// cast is the child's side: it tells, and it waits for its cue.
type cast struct {
	in  *bufio.Reader
	out *json.Encoder
}

func newCast(in io.Reader, out io.Writer) *cast {
	return &cast{in: bufio.NewReader(in), out: json.NewEncoder(out)}
}

func (c *cast) tell(m message) error { return c.out.Encode(m) }

func (c *cast) waitForCue() error {
	_, err := c.in.ReadString('\n')
	return err
}

// outcome tells how the last write ended.
func (c *cast) outcome(err error) error {
	var refused *lastword.RefusedError
	switch {
	case err == nil:
		return c.tell(message{Event: "wrote"})
	case errors.As(err, &refused):
		return c.tell(message{Event: "refused", Token: refused.Token.Short(), Current: refused.Current, Reason: refused.Reason})
	}
	return c.tell(message{Event: "failed", Reason: err.Error()})
}
