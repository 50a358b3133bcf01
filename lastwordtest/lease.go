package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastword-go/lastword"
)

func leasePromises() []promise {
	return []promise{
		{"fences begin at 1 and rise by one at each grant", fencesRise},
		{"of many acquirers one wins", oneWinner},
		{"a busy lease answers at once and stays untouched", busyUntouched},
		{"the end of a lease is its last moment", expiryBoundary},
		{"a renewal keeps the TTL of the grant", renewKeepsTTL},
		{"a renewal never revives", renewNeverRevives},
		{"a stale token is refused everywhere and harms nobody", staleTokenIsRefused},
		{"epoch and nonce both count", bothCount},
		{"a second release says so", secondRelease},
		{"names and TTLs are refused before the database is asked", refusedBeforeSQL},
		{"not re-entrant", notReentrant},
		{"a takeover that waited has its whole TTL", notBornExpired},
		{"expired but still guarded is held", expiredButGuarded},
		{"waiting ends with the lease, the wait or the context", waiting},
	}
}

func (w *world) name() string { return fmt.Sprintf("lease-%d", w.next()) }

func (w *world) acquire(s *lastword.Store, name string) *lastword.Lease {
	w.Helper()
	l, err := s.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		w.Fatalf("acquire %s: %v", name, err)
	}
	return l
}

// expire ends a lease in ms milliseconds from now, as if nobody had renewed it.
func (w *world) expire(name string, ms int) {
	w.Helper()
	w.exec(`UPDATE lastword_leases SET leased_until = `+w.engine.FromNow(ms)+` WHERE name = ?`, name)
	if w.leaseRow(name) == "" { // not by what was changed: it may have stood there to the millisecond
		w.Fatalf("there is no lease %s", name)
	}
}

// takeOver lets B take over what A holds.
func (w *world) takeOver(name string) *lastword.Lease {
	w.Helper()
	w.expire(name, -1000)
	return w.acquire(w.storeB, name)
}

func (w *world) leaseRow(name string) string {
	w.Helper()
	return w.rows(`SELECT * FROM lastword_leases WHERE name = ?`, name)
}

func fencesRise(w *world) {
	name := w.name()
	fence := int64(0)
	grant := func(how string) *lastword.Lease {
		fence++
		l := w.acquire(w.store, name)
		if got := l.Token(); got.Epoch != fence || got.Kind != lastword.KindLease || got.Name != name || len(got.Nonce) < 26 {
			w.Errorf("%s: granted %v, want fence %d", how, got, fence)
		}
		w.cell()
		return l
	}
	nonces := map[string]bool{}
	for range 3 {
		l := grant("after the last grant expired")
		nonces[l.Token().Nonce] = true
		_, err := l.Renew(w.ctx)
		w.must(err, "renew")
		if l.Token().Epoch != fence || w.count(`SELECT fence FROM lastword_leases WHERE name = ?`, name) != fence {
			w.Error("a renewal changed the fence")
		}
		w.expire(name, -1)
		l = grant("after expiry")
		nonces[l.Token().Nonce] = true
		_, err = l.Release(w.ctx)
		w.must(err, "release")
		if w.count(`SELECT fence FROM lastword_leases WHERE name = ?`, name) != fence {
			w.Error("a release changed or dropped the row's fence")
		}
		l = grant("after a release")
		nonces[l.Token().Nonce] = true
		w.expire(name, -1)
	}
	if len(nonces) != 9 {
		w.Errorf("%d nonces for 9 grants", len(nonces))
	}
}

func oneWinner(w *world) {
	for _, state := range []string{"absent", "expired", "released"} {
		name := w.name()
		if state != "absent" {
			l := w.acquire(w.store, name)
			if state == "released" {
				_, err := l.Release(w.ctx)
				w.must(err, "release")
			}
			w.expire(name, -1)
		}
		var mu sync.Mutex
		var winners []int64
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range 12 {
			group.Go(func() {
				s := []*lastword.Store{w.store, w.storeB}[i%2]
				<-start
				l, err := s.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, l.Token().Epoch)
				} else if !errors.Is(err, lastword.ErrHeld) {
					w.Errorf("%s: %v", state, err)
				}
			})
		}
		close(start)
		group.Wait()
		want := int64(2)
		if state == "absent" {
			want = 1
		}
		if !slices.Equal(winners, []int64{want}) {
			w.Errorf("%s: the winners have the fences %v, want one with %d", state, winners, want)
		}
		w.cell()
	}
}

