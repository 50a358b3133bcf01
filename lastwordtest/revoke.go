package lastwordtest

import (
	"context"
	"database/sql"
	"time"

	"github.com/lastword-go/lastword"
)

func revokePromises() []promise {
	return []promise{
		{"a revocation raises the fence and frees the lease", revokeFences},
		{"a revocation waits for an open guarded transaction", revokeWaits},
		{"a job that is done early keeps others away for MinHold", minHold},
	}
}

func revokeFences(w *world) {
	name := w.name()
	_, err := w.store.Revoke(w.ctx, name)
	w.want(err, lastword.ErrNotFound, "revoking a name that was never acquired")
	_, err = w.store.Revoke(w.ctx, "no good name")
	w.want(err, lastword.ErrInvalid, "revoking a bad name")
	l := w.acquire(w.store, name)
	for want := int64(2); want <= 3; want++ {
		fence, err := w.storeB.Revoke(w.ctx, name)
		w.must(err, "revoke")
		if fence != want {
			w.Errorf("the revocation says fence %d, want %d", fence, want)
		}
		w.cell()
	}
	_, err = l.Renew(w.ctx)
	w.want(err, lastword.ErrFenced, "renewing what was revoked")
	w.want(w.store.Tx(w.ctx, l.Token(), nil, func(context.Context, *sql.Tx) error { return nil }), lastword.ErrFenced, "writing under what was revoked")
	if released, err := l.Release(w.ctx); err != nil || released {
		w.Errorf("releasing what was revoked: %v, %v", released, err)
	}
	if next := w.acquire(w.storeB, name); next.Token().Epoch != 4 {
		w.Errorf("the next grant has fence %d", next.Token().Epoch)
	}
	w.cell()
}

func revokeWaits(w *world) {
	name := w.name()
	l := w.acquire(w.store, name)
	var revoking *asynchronous
	w.must(w.store.Tx(w.ctx, l.Token(), nil, func(context.Context, *sql.Tx) error {
		revoking = async(func() error {
			_, err := w.storeB.Revoke(w.ctx, name)
			return err
		})
		select {
		case <-revoking.done:
			w.Errorf("the revocation did not wait for the guard: %v", revoking.err)
		case <-time.After(100 * time.Millisecond):
		}
		return nil
	}), "the guarded transaction that was first")
	w.must(revoking.wait(w), "the revocation")
	w.want(w.store.Tx(w.ctx, l.Token(), nil, func(context.Context, *sql.Tx) error { return nil }), lastword.ErrFenced, "the next guarded transaction")
	w.cell()
}

func minHold(w *world) {
	job := func(context.Context, *lastword.Lease) error { return nil }
	name := w.name()
	w.must(w.store.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: time.Second, MinHold: time.Hour}, job), "a job of no time")
	_, err := w.storeB.Acquire(w.ctx, name, lastword.LeaseOptions{TTL: time.Second})
	w.want(err, lastword.ErrHeld, "another within MinHold")
	if n := w.count(`SELECT count(*) FROM lastword_leases WHERE name = ? AND leased_until > `+w.engine.FromNow(3_500_000)+` AND leased_until <= `+w.engine.FromNow(3_600_000), name); n != 1 {
		w.Error("the lease does not end at its MinHold")
	}
	w.expire(name, -1)
	w.acquire(w.storeB, name)
	w.cell()
	name = w.name()
	w.must(w.store.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: time.Second, MinHold: time.Nanosecond}, job), "a job longer than its MinHold")
	w.acquire(w.storeB, name)
	w.want(w.store.WithLease(w.ctx, name, lastword.LeaseOptions{TTL: time.Second, MinHold: -1}, job), lastword.ErrInvalid, "a negative MinHold")
	w.cell()
}
