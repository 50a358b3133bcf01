package lastwordtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lastword-go/lastword"
)

func eventPromises() []promise {
	return []promise{
		{"each event is sent", relaySends},
		{"what a sink refuses is sent again", relayRetries},
		{"two relays share the work", twoRelays},
		{"an event that is never taken is given up", relayGivesUp},
		{"an event whose relay died is sent again", relayDied},
	}
}

// sink collects events; fail says what it answers.
type sink struct {
	mu   sync.Mutex
	got  map[lastword.Event]int
	fail func(e lastword.Event, time int) error
}

func (s *sink) Publish(_ context.Context, e lastword.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got == nil {
		s.got = map[lastword.Event]int{}
	}
	s.got[e]++
	if s.fail != nil {
		return s.fail(e, s.got[e])
	}
	return nil
}

// of counts what came for the tasks of a kind.
func (s *sink) of(kind string) (events, sends int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e, n := range s.got {
		if e.Kind == kind {
			events++
			sends += n
		}
	}
	return events, sends
}

// relay runs until stop. Whatever other promises left in the outbox is sent as well.
func (w *world) relay(s *lastword.Store, to lastword.Sink) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	running := async(func() error { return s.Relay(ctx, to, lastword.Poll(2*time.Millisecond)) })
	return func() {
		w.Helper()
		cancel()
		w.must(running.wait(w), "relay")
	}
}

func (w *world) unsent(kind string) int64 {
	w.Helper()
	return w.count(`SELECT count(*) FROM lastword_outbox WHERE kind = ? AND state <> 'sent'`, kind)
}

func relaySends(w *world) {
	kind := w.kind()
	id := w.submit(kind, "x")
	w.must(w.claim(w.store, kind).Complete(w.ctx, "r", nil), "complete")
	to := &sink{}
	stop := w.relay(w.store, to)
	w.eventually("all is sent", func() bool { return w.unsent(kind) == 0 })
	stop()
	seen := map[string]bool{}
	for e, n := range to.got {
		if e.Kind == kind {
			seen[e.Topic] = true
			if e.TaskID != id || e.Generation != 1 || n != 1 {
				w.Errorf("%+v came %d times", e, n)
			}
		}
	}
	if len(seen) != 2 || !seen[lastword.TopicPending] || !seen[lastword.TopicSucceeded] {
		w.Errorf("topics %v", seen)
	}
	w.cell()
}

func relayRetries(w *world) {
	kind := w.kind()
	w.submit(kind, "x")
	to := &sink{fail: func(e lastword.Event, time int) error {
		if e.Kind == kind && time < 3 {
			return errors.New("no\x00t now")
		}
		return nil
	}}
	stop := w.relay(w.store, to)
	w.eventually("it is sent", func() bool { return w.unsent(kind) == 0 })
	stop()
	if events, sends := to.of(kind); events != 1 || sends != 3 {
		w.Errorf("%d events, %d sends", events, sends)
	}
	if n := w.count(`SELECT sends FROM lastword_outbox WHERE kind = ?`, kind); n != 3 {
		w.Errorf("%d sends are recorded", n)
	}
	w.cell()
}

func twoRelays(w *world) {
	kind := w.kind()
	for range 30 {
		w.submit(kind, "x")
	}
	to := &sink{}
	stopA, stopB := w.relay(w.store, to), w.relay(w.storeB, to)
	w.eventually("all is sent", func() bool { return w.unsent(kind) == 0 })
	stopA()
	stopB()
	if events, sends := to.of(kind); events != 30 || sends != 30 {
		w.Errorf("%d events in %d sends, want 30 in 30", events, sends)
	}
	w.cell()
}

func relayGivesUp(w *world) {
	kind := w.kind()
	w.submit(kind, "x")
	w.exec(`UPDATE lastword_outbox SET sends = 19 WHERE kind = ?`, kind)
	to := &sink{fail: func(e lastword.Event, _ int) error {
		if e.Kind == kind {
			return errors.New("never")
		}
		return nil
	}}
	stop := w.relay(w.store, to)
	w.eventually("it is dead", func() bool {
		return w.count(`SELECT count(*) FROM lastword_outbox WHERE kind = ? AND state = 'dead' AND error = 'never'`, kind) == 1
	})
	stop()
	if _, sends := to.of(kind); sends != 1 {
		w.Errorf("%d sends after the last", sends)
	}
	w.cell()
}

func relayDied(w *world) {
	kind := w.kind()
	w.submit(kind, "x")
	w.committed("OutboxClaim", lastword.Args{"limit": 1000, "visible_ms": int64(0)}) // taken, and never marked sent
	to := &sink{}
	stop := w.relay(w.storeB, to)
	w.eventually("it is sent", func() bool { return w.unsent(kind) == 0 })
	stop()
	if events, _ := to.of(kind); events != 1 {
		w.Errorf("%d events", events)
	}
	w.cell()
}