func busyUntouched(w *world) {
	name := w.name()
	l, err := w.store.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute, Label: "payroll"})
	w.must(err, "acquire")
	before := w.leaseRow(name)
	_, err = w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Second})
	var held *lastword.HeldError
	if !errors.As(err, &held) || !errors.Is(err, lastword.ErrHeld) {
		w.Fatalf("got %v, want a HeldError", err)
	}
	if held.Name != name || held.Holder != "process-a payroll" || held.Fence != 1 || !held.Until.Equal(l.Until()) {
		w.Errorf("HeldError %+v, want the holder process-a payroll until %v", *held, l.Until())
	}
	w.noNonce(l.Token(), fmt.Sprintf("%v %#v", err, *held))
	if after := w.leaseRow(name); after != before {
		w.Errorf("the row was touched:\n%s\n%s", before, after)
	}
	w.cell()
}

// noNonce refuses a text that shows more than six characters of a nonce.
func (w *world) noNonce(t lastword.Token, text string) {
	w.Helper()
	if strings.Contains(text, t.Nonce[:7]) {
		w.Errorf("more than six characters of the nonce are shown: %s", text)
	}
}

func expiryBoundary(w *world) {
	for ms, free := range map[int]bool{-60000: true, -1: true, 0: true, 30000: false, 60000: false} {
		name := w.name()
		l := w.acquire(w.store, name)
		w.expire(name, ms)
		held, err := l.Held(w.ctx)
		if err != nil || held == free {
			w.Errorf("ends in %d ms: held is %v, %v", ms, held, err)
		}
		_, err = w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Minute})
		if (err == nil) != free {
			w.Errorf("ends in %d ms: acquire says %v", ms, err)
		}
		w.cell()
	}
}

// lasts reports whether a lease ends between so many milliseconds from now.
func (w *world) lasts(name string, from, to int) bool {
	w.Helper()
	return w.count(`SELECT count(*) FROM lastword_leases WHERE name = ? AND leased_until BETWEEN `+w.engine.FromNow(from)+` AND `+w.engine.FromNow(to), name) == 1
}

func renewKeepsTTL(w *world) {
	name := w.name()
	l, err := w.store.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: 90 * time.Second})
	w.must(err, "acquire")
	if !w.lasts(name, 60_000, 90_000) {
		w.Error("the grant does not last its TTL")
	}
	w.expire(name, 30_000)
	until, err := l.Renew(w.ctx)
	w.must(err, "renew")
	if !w.lasts(name, 60_000, 90_000) {
		w.Error("the renewal does not last the TTL of the grant")
	}
	if !until.After(l.Until().Add(-time.Second)) {
		w.Errorf("renewed until %v, granted until %v", until, l.Until())
	}
	w.cell()
}

func renewNeverRevives(w *world) {
	name := w.name()
	l := w.acquire(w.store, name)
	w.expire(name, -1)
	before := w.leaseRow(name)
	_, err := l.Renew(w.ctx)
	w.want(err, lastword.ErrExpired, "renew of an expired lease")
	var refused *lastword.RefusedError
	if !errors.As(err, &refused) || refused.Operation != "renew" || refused.Token != l.Token() {
		w.Errorf("%v tells too little", err)
	}
	if w.leaseRow(name) != before {
		w.Error("the row was touched")
	}
	_, err = l.Release(w.ctx)
	w.must(err, "release")
	_, err = l.Renew(w.ctx)
	w.want(err, lastword.ErrFenced, "renew of a released lease")
	w.cell()
}

