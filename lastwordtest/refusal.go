package lastwordtest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
)

func refusalPromises() []promise {
	return []promise{
		{"one row a token, counted", refusalsCounted},
		{"recording needs no connection of the caller", refusalsOnOneConnection},
		{"no nonce is whole in any row, list, error or log", noWholeNonce},
		{"contention is no refusal", contentionIsNone},
	}
}

func (w *world) flushed(s *lastword.Store, name string) []lastword.Refusal {
	w.Helper()
	w.must(s.FlushRefusals(w.ctx), "flush")
	list, err := s.Refusals(w.ctx, lastword.RefusalFilter{Name: name})
	w.must(err, "refusals")
	return list
}

func refusalsCounted(w *world) {
	name := w.name()
	l := w.acquire(w.store, name)
	next := w.takeOver(name)
	before := w.store.RefusalCounts()
	for range 3 {
		_, err := l.Renew(w.ctx)
		w.want(err, lastword.ErrFenced, "renew")
	}
	list := w.flushed(w.store, name)
	for range 2 {
		_, err := l.Exec(w.ctx, `DELETE FROM lwt_data WHERE id = -1`)
		w.want(err, lastword.ErrFenced, "exec")
	}
	again := w.flushed(w.store, name)
	if len(list) != 1 || list[0].Count != 3 || list[0].Operation != "renew" || len(again) != 1 || again[0].Count != 5 {
		w.Fatalf("%+v, then %+v", list, again)
	}
	r := again[0]
	if r.Kind != lastword.KindLease || r.Name != name || r.Epoch != 1 || r.Current != 2 || r.NonceStart != l.Token().Nonce[:6] || r.Outcome != "fenced" ||
		r.Holder != "process-a" || !strings.Contains(r.Reason, "process-b") || r.First.IsZero() || r.Last.Before(r.First) {
		w.Errorf("%+v", r)
	}
	if counts := w.store.RefusalCounts(); counts.Refused-before.Refused != 5 || counts.Unrecorded != before.Unrecorded {
		w.Errorf("counts %+v, before %+v", counts, before)
	}
	w.expire(name, -1)
	_, err := next.Renew(w.ctx) // another token, by the other process: a row of its own
	w.want(err, lastword.ErrExpired, "renew of B")
	if list := w.flushedOther(next, name); len(list) != 1 || list[0].Epoch != 2 {
		w.Errorf("B's refusals %+v", list)
	}
	w.cell()
}

func (w *world) flushedOther(l *lastword.Lease, name string) (mine []lastword.Refusal) {
	w.Helper()
	for _, r := range w.flushed(w.storeB, name) {
		if r.NonceStart == l.Token().Nonce[:6] {
			mine = append(mine, r)
		}
	}
	return mine
}

func refusalsOnOneConnection(w *world) {
	db := openDB(w.T, w.engine.Connector)
	db.SetMaxOpenConns(1)
	s := w.open(db, "single")
	token := w.grant(lastword.KindLease, true)
	ended := async(func() error {
		_, exec := s.Exec(w.ctx, token, `DELETE FROM lwt_data WHERE id = -1`)
		_, renew := s.Renew(w.ctx, token)
		txErr := s.Tx(w.ctx, token, nil, func(context.Context, *sql.Tx) error { return nil })
		tx, err := db.BeginTx(w.ctx, nil)
		if err != nil {
			return err
		}
		guard := s.Guard(w.ctx, tx, token)
		for _, err := range []error{exec, renew, txErr, guard} {
			if !errors.Is(err, lastword.ErrFenced) {
				return fmt.Errorf("got %w", err)
			}
		}
		return nil
	})
	w.must(ended.wait(w), "refusals with one connection")
	if list := w.flushed(s, token.Name); len(list) != 1 || list[0].Count != 4 {
		w.Errorf("%+v", list)
	}
	w.cell()
}

func noWholeNonce(w *world) {
	var log bytes.Buffer
	s, err := lastword.Open(w.ctx, w.db, w.engine.Dialect, &lastword.Options{Holder: "logging", Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	w.must(err, "open")
	name, kind := w.name(), w.kind()
	l := w.acquire(s, name)
	id := w.submit(kind, "x")
	a := w.claim(s, kind)
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	lists := func() {
		leases, err1 := s.Leases(w.ctx, "", 10_000)
		tasks, err2 := s.Tasks(w.ctx, lastword.TaskFilter{Kind: kind})
		attempts, err3 := s.Attempts(w.ctx, id)
		refusals, err4 := s.Refusals(w.ctx, lastword.RefusalFilter{Limit: 10_000})
		w.must(errors.Join(err1, err2, err3, err4), "lists")
		say("%+v %+v %+v %+v %+v", leases, tasks, attempts, refusals, w.task(id))
	}
	lists()
	w.takeOver(name)
	_, err = w.storeB.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{})
	w.must(err, "rerun")
	for use, err := range w.uses(l.Token(), w.next()*10) {
		say("%s: %v %+v", use, err, err)
	}
	say("%v", a.Complete(w.ctx, "late", nil))
	_, err = w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
	say("%v", err)
	_ = s.Tx(w.ctx, l.Token(), nil, func(context.Context, *sql.Tx) error { return nil })
	w.must(s.FlushRefusals(w.ctx), "flush")
	w.must(w.store.FlushRefusals(w.ctx), "flush")
	lists()
	say("%s", log.String())
	say("%s", w.rows(`SELECT * FROM lastword_refusals`))
	for _, text := range said {
		w.noNonce(l.Token(), text)
		w.noNonce(a.Token(), text)
	}
	if w.count(`SELECT count(*) FROM lastword_refusals WHERE length(nonce_start) > 6`) != 0 {
		w.Error("a refusal's row has more than six characters of the nonce")
	}
	w.cell()
}

func contentionIsNone(w *world) {
	name := w.name()
	w.acquire(w.store, name)
	before := w.store.RefusalCounts()
	_, err := w.store.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
	w.want(err, lastword.ErrHeld, "busy")
	if after := w.store.RefusalCounts(); after != before {
		w.Errorf("a busy lease was counted as a refusal: %+v", after)
	}
	w.cell()
}

// schemaPromise is one that needs databases of its own.
type schemaPromise struct {
	name  string
	check func(t *testing.T, open func(t *testing.T) *Engine)
}
