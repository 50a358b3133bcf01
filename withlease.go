package lastword

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// releaseTimeout bounds the release at the end of a job; the lease expires by itself where it fails.
const releaseTimeout = 5 * time.Second

// WithLease acquires the lease, runs fn, and releases the lease when fn has returned. Meanwhile it renews the lease every third of
// its TTL, on a connection of its own where the pool has more than one.
//
// fn's context is cancelled when the lease is lost, or when no renewal got through until shortly before its end, with a cause that
// matches [ErrFenced] (context.Cause). fn should then stop; its guarded writes are refused in any case. fn runs once. A panic in fn
// releases the lease and goes on.
//
// Errors: those of [Store.Acquire], then what fn returned. When the lease was lost while fn ran, the error also matches ErrFenced,
// even if fn returned nil: what fn did outside of guarded writes may have overlapped with the next holder.
func (s *Store) WithLease(ctx context.Context, name string, opts LeaseOptions, fn func(ctx context.Context, l *Lease) error) error {
	lease, err := s.Acquire(ctx, name, opts)
	if err != nil {
		return err
	}
	jobCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var lost error
	renewCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	conn := s.reserve(renewCtx, lease.ttl/10)
	keep := &keepAlive{
		ttl:      lease.ttl,
		deadline: true,
		log:      s.log,
		observe:  s.observeAs(KindLease, name),
		renew:    func(ctx context.Context) error { return conn.renew(ctx, lease.token) },
		lost: func(cause error) {
			lost = cause
			cancel(cause)
			s.observe(Observation{What: Lost, Kind: KindLease, Name: name, Err: cause})
		},
	}
	var renewing sync.WaitGroup
	renewing.Go(func() { keep.run(renewCtx, lease.granted) })
	defer func() {
		stopRenewing()
		renewing.Wait()
		conn.close()
		s.releaseAfter(ctx, lease, opts.MinHold)
	}()
	err = fn(jobCtx, lease)
	stopRenewing()
	renewing.Wait()
	switch {
	case lost == nil:
		return err
	case err == nil:
		return fmt.Errorf("lastword: lease %q was lost while its job ran: %w", name, lost)
	case errors.Is(err, ErrFenced):
		return err
	}
	return fmt.Errorf("%w (lastword: lease %q was lost while its job ran: %w)", err, name, lost)
}

// releaseAfter releases on a context of its own: the job's may be the one that just ended. Before the minimum has passed it leaves the lease
// to expire at its end instead.
func (s *Store) releaseAfter(ctx context.Context, lease *Lease, minHold time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	kept := false
	var err error
	if minHold > 0 {
		args := lease.token.args()
		args["hold_ms"] = minHold.Milliseconds()
		err = s.autocommit(ctx, s.db, "LeaseKeep", "keep "+lease.token.Name, func(q querier) (err error) {
			var fence int64
			kept, err = s.one(ctx, q, "LeaseKeep", args, &fence)
			return err
		})
	}
	if !kept && err == nil {
		_, err = lease.Release(ctx)
	}
	if err != nil {
		s.log.WarnContext(ctx, "a lease could not be released; it will expire", "lease", lease.token, "error", err)
	}
}

// reserved is the connection that renewals use, so that a job that takes every connection of the pool does not starve them.
type reserved struct {
	store *Store
	mu    sync.Mutex
	conn  *sql.Conn
}

// reserve takes a connection, or goes without one when the pool has none to give for so long.
func (s *Store) reserve(ctx context.Context, patience time.Duration) *reserved {
	r := &reserved{store: s}
	if s.db.Stats().MaxOpenConnections != 1 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		r.conn, _ = s.db.Conn(ctx)
	}
	return r
}

// renew is not run twice at once: a renewal that was left behind blocked keeps the connection, and the next one waits for it. A connection
// whose renewal failed is not used again: it may be the only one that is still tied to a server that went read-only.
func (r *reserved) renew(ctx context.Context, t Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.conn != nil {
		_, err := r.store.renewOn(ctx, r.conn, t)
		if err == nil || isOutcome(err) || ctx.Err() != nil {
			return err
		}
		go r.conn.Close()
		r.conn = nil
	}
	_, err := r.store.Renew(ctx, t)
	return err
}

// close waits for nobody: a driver that ignores its context, or panicked, can hold the connection for ever.
func (r *reserved) close() {
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.conn != nil {
			_ = r.conn.Close()
		}
	}()
}
