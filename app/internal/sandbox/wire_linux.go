package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"
)

// File descriptors of the init process, after the standard three which are the payload's.
const (
	specFD   = 3 // it reads the spec here
	statusFD = 4 // it writes records here
	groupFD  = 5 // first of the cgroup files: spec.Join to enter, then spec.Leave to go back
)

// spec is what the init process is told.
type spec struct {
	Root     string // empty folder to build the new root on
	Work     string
	Writable bool
	ReadOnly []string
	Args     []string
	Env      []string
	Limits   Limits
	Userns   bool
	User     int // inside the box
	Join     int
	Leave    int
}

// kind of a record.
type kind uint64

const (
	recStarted kind = iota + 1
	recUsage        // CPU, Memory so far
	recExit         // Status, Wall, CPU, Memory
	recNoExec       // Status is the errno with which the program could not be executed
	recFailed       // the set-up failed: a text follows up to the end
)

// record is one message of the init process. It has a fixed size, and is written without allocating.
type record struct {
	Kind   kind
	Status uint32 // wait status or errno
	Wall   time.Duration
	CPU    time.Duration
	Memory int64
	Text   string // only recFailed
}

const recordSize = 40

func (r *record) encode(b *[recordSize]byte) {
	binary.LittleEndian.PutUint64(b[0:], uint64(r.Kind))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.Status))
	binary.LittleEndian.PutUint64(b[16:], uint64(r.Wall))
	binary.LittleEndian.PutUint64(b[24:], uint64(r.CPU))
	binary.LittleEndian.PutUint64(b[32:], uint64(r.Memory))
}

// readRecords passes the init process's messages on and closes the channel when it is gone.
func readRecords(f *os.File, to chan<- record) {
	defer close(to)
	var b [recordSize]byte
	for {
		if _, err := io.ReadFull(f, b[:]); err != nil {
			return
		}
		r := record{
			Kind:   kind(binary.LittleEndian.Uint64(b[0:])),
			Status: uint32(binary.LittleEndian.Uint64(b[8:])),
			Wall:   time.Duration(binary.LittleEndian.Uint64(b[16:])),
			CPU:    time.Duration(binary.LittleEndian.Uint64(b[24:])),
			Memory: int64(binary.LittleEndian.Uint64(b[32:])),
		}
		if r.Kind == recFailed {
			text, _ := io.ReadAll(io.LimitReader(f, 4096))
			r.Text = string(text)
		}
		to <- r
	}
}

// sendSpec writes the spec to a pipe; a reader that stopped reading may not hold it up longer than the set-up may take.
func sendSpec(w *os.File, s *spec) error {
	if err := w.SetWriteDeadline(time.Now().Add(setupTimeout)); err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(w).Encode(s), w.Close())
}