// uses are all ways to use a lease's token.
func (w *world) uses(t lastword.Token, id int) map[string]error {
	uses := map[string]error{}
	_, uses["renew"] = w.store.Renew(w.ctx, t)
	_, uses["exec"] = w.store.Exec(w.ctx, t, w.sql(`INSERT INTO lwt_data (id, v) VALUES (?, 'exec')`), id)
	uses["tx"] = w.store.Tx(w.ctx, t, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, w.sql(`INSERT INTO lwt_data (id, v) VALUES (?, 'tx')`), id+1)
		return err
	})
	tx, err := w.db.BeginTx(w.ctx, nil)
	w.must(err, "begin")
	if uses["guard"] = w.store.Guard(w.ctx, tx, t); uses["guard"] == nil {
		_, err = tx.ExecContext(w.ctx, w.sql(`INSERT INTO lwt_data (id, v) VALUES (?, 'guard')`), id+2)
		w.must(err, "insert")
		w.must(tx.Commit(), "commit")
	} else if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
		w.Errorf("after a refused guard the transaction can still be committed: %v", err)
	}
	return uses
}

func staleTokenIsRefused(w *world) {
	for _, how := range []string{"in force", "taken over", "expired", "released", "row gone"} {
		name, id := w.name(), w.next()*10
		l := w.acquire(w.store, name)
		want := lastword.ErrFenced
		switch how {
		case "in force":
			want = nil
		case "taken over":
			w.takeOver(name)
		case "expired":
			w.expire(name, -1)
			want = lastword.ErrExpired
		case "released":
			_, err := l.Release(w.ctx)
			w.must(err, "release")
		case "row gone":
			w.exec(`DELETE FROM lastword_leases WHERE name = ?`, name)
		}
		before := w.leaseRow(name)
		for use, err := range w.uses(l.Token(), id) {
			w.want(err, want, "%s: %s", how, use)
			w.cell()
		}
		wrote := w.count(`SELECT count(*) FROM lwt_data WHERE id BETWEEN ? AND ?`, id, id+9)
		if want == nil && wrote != 3 || want != nil && wrote != 0 {
			w.Errorf("%s: %d writes were committed", how, wrote)
		}
		if held, err := l.Held(w.ctx); err != nil || held != (want == nil) {
			w.Errorf("%s: held is %v, %v", how, held, err)
		}
		if want != nil && w.leaseRow(name) != before {
			w.Errorf("%s: the row was touched", how)
		}
		if how == "taken over" {
			if released, err := l.Release(w.ctx); err != nil || released || w.leaseRow(name) != before {
				w.Errorf("a stale release says %v, %v, or touched the row", released, err)
			}
		}
	}
}

func bothCount(w *world) {
	name, other, id := w.name(), w.name(), w.next()*10
	good := w.acquire(w.store, name).Token()
	w.acquire(w.store, other)
	good.Epoch = 3
	w.exec(`UPDATE lastword_leases SET fence = 3 WHERE name = ?`, name)
	for what, change := range map[string]func(*lastword.Token){
		"another name":        func(t *lastword.Token) { t.Name = other },
		"a lower epoch":       func(t *lastword.Token) { t.Epoch-- },
		"a higher epoch":      func(t *lastword.Token) { t.Epoch++ },
		"another nonce":       func(t *lastword.Token) { t.Nonce = strings.Repeat("A", 26) },
		"the nonce's start":   func(t *lastword.Token) { t.Nonce = t.Nonce[:6] },
		"the nonce in lower":  func(t *lastword.Token) { t.Nonce = strings.ToLower(t.Nonce) },
		"the name in capital": func(t *lastword.Token) { t.Name = strings.ToUpper(t.Name) },
	} {
		t := good
		change(&t)
		for use, err := range w.uses(t, id) {
			w.want(err, lastword.ErrFenced, "%s: %s", what, use)
			w.cell()
		}
	}
	if n := w.count(`SELECT count(*) FROM lwt_data WHERE id BETWEEN ? AND ?`, id, id+9); n != 0 {
		w.Errorf("%d writes were committed", n)
	}
}
