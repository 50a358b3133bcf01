package adapter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/postgres"
)

// queryCounter counts what is sent to the server.
type queryCounter struct{ queries atomic.Int64 }

func (c *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (c *queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// observed counts what the library tells.
type observed struct {
	mu    sync.Mutex
	count map[lastword.What]int
}

func (o *observed) Observe(what lastword.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count == nil {
		o.count = map[lastword.What]int{}
	}
	o.count[what.What]++
}

// 500 waiters on one name in one process are one poller of at most 20 queries a second; a release in the process reaches it at once, and
// the lease goes from hand to hand.
func TestManyWaitersAreOnePoller(t *testing.T) {
	config, err := pgx.ParseConfig(newPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	counter := &queryCounter{}
	config.Tracer = counter
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { _ = db.Close() })
	if err := lastword.Migrate(t.Context(), db, postgres.Dialect(), nil); err != nil {
		t.Fatal(err)
	}
	seen := &observed{}
	store, err := lastword.Open(t.Context(), db, postgres.Dialect(), &lastword.Options{Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	holder, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	const waiters, patience = 500, 2 * time.Second
	before := counter.queries.Load()
	var waiting sync.WaitGroup
	var held atomic.Int64
	for range waiters {
		waiting.Go(func() {
			if _, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute, Wait: patience}); errors.Is(err, lastword.ErrHeld) {
				held.Add(1)
			} else {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	// Each asks once when it comes.
	if polls := counter.queries.Load() - before - waiters; polls > int64(20*patience/time.Second) || polls < 5 {
		t.Errorf("%d waiters sent %d queries in %v besides their first", waiters, polls, patience)
	}
	if held.Load() != waiters || seen.count[lastword.Held] != waiters || seen.count[lastword.Acquired] != 1 {
		t.Errorf("%d of %d were told that the lease is held; observed %v", held.Load(), waiters, seen.count)
	}
	for range 20 {
		waiting.Go(func() {
			lease, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute, Wait: -1})
			if err == nil {
				_, err = lease.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	if seen.count[lastword.Acquired] != 21 || seen.count[lastword.Released] != 21 {
		t.Errorf("observed %v", seen.count)
	}
}
