package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lastword-go/lastword"
)

func secondRelease(w *world) {
	name := w.name()
	l := w.acquire(w.store, name)
	if released, err := l.Release(w.ctx); err != nil || !released {
		w.Errorf("first release: %v, %v", released, err)
	}
	before := w.leaseRow(name)
	if released, err := l.Release(w.ctx); err != nil || released || w.leaseRow(name) != before {
		w.Errorf("second release: %v, %v", released, err)
	}
	next := w.acquire(w.storeB, name)
	if released, err := l.Release(w.ctx); err != nil || released {
		w.Errorf("release after the next grant: %v, %v", released, err)
	}
	if held, err := next.Held(w.ctx); err != nil || !held {
		w.Errorf("the next holder: held is %v, %v", held, err)
	}
	w.cell()
}

// A closed database tells the two kinds of errors apart: what is refused before the database is asked does not notice.
func refusedBeforeSQL(w *world) {
	db := openDB(w.T, w.engine.Connector)
	s := w.open(db, "")
	_ = db.Close()
	acquire := func(name string, ttl time.Duration) error {
		_, err := s.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: ttl})
		return err
	}
	for _, name := range []string{"", strings.Repeat("n", 121), "a b", "a@b", "a\n", "é", "a'b", "a;b", "a%b"} {
		w.want(acquire(name, time.Minute), lastword.ErrInvalid, "name %q", name)
		w.cell()
	}
	for _, ttl := range []time.Duration{0, -1, time.Second - 1, 24*time.Hour + 1} {
		w.want(acquire("good", ttl), lastword.ErrInvalid, "TTL %v", ttl)
		w.cell()
	}
	for _, name := range []string{"a", strings.Repeat("n", 120), "A9:_./-"} {
		if err := acquire(name, time.Minute); err == nil || errors.Is(err, lastword.ErrInvalid) {
			w.Errorf("name %q: %v, though the database is closed and the name is good", name, err)
		}
	}
	good := lastword.Token{Kind: lastword.KindLease, Name: "a", Epoch: 1, Nonce: "x"}
	for what, change := range map[string]func(*lastword.Token){
		"kind": func(t *lastword.Token) { t.Kind = "row" }, "epoch": func(t *lastword.Token) { t.Epoch = 0 }, "nonce": func(t *lastword.Token) { t.Nonce = "" },
	} {
		t := good
		change(&t)
		_, renew := s.Renew(w.ctx, t)
		_, exec := s.Exec(w.ctx, t, "DELETE FROM lwt_data")
		for use, err := range map[string]error{"renew": renew, "exec": exec, "tx": s.Tx(w.ctx, t, nil, nil)} {
			w.want(err, lastword.ErrInvalid, "%s with a bad %s", use, what)
			w.cell()
		}
	}
	_, err := s.Renew(w.ctx, lastword.Token{Kind: lastword.KindTask, Name: "1", Epoch: 1, Nonce: "x"})
	w.want(err, lastword.ErrInvalid, "renewing a task's token")
}

func notReentrant(w *world) {
	name := w.name()
	w.acquire(w.store, name)
	_, err := w.store.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
	w.want(err, lastword.ErrHeld, "the holder asks again")
	w.cell()
}

// A takeover that was held up by a guarded transaction counts its TTL from the moment it won, not from the moment it asked.
func notBornExpired(w *world) {
	mark := fmt.Sprintf("lwt_mark_%d", w.next())
	w.exec(`CREATE TABLE ` + mark + ` AS SELECT ` + w.engine.Now + ` AS at`)
	for _, ms := range []int{100, 400, 1600} { // on a busy machine the guard may come too late for a short one
		name := w.name()
		l := w.acquire(w.store, name)
		w.expire(name, ms)
		var taker *asynchronous
		err := w.store.Tx(w.ctx, l.Token(), nil, func(ctx context.Context, tx *sql.Tx) error {
			taker = w.takerOfEnded(name)
			_, err := tx.ExecContext(ctx, `UPDATE `+mark+` SET at = `+w.engine.Now)
			return err
		})
		if errors.Is(err, lastword.ErrExpired) {
			continue
		}
		w.must(err, "the guarded transaction")
		w.must(taker.wait(w), "the takeover")
		if n := w.count(`SELECT count(*) FROM lastword_leases, `+mark+` WHERE name = ? AND fence = 2 AND leased_until >= `+w.engine.Later("at", 10_000), name); n != 1 {
			w.Error("the takeover's TTL was counted from before its wait")
		}
		w.cell()
		return
	}
	w.Error("the lease ended before its guard, three times")
}

// takerOfEnded begins a takeover once the lease has ended, and lets it come as far as the guard.
func (w *world) takerOfEnded(name string) *asynchronous {
	w.eventually("the lease ends", func() bool { return w.ended(name) })
	taker := async(func() error {
		_, err := w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: 10 * time.Second, Wait: -1})
		return err
	})
	select { // where it waits for a lock it sends the statement meanwhile; where it polls this is no matter
	case <-taker.done:
		w.Errorf("the takeover did not wait for the guard: %v", taker.err)
	case <-time.After(100 * time.Millisecond):
	}
	return taker
}

func expiredButGuarded(w *world) {
	if w.engine.Dialect.SingleWriter {
		w.Skip("nothing else can be written while a guarded transaction is open")
	}
	for _, ms := range []int{100, 400, 1600} { // on a busy machine the guard may come too late for a short one
		name := w.name()
		l := w.acquire(w.store, name)
		w.expire(name, ms)
		err := w.store.Tx(w.ctx, l.Token(), nil, func(context.Context, *sql.Tx) error {
			w.eventually("the lease ends", func() bool { return w.ended(name) })
			taker := async(func() error {
				_, err := w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
				return err
			})
			if !w.settled(taker.done, 0) {
				w.Error("the taker waits for the guard instead of answering")
			}
			w.want(taker.wait(w), lastword.ErrHeld, "takeover of an expired lease under a guard")
			return nil
		})
		if errors.Is(err, lastword.ErrExpired) {
			continue
		}
		w.must(err, "the guarded transaction")
		w.acquire(w.storeB, name)
		w.cell()
		return
	}
	w.Error("the lease ended before its guard, three times")
}

func (w *world) ended(name string) bool {
	w.Helper()
	return w.count(`SELECT count(*) FROM lastword_leases WHERE name = ? AND leased_until <= `+w.engine.Now, name) == 1
}

func waiting(w *world) {
	name := w.name()
	l := w.acquire(w.store, name)
	_, err := w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute, Wait: 20 * time.Millisecond})
	w.want(err, lastword.ErrHeld, "the wait is over")
	ctx, cancel := context.WithCancelCause(w.ctx)
	cause := errors.New("enough")
	cancel(cause)
	_, err = w.storeB.Acquire(ctx, name, lastword.LeaseOptions{TTL: time.Minute, Wait: -1})
	if err == nil {
		w.Error("acquired with a dead context")
	}
	waiter := async(func() error {
		_, err := w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute, Wait: -1})
		return err
	})
	_, err = l.Release(w.ctx)
	w.must(err, "release")
	w.must(waiter.wait(w), "the waiter")
	w.cell()
}
