package lastword

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// LeaseOptions say how to acquire a lease.
type LeaseOptions struct {
	// TTL is how long the lease lives without a renewal: 1 s to 24 h, in whole milliseconds. Required.
	TTL time.Duration
	// Wait is how long to wait for a held lease; 0 does not wait, a negative value waits until the context ends.
	Wait time.Duration
	// Label is added to the holder that others see, after host and process.
	Label string
	// MinHold is how long [Store.WithLease] keeps others away after the grant, however soon the job is done: a nightly job of 5 ms then
	// runs once, also when the clocks that start it differ by less than MinHold. At most 24 h; 0 is none.
	MinHold time.Duration
}

// Lease is one grant of a lease. Its methods are safe for use by several goroutines. Holding the value proves nothing: only the
// guard of a write does.
type Lease struct {
	store   *Store
	token   Token
	ttl     time.Duration
	until   time.Time // by the database's clock, at the grant
	granted time.Time // on this process's clock, before the request was sent
}

// Acquire takes the lease if it is free, or becomes free within opts.Wait. A fresh name begins with fence 1, every later grant has
// a higher fence. It is not re-entrant: a holder that asks again is answered like anybody else.
//
// A held lease is a [HeldError], at once when opts.Wait is 0, and the live row is not touched. A name outside
// of 1–120 characters of [A-Za-z0-9:_./-] or a TTL outside of its bounds is [ErrInvalid], before the database is asked.
func (s *Store) Acquire(ctx context.Context, name string, opts LeaseOptions) (*Lease, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	if err := validateTTL("TTL", opts.TTL); err != nil {
		return nil, err
	}
	if opts.MinHold < 0 || opts.MinHold > maxTTL {
		return nil, invalidf("MinHold is %v: 0 to %v are allowed", opts.MinHold, maxTTL)
	}
	a := acquisition{store: s, name: name, ttl: opts.TTL.Truncate(time.Millisecond), holder: s.holder, nonce: newNonce()}
	if opts.Label != "" {
		a.holder += " " + opts.Label
	}
	started := time.Now()
	lease, err := a.try(ctx)
	if errors.Is(err, ErrHeld) && opts.Wait != 0 {
		lease, err = a.wait(ctx, opts.Wait, err)
	}
	switch {
	case err == nil:
		s.observe(Observation{What: Acquired, Kind: KindLease, Name: name, Duration: time.Since(started)})
	case errors.Is(err, ErrHeld):
		s.observe(Observation{What: Held, Kind: KindLease, Name: name, Duration: time.Since(started)})
	}
	return lease, err
}

type acquisition struct {
	store   *Store
	name    string
	ttl     time.Duration
	holder  string
	nonce   string
	lastNow time.Time
	asked   time.Time // local, before the newest request for a grant was sent
}

// wait tries again until the lease is free, patience is over (negative: never) or ctx ends. Of all who wait for a name in this process one
// asks the database; the others wait for their turn.
func (a *acquisition) wait(ctx context.Context, patience time.Duration, held error) (*Lease, error) {
	waitCtx := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	turn, leave := a.store.turns.enter(waitCtx, a.name)
	defer leave()
	for waitCtx.Err() == nil {
		timer := time.NewTimer(time.Until(turn.next))
		select {
		case <-timer.C:
		case <-turn.released:
		case <-waitCtx.Done():
			timer.Stop()
			continue
		}
		timer.Stop()
		// On ctx: patience is for a held lease, not for the database's answer.
		lease, err := a.try(ctx)
		var now *HeldError
		if !errors.As(err, &now) {
			return lease, err
		}
		held, turn.next = err, time.Now().Add(a.pause(now))
	}
	if ctx.Err() == nil {
		return nil, held
	}
	return nil, fmt.Errorf("lastword: waiting for lease %q: %w: %w", a.name, context.Cause(ctx), held)
}

