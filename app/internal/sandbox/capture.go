package sandbox

import (
	"io"
	"os"
	"sync"
)

// stopper kills a run once and keeps the first reason.
type stopper struct {
	mu      sync.Mutex
	kill    func()
	outcome Outcome
	err     error
}

// stop kills because of a limit.
func (s *stopper) stop(o Outcome) { s.end(o, nil) }

// abort kills because the run cannot be judged: ctx ended, or the sandbox failed.
func (s *stopper) abort(err error) { s.end(0, err) }

func (s *stopper) end(o Outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outcome == 0 && s.err == nil {
		s.outcome, s.err = o, err
	}
	s.kill()
}

func (s *stopper) reason() (Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcome, s.err
}

// capture takes a stream to its end but keeps, or passes on, only the first limit bytes.
type capture struct {
	limit int64
	pass  io.Writer // nil: keep
	over  func()    // called whenever more comes in than the limit
	seen  int64
	kept  []byte
}

// Write never fails: a stream that is not drained would block the payload.
func (c *capture) Write(p []byte) (int, error) {
	room := max(0, c.limit-c.seen)
	head := p[:min(int64(len(p)), room)]
	c.seen += int64(len(p))
	if c.pass == nil {
		c.kept = append(c.kept, head...)
	} else if len(head) > 0 {
		_, _ = c.pass.Write(head) // the reader's trouble is not the payload's
	}
	if c.seen > c.limit {
		c.over()
	}
	return len(p), nil
}

func (c *capture) truncated() bool { return c.seen > c.limit }

// feed gives the payload its input. It returns the file to hand over and what to call when the run is over.
func feed(r io.Reader) (*os.File, func(), error) {
	if f, ok := r.(*os.File); ok && f != nil {
		return f, func() {}, nil
	}
	if r == nil {
		f, err := os.Open(os.DevNull)
		return f, func() { f.Close() }, err
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	go func() {
		_, _ = io.Copy(pw, r) // a payload that does not read its input to the end breaks the pipe: no error
		pw.Close()
	}()
	return pr, func() { pr.Close(); pw.Close() }, nil
}
