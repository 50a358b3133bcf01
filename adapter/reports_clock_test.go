package adapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/postgres"
)

// Sessions of different zones agree about every instant, also about one that the local clocks of a zone skip.
func TestReportsSessionZones(t *testing.T) {
	t.Parallel()
	dsn := newPostgres(t)
	stores := map[string]*lastword.Store{}
	for _, zone := range []string{"Europe/Berlin", "America/Los_Angeles", "Pacific/Kiritimati"} {
		db := postgresSession(t, dsn, map[string]string{"timezone": zone})
		if err := lastword.Migrate(t.Context(), db, postgres.Dialect(), nil); err != nil {
			t.Fatal(err)
		}
		s, err := lastword.Open(t.Context(), db, postgres.Dialect(), nil)
		if err != nil {
			t.Fatal(err)
		}
		stores[zone] = s
	}
	for mine, a := range stores {
		for other, b := range stores {
			name := mine + "." + other
			l, err := a.Acquire(t.Context(), name, lastword.LeaseOptions{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Acquire(t.Context(), name, lastword.LeaseOptions{TTL: time.Minute})
			var held *lastword.HeldError
			if !errors.As(err, &held) || !held.Until.Equal(l.Until()) {
				t.Errorf("%s holds until %v, %s is told %v", mine, l.Until(), other, err)
			}
			if until, err := b.Renew(t.Context(), l.Token()); err != nil || until.Before(l.Until()) {
				t.Errorf("%s renews for %s until %v, granted until %v: %v", other, mine, until, l.Until(), err)
			}
			gap := time.Date(2024, 3, 31, 2, 30, 0, 0, time.UTC)
			if _, err := a.DB().ExecContext(t.Context(), `UPDATE lastword_leases SET leased_until = $2 WHERE name = $1`, name, gap); err != nil {
				t.Fatal(err)
			}
			if list, err := b.Leases(t.Context(), name[:len(name)-1], 1); err != nil || len(list) != 1 || !list[0].Until.Equal(gap) {
				t.Errorf("%s says %v, want the end %v: %v", other, list, gap, err)
			}
			if _, err := b.Acquire(t.Context(), name, lastword.LeaseOptions{TTL: time.Minute}); err != nil {
				t.Errorf("%s takes over from %s: %v", other, mine, err)
			}
		}
	}
}

// A renewal that waited for the row until after the lease's end must not revive it.
func reportRenewalThatWaited(r *trial) {
	l, err := r.a.Acquire(r.ctx, "job", lastword.LeaseOptions{TTL: time.Second})
	r.must(err)
	sent := make(chan struct{})
	r.tamperWith("LeaseRenew", func(context.Context, driver.Conn) error {
		r.tamper.with(nil)
		close(sent)
		return nil
	})
	unlock := r.lockLease("job")
	renewed := make(chan error, 1)
	go func() {
		_, err := l.Renew(r.ctx)
		renewed <- err
	}()
	<-sent
	r.until("the renewal waits", func() bool { return r.waiting() != 0 })
	r.ended("job")
	unlock()
	r.want(<-renewed, lastword.ErrExpired, "a renewal that waited past the end")
}

// A client whose clock is off by decades is a client like any other: only the database's clock decides.
func TestReportsClientClock(t *testing.T) {
	t.Parallel()
	r := newTrial(t, postgresEngine(t, ""))
	for year, ahead := range map[string]time.Duration{"2000": 0, "2050": 50 * 365 * 24 * time.Hour} {
		r.acquire(r.b, "held"+year)
		r.acquire(r.b, "ended"+year)
		r.expire("ended" + year)
		var token lastword.Token
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(ahead) // the clock of the bubble begins in 2000; the server stands outside
			db := sql.OpenDB(r.engine.Connector)
			defer db.Close()
			s, err := lastword.Open(t.Context(), db, r.engine.Dialect, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Acquire(t.Context(), "held"+year, lastword.LeaseOptions{TTL: time.Minute}); !errors.Is(err, lastword.ErrHeld) {
				t.Errorf("in %s a held lease is answered %v", year, err)
			}
			l, err := s.Acquire(t.Context(), "ended"+year, lastword.LeaseOptions{TTL: time.Minute})
			if err != nil {
				t.Fatalf("in %s an ended lease is answered %v", year, err)
			}
			if _, err := l.Renew(t.Context()); err != nil {
				t.Errorf("in %s a renewal is answered %v", year, err)
			}
			if held, err := l.Held(t.Context()); err != nil || !held {
				t.Errorf("in %s the lease is held: %v, %v", year, held, err)
			}
			if err := l.Tx(t.Context(), nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
				t.Errorf("in %s a guarded transaction is answered %v", year, err)
			}
			token = l.Token()
		})
		if n := r.count(`SELECT count(*) FROM lastword_leases WHERE name = 'ended` + year + `' AND fence = 2 AND leased_until BETWEEN ` + r.engine.FromNow(30_000) + ` AND ` + r.engine.FromNow(60_000)); n != 1 {
			t.Errorf("the grant to the client in %s does not last a minute of the database", year)
		}
		r.want(r.try(r.b, "ended"+year), lastword.ErrHeld, "a lease of a client in "+year)
		r.expire("ended" + year)
		r.want(r.try(r.b, "ended"+year), nil, "an ended lease of a client in "+year)
		_, err := r.a.Renew(r.ctx, token)
		r.want(err, lastword.ErrFenced, "the client in "+year+" after the takeover")
	}
}

// A TTL lasts to the millisecond: it is neither cut to whole seconds nor rounded to nothing.
func TestReportsShortTTL(t *testing.T) { eachEngine(t, reportShortTTL) }

func reportShortTTL(r *trial) {
	for name, ttl := range map[string]time.Duration{"a": time.Second, "b": 1999*time.Millisecond + 999*time.Microsecond, "c": 1001 * time.Millisecond} {
		l, err := r.a.Acquire(r.ctx, name, lastword.LeaseOptions{TTL: ttl})
		r.must(err)
		list, err := r.b.Leases(r.ctx, "", 10)
		r.must(err)
		got := list[len(list)-1]
		for _, lease := range list {
			if lease.Name == name {
				got = lease
			}
		}
		if off := l.Until().Sub(got.Acquired) - ttl.Truncate(time.Millisecond); got.TTL != ttl.Truncate(time.Millisecond) || off < -time.Millisecond || off > time.Millisecond {
			r.Errorf("TTL %v is kept as %v and lasts %v", ttl, got.TTL, l.Until().Sub(got.Acquired))
		}
	}
}