// pause is the time until the next try: until the lease ends if that is near, else a jittered poll.
func (a *acquisition) pause(held *HeldError) time.Duration {
	poll := 100*time.Millisecond + rand.N(100*time.Millisecond)
	if untilExpiry := held.Until.Sub(a.lastNow); untilExpiry > 0 && untilExpiry < poll {
		return untilExpiry + rand.N(5*time.Millisecond)
	}
	return poll
}

// try asks for the lease once. A grant that was long on its way (an INSERT waits for another session that has the same name and is not
// done) may be over, or nearly, by the time it is known, so it is renewed before anybody works under it, or taken anew.
func (a *acquisition) try(ctx context.Context) (*Lease, error) {
	for {
		lease, err := a.ask(ctx)
		if err != nil || time.Since(lease.granted) < a.ttl/3 {
			return lease, err
		}
		lease.granted = time.Now()
		lease.until, err = a.store.Renew(ctx, lease.token)
		switch {
		case err == nil:
			return lease, nil
		case !errors.Is(err, ErrExpired) && !errors.Is(err, ErrFenced):
			return nil, err
		}
	}
}

// ask reads first: a held lease is answered without touching its row, and a grant whose reply was lost is found again.
func (a *acquisition) ask(ctx context.Context) (*Lease, error) {
	s := a.store
	row, found, err := s.readLease(ctx, s.db, a.name)
	if err != nil {
		return nil, fmt.Errorf("lastword: acquire %q: %w", a.name, err)
	}
	a.lastNow = row.now
	if row.live && row.owner == a.nonce {
		return a.lease(row.fence, row.until), nil
	}
	if row.live {
		return nil, row.held(a.name)
	}
	statement := "LeaseTake"
	if !found {
		statement = "LeaseInsert"
	}
	var fence, until int64
	args := Args{"name": a.name, "owner": a.nonce, "ttl_ms": a.ttl.Milliseconds(), "holder": a.holder}
	var won bool
	err = s.autocommit(ctx, s.db, statement, "acquire "+a.name, func(q querier) (err error) {
		a.asked = time.Now()
		won, err = s.one(ctx, q, statement, args, &fence, &until)
		return err
	})
	if err != nil {
		return nil, err
	}
	if won {
		return a.lease(fence, fromMillis(until)), nil
	}
	row, _, err = s.readLease(ctx, s.db, a.name)
	if err != nil {
		return nil, fmt.Errorf("lastword: acquire %q: %w", a.name, err)
	}
	a.lastNow = row.now
	if row.owner == a.nonce { // where an INSERT cannot say what it did
		return a.lease(row.fence, row.until), nil
	}
	return nil, row.held(a.name)
}

func (a *acquisition) lease(fence int64, until time.Time) *Lease {
	return &Lease{store: a.store, token: Token{Kind: KindLease, Name: a.name, Epoch: fence, Nonce: a.nonce}, ttl: a.ttl, until: until, granted: a.asked}
}

type leaseRow struct {
	fence                int64
	owner, holder        string
	until, now, acquired time.Time
	live                 bool
	ttl                  time.Duration
}

func (r leaseRow) held(name string) error {
	return &HeldError{Name: name, Holder: r.holder, Until: r.until, Fence: r.fence}
}

func (s *Store) readLease(ctx context.Context, q querier, name string) (row leaseRow, found bool, err error) {
	var until, now, ttl, acquired int64
	found, err = s.one(ctx, q, "LeaseRead", Args{"name": name}, &row.fence, &row.owner, &row.holder, &until, &now, &row.live, &ttl, &acquired)
	row.until, row.now, row.acquired, row.ttl = fromMillis(until), fromMillis(now), fromMillis(acquired), time.Duration(ttl)*time.Millisecond
	return row, found, err
}

// Format keeps the nonce out of everything printed with fmt.
func (l *Lease) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, l.token) }

// Token returns the grant's token.
func (l *Lease) Token() Token { return l.token }

