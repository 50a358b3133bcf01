package lastword

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Topics of events. TopicPending says that a generation is ready to run; the others that a task has ended.
const (
	TopicPending     = "task.pending"
	TopicSucceeded   = "task.succeeded"
	TopicFailed      = "task.failed"
	TopicCancelled   = "task.cancelled"
	TopicQuarantined = "task.quarantined"
)

// Event tells that something was committed. It is a hint: only the row decides. The same event may come more than once.
type Event struct {
	ID         int64
	Topic      string
	Kind       string // of the task
	TaskID     int64
	Generation int64
}

// Source is what a worker waits on between two claims.
type Source interface {
	// Wait returns when there may be work, or when ctx ends. It may return too early or too often, never an error.
	Wait(ctx context.Context)
}

// Sink is where the relay publishes.
type Sink interface {
	// Publish takes an event over, or says by an error that it could not. It may be called again with the same event.
	Publish(ctx context.Context, event Event) error
}

// Poll is a Source that looks every interval, jittered by a quarter.
func Poll(every time.Duration) Source { return poll(every) }

type poll time.Duration

func (p poll) Wait(ctx context.Context) {
	sleepUntil(ctx, time.Now().Add(time.Duration(p)*3/4+rand.N(time.Duration(p)/2+1)))
}

// Local carries events inside one process: a Sink for the relay, and a Source for each of those who wait, which it wakes at once.
type Local struct {
	mu    sync.Mutex
	wakes int
	woken chan struct{} // closed at the next wake
}

// NewLocal returns a Local that nobody waits on yet.
func NewLocal() *Local { return &Local{woken: make(chan struct{})} }

// Publish wakes everybody who waits. It never fails.
func (l *Local) Publish(context.Context, Event) error {
	l.Wake()
	return nil
}

// Wake wakes everybody who waits.
func (l *Local) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes++
	close(l.woken)
	l.woken = make(chan struct{})
}

func (l *Local) state() (wakes int, woken chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wakes, l.woken
}

// Source returns a Source for one who waits. It polls as well, since other processes submit too: every so often, jittered. A wake that
// came while nobody waited is not lost: the next Wait returns at once.
func (l *Local) Source(poll time.Duration) Source {
	wakes, _ := l.state()
	return &localSource{local: l, poll: poll, seen: wakes}
}

type localSource struct {
	local *Local
	poll  time.Duration
	seen  int
}

func (s *localSource) Wait(ctx context.Context) {
	wakes, woken := s.local.state()
	if wakes == s.seen {
		timer := time.NewTimer(s.poll*3/4 + rand.N(s.poll/2+1))
		defer timer.Stop()
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		wakes, _ = s.local.state()
	}
	s.seen = wakes
}

func (s *Store) emit(ctx context.Context, tx *sql.Tx, topic, kind string, id, generation int64) error {
	if err := s.exec(ctx, tx, "OutboxInsert", Args{"topic": topic, "kind": kind, "id": id, "generation": generation}); err != nil {
		return fmt.Errorf("lastword: emit %s of task %d: %w", topic, id, err)
	}
	return nil
}

const (
	relayBatch = 100
	// An event that was taken and not marked sent (its relay died in between) is sent again after so long.
	relayVisible  = 30 * time.Second
	relayMaxSends = 20
)

// Relay takes events from the outbox and publishes them, each at least once, until ctx ends; it returns nil then. Several relays
// share the work. It waits on source between two looks. An event that failed is tried again with a growing pause; after 20 sends its row
// is dead, which is logged as an error. Order is not kept.
func (s *Store) Relay(ctx context.Context, sink Sink, source Source) error {
	for ctx.Err() == nil {
		n, err := s.relayOnce(ctx, sink)
		if err != nil && ctx.Err() == nil {
			s.log.LogAttrs(ctx, slog.LevelError, "relay", slog.Any("error", err))
		}
		if n < relayBatch || err != nil {
			source.Wait(ctx)
		}
	}
	return nil
}

func (s *Store) relayOnce(ctx context.Context, sink Sink) (taken int, err error) {
	type sending struct {
		Event
		sends int
	}
	var due []sending
	err = s.autocommit(ctx, s.db, "OutboxClaim", "relay", func(q querier) error {
		due = nil
		return s.all(ctx, q, "OutboxClaim", Args{"limit": relayBatch, "visible_ms": relayVisible.Milliseconds()}, func(scan func(...any) error) error {
			var e sending
			err := scan(&e.ID, &e.Topic, &e.Kind, &e.TaskID, &e.Generation, &e.sends)
			due = append(due, e)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	for _, e := range due {
		if publishErr := sink.Publish(ctx, e.Event); publishErr != nil {
			err = s.sendFailed(ctx, e.Event, e.sends, publishErr)
		} else {
			err = s.autocommit(ctx, s.db, "OutboxSent", "relay: mark sent", func(q querier) error {
				return s.exec(ctx, q, "OutboxSent", Args{"id": e.ID, "sends": e.sends})
			})
		}
		if err != nil {
			return len(due), err
		}
	}
	return len(due), nil
}

func (s *Store) sendFailed(ctx context.Context, e Event, sends int, cause error) error {
	delay := rand.N(min(100*time.Millisecond<<min(sends, 10), time.Minute))
	var state string
	args := Args{"id": e.ID, "sends": sends, "max_sends": relayMaxSends, "delay_ms": delay.Milliseconds(), "error": clip(cause.Error())}
	err := s.autocommit(ctx, s.db, "OutboxFailed", "relay: mark failed", func(q querier) error {
		_, err := s.one(ctx, q, "OutboxFailed", args, &state)
		return err
	})
	if err == nil && state == "dead" {
		s.log.LogAttrs(ctx, slog.LevelError, "an event was given up", slog.Int64("event", e.ID), slog.String("topic", e.Topic), slog.Int64("task", e.TaskID), slog.Any("error", cause))
	}
	return err
}
