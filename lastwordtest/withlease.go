package lastwordtest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/lastword-go/lastword"
)

func withLeasePromises() []promise {
	return []promise{
		{"releases when the job has returned, whatever it returned", withLeaseReleases},
		{"a panic or the end of the goroutine releases", withLeasePanics},
		{"a lost lease cancels the job with cause ErrFenced", withLeaseLost},
		{"a job that takes every connection does not starve renewals", withLeaseStarved},
	}
}

func withLeaseReleases(w *world) {
	failure := errors.New("job failed")
	for _, want := range []error{nil, failure} {
		name := w.name()
		ctx, cancel := context.WithCancel(w.ctx)
		err := w.store.WithLease(ctx, name, lastword.LeaseOptions{TTL: time.Minute}, func(ctx context.Context, l *lastword.Lease) error {
			if held, err := l.Held(ctx); err != nil || !held {
				w.Errorf("inside: held is %v, %v", held, err)
			}
			if want != nil {
				cancel() // the release must not depend on the job's context
			}
			return want
		})
		cancel()
		if !errors.Is(err, want) || want == nil && err != nil {
			w.Errorf("got %v, want %v", err, want)
		}
		w.acquire(w.storeB, name) // at once
		w.cell()
	}
	name := w.name()
	w.acquire(w.storeB, name)
	err := w.store.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute}, func(context.Context, *lastword.Lease) error {
		w.Error("the job runs without its lease")
		return nil
	})
	w.want(err, lastword.ErrHeld, "busy")
}

func withLeasePanics(w *world) {
	for what, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		name := w.name()
		var recovered any
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { recovered = recover() }()
			_ = w.store.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute}, func(context.Context, *lastword.Lease) error {
				end()
				return nil
			})
		}()
		<-done
		if what == "panic" && recovered != "boom" {
			w.Errorf("recovered %v, want the job's own panic", recovered)
		}
		w.acquire(w.storeB, name)
		w.cell()
	}
}

func withLeaseLost(w *world) {
	name := w.name()
	err := w.store.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: time.Second}, func(ctx context.Context, l *lastword.Lease) error {
		w.takeOver(name)
		<-ctx.Done()
		w.want(context.Cause(ctx), lastword.ErrFenced, "the cause of the job's context")
		_, err := l.Exec(w.ctx, `DELETE FROM lwt_data WHERE id = -1`)
		w.want(err, lastword.ErrFenced, "a write after the loss")
		return nil
	})
	w.want(err, lastword.ErrFenced, "WithLease of a lost lease whose job saw nothing wrong")
	if n := w.count(`SELECT count(*) FROM lastword_leases WHERE name = ? AND fence = 2 AND owner IS NOT NULL`, name); n != 1 {
		w.Error("the release at the end harmed the next holder")
	}
	w.cell()
}

func withLeaseStarved(w *world) {
	db := openDB(w.T, w.engine.Connector)
	db.SetMaxOpenConns(2)
	s := w.open(db, "starved")
	name := w.name()
	err := s.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: 2 * time.Second}, func(ctx context.Context, _ *lastword.Lease) error {
		for range 2 { // as many as it can get
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			conn, err := db.Conn(short)
			cancel()
			if err == nil {
				defer conn.Close()
			}
		}
		seen := map[string]bool{}
		w.eventually("two renewals", func() bool {
			seen[w.rows(`SELECT leased_until FROM lastword_leases WHERE name = ?`, name)] = true
			return len(seen) >= 3 || ctx.Err() != nil
		})
		return context.Cause(ctx)
	})
	w.must(err, "WithLease")
	w.cell()
}