// Until returns when the lease would have ended without a renewal, by the database's clock.
func (l *Lease) Until() time.Time { return l.until }

// Tx is [Store.Tx] with the lease's token, bounded to a third of its TTL: a guarded transaction must not outlive the lease it
// stands on, and on some engines renewals wait for it.
func (l *Lease) Tx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.ttl/3, errTooLong(l.ttl/3))
	defer cancel()
	return l.store.Tx(ctx, l.token, opts, fn)
}

// Exec is [Store.Exec] with the lease's token.
func (l *Lease) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	return l.store.Exec(ctx, l.token, query, args...)
}

// Guard is [Store.Guard] with the lease's token.
func (l *Lease) Guard(ctx context.Context, tx *sql.Tx) error { return l.store.Guard(ctx, tx, l.token) }

// Renew is [Store.Renew] with the lease's token.
func (l *Lease) Renew(ctx context.Context) (until time.Time, err error) {
	return l.store.Renew(ctx, l.token)
}

// Held is [Store.Held] with the lease's token.
func (l *Lease) Held(ctx context.Context) (bool, error) { return l.store.Held(ctx, l.token) }

// Release is [Store.Release] with the lease's token.
func (l *Lease) Release(ctx context.Context) (bool, error) { return l.store.Release(ctx, l.token) }

func errTooLong(bound time.Duration) error {
	return fmt.Errorf("lastword: %w: a guarded transaction took longer than %v, a third of its lease", ErrFailed, bound)
}

// Renew makes a lease last another TTL from now, with the TTL of its grant, and returns the new end by the database's clock. It never revives
// an expired or lost lease: that is [ErrExpired] or [ErrFenced]. Any other error says nothing about the lease; try again.
func (s *Store) Renew(ctx context.Context, t Token) (until time.Time, err error) {
	return s.renewOn(ctx, s.db, t)
}

func (s *Store) renewOn(ctx context.Context, on connection, t Token) (until time.Time, err error) {
	if err := t.validateKind(KindLease); err != nil {
		return time.Time{}, err
	}
	var millis int64
	err = s.autocommit(ctx, on, "LeaseRenew", "renew "+t.Name, func(q querier) error {
		found, err := s.one(ctx, q, "LeaseRenew", t.args(), &millis)
		if err == nil && !found {
			return s.refusal(ctx, q, t, "renew")
		}
		return err
	})
	return fromMillis(millis), s.refused(err)
}

// Held asks whether the lease is still in force. It is advice: the answer may be over by the time it arrives. Only the guard
// protects a write.
func (s *Store) Held(ctx context.Context, t Token) (bool, error) {
	if err := t.validateKind(KindLease); err != nil {
		return false, err
	}
	var until int64
	found, err := s.one(ctx, s.db, "LeaseHeld", t.args(), &until)
	if err != nil {
		return false, fmt.Errorf("lastword: ask for lease %q: %w", t.Name, err)
	}
	return found, nil
}

// Release gives the lease back. The row and its fence stay. It returns false when the token does not hold the lease any more
// (a second release, or after a takeover) and then changes nothing.
func (s *Store) Release(ctx context.Context, t Token) (released bool, err error) {
	if err := t.validateKind(KindLease); err != nil {
		return false, err
	}
	var fence int64
	err = s.autocommit(ctx, s.db, "LeaseRelease", "release "+t.Name, func(q querier) (err error) {
		released, err = s.one(ctx, q, "LeaseRelease", t.args(), &fence)
		return err
	})
	if released {
		s.turns.release(t.Name)
		s.observe(Observation{What: Released, Kind: KindLease, Name: t.Name})
	}
	return released, err
}

func (t Token) validateKind(kind Kind) error {
	if err := t.validate(); err != nil {
		return err
	}
	if t.Kind != kind {
		return invalidf("token of kind %q where kind %q is wanted", string(t.Kind), string(kind))
	}
	return nil
}
