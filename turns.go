package lastword

import (
	"context"
	"sync"
	"time"
)

// turns lets those who wait for the same lease in this process ask the database one after the other: 500 waiters are one poller.
type turns struct {
	mu     sync.Mutex
	byName map[string]*turn
}

type turn struct {
	gate     chan struct{} // holds one value while somebody asks
	released chan struct{} // holds a value when the lease was released in this process
	waiters  int
	next     time.Time // whoever has the turn asks no sooner: the one before has just asked
}

// enter returns when it is the caller's turn to ask for name, or when ctx has ended. Call leave in either case.
func (t *turns) enter(ctx context.Context, name string) (_ *turn, leave func()) {
	t.mu.Lock()
	if t.byName == nil {
		t.byName = map[string]*turn{}
	}
	mine := t.byName[name]
	if mine == nil {
		mine = &turn{gate: make(chan struct{}, 1), released: make(chan struct{}, 1)}
		t.byName[name] = mine
	}
	mine.waiters++
	t.mu.Unlock()
	entered := false
	select {
	case mine.gate <- struct{}{}:
		entered = true
	case <-ctx.Done():
	}
	return mine, func() {
		if entered {
			<-mine.gate
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.waiters--; mine.waiters == 0 {
			delete(t.byName, name)
		}
	}
}

// release tells whoever asks for name that it may be free now. What other processes release is found by asking.
func (t *turns) release(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if waiting := t.byName[name]; waiting != nil {
		select {
		case waiting.released <- struct{}{}:
		default:
		}
	}
}
