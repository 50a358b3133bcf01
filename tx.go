package lastword

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const (
	maxTries  = 8
	retryTime = 5 * time.Second // after so long there is no further try, after the second one
	// A server that does not answer COMMIT for so long is taken for gone: ErrUnknown.
	commitTimeout   = 30 * time.Second
	rollbackTimeout = 5 * time.Second
)

// Tx runs fn in a transaction of its own that begins with the guard: when fn's writes are committed, token t was in force, and
// nobody can have taken over before the commit.
//
// fn may run more than once: after a proven rollback for contention (a deadlock, a serialization failure, a busy database) it
// is called again in a new transaction, a few times and with jitter. It must return the errors of its statements. If it
// swallows one, later statements on tx fail and nothing is committed: after an error only a rollback is sound. Statements that
// end the transaction are refused, on MySQL that is DDL too; one that a CALL hides there is found before COMMIT, and is
// [ErrUnknown]. On SQLite, calls of the Store inside fn must be given tx, or they are refused with [ErrInvalid]: there is one writer,
// and it is fn. Statements prepared on the caller's *sql.DB cannot be used on tx.
//
// opts nil means the engine's proper isolation (READ COMMITTED on PostgreSQL and MySQL). The token's row stays locked until fn returns,
// so keep fn short: on PostgreSQL the server ends a transaction that idles for a third of the lease, on MariaDB one that idles
// beyond the deadline of ctx. On MySQL a renewal or release of this lease waits until then, so fn must not call for one.
//
// Errors: what fn returned, or one that matches [ErrFenced], [ErrExpired] ([RefusedError] has the details), [ErrContended],
// [ErrFailed] or [ErrUnknown]. Only after ErrUnknown may the writes be there.
func (s *Store) Tx(ctx context.Context, t Token, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := t.validate(); err != nil {
		return err
	}
	err := s.transact(ctx, opts, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.guard(ctx, tx, t); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	return s.refused(err)
}

// InTx runs fn in a transaction without a guard, for what needs no token but must be whole, such as a [Store.Submit] with rows of the
// caller's own. Everything else is as in [Store.Tx]: fn may run more than once, and a lost reply of COMMIT is [ErrUnknown].
func (s *Store) InTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return s.transact(ctx, opts, fn)
}

// transact runs fn in a transaction, again after contention. It is the only place that begins and commits.
func (s *Store) transact(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if opts == nil {
		opts = &sql.TxOptions{Isolation: s.dialect.Isolation}
	}
	return s.retry(ctx, func() (again bool, err error) {
		leave, err := s.enterWriter(ctx)
		if err != nil {
			return false, err
		}
		defer leave()
		return s.transactOnce(ctx, opts, fn)
	})
}

// errNotBegun: BEGIN failed, most likely on a connection that died in the pool.
var errNotBegun = errors.New("begin")

// retry calls try again while it asks for it, with full jitter under a growing cap. Dead connections do not count as tries: each
// failed BEGIN takes one out of the pool.
func (s *Store) retry(ctx context.Context, try func() (again bool, err error)) error {
	dead, mayDie, started := 0, 0, time.Now()
	for n := 1; ; n++ {
		again, err := try()
		if !again {
			return err
		}
		// A database that waits for seconds before it gives up (SQLite's busy timeout) has waited for us.
		if time.Since(started) > retryTime && n > 1 {
			return fmt.Errorf("lastword: %w for %v: %w", ErrContended, time.Since(started).Round(time.Millisecond), err)
		}
		if errors.Is(err, errNotBegun) {
			if dead == 0 {
				mayDie = s.db.Stats().OpenConnections + maxTries // of the pool as it was: it shrinks as they die
			}
			if dead++; dead > mayDie {
				return err
			}
			n--
		}
		if n == maxTries {
			return fmt.Errorf("lastword: %w after %d tries: %w", ErrContended, n, err)
		}
		pause := time.NewTimer(rand.N(time.Millisecond << max(n, 1)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("lastword: %w: %w: %w", ErrContended, context.Cause(ctx), err)
		}
	}
}

// transactOnce borrows one connection of the pool and runs one transaction on it. It lends the connection to a pool of one, so that
// fn gets a real *sql.Tx whose statements pass through pinned.
func (s *Store) transactOnce(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) (again bool, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("lastword: %w: getting a connection: %w", ErrFailed, err)
	}
	defer conn.Close()
	var panicked any
	badConn := conn.Raw(func(raw any) error {
		driverConn, ok := raw.(driver.Conn)
		if !ok {
			err = fmt.Errorf("lastword: %w: the driver gives no driver.Conn", ErrFailed)
			return nil
		}
		p := &pinned{conn: driverConn, admits: s.Admit, hides: s.dialect.HidesEnd, mark: s.statement("TxMark").Text, marked: s.statement("TxMarked").Text}
		again, panicked, err = s.transactPinned(ctx, p, opts, fn)
		if !p.broken {
			p.broken = s.afterEnd(ctx, p) != nil
		}
		if p.broken {
			return driver.ErrBadConn
		}
		return nil
	})
	if panicked != nil {
		panic(panicked)
	}
	if err == nil && badConn != nil && !errors.Is(badConn, driver.ErrBadConn) {
		err = fmt.Errorf("lastword: %w: %w", ErrFailed, badConn)
	}
	return again, err
}

// beforeBegin is what the session is told before BEGIN; see section TxBefore.
func (s *Store) beforeBegin(ctx context.Context) string {
	idle := 0
	if deadline, ok := ctx.Deadline(); ok {
		idle = int(max(1, min(math.Ceil(time.Until(deadline).Seconds()), maxTTL.Seconds())))
	}
	return strings.ReplaceAll(s.statement("TxBefore").Text, "{idle_s}", strconv.Itoa(idle))
}

// endedInside says that a statement of the function has ended the transaction: what ran before it was guarded and is committed, and so
// the function must not run again.
func (s *Store) endedInside(ctx context.Context, p *pinned) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = p.stillBegun(ctx)
	return p.ended
}

// afterEnd gives the session back as it was.
func (s *Store) afterEnd(ctx context.Context, p *pinned) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return p.tell(ctx, s.statement("TxAfter").Text)
}

func (s *Store) transactPinned(ctx context.Context, p *pinned, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) (again bool, panicked any, err error) {
	db := sql.OpenDB(p)
	defer db.Close()
	db.SetMaxOpenConns(1)
	// A cancelled caller must not cut off the reply to COMMIT: the transaction lives by its own context.
	txCtx, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	var tx *sql.Tx
	if err = p.tell(ctx, s.beforeBegin(ctx)); err == nil {
		tx, err = db.BeginTx(txCtx, opts)
	}
	if err != nil {
		p.broken = true
		if ctx.Err() != nil {
			return false, nil, fmt.Errorf("lastword: %w: begin: %w", ErrFailed, context.Cause(ctx))
		}
		return true, nil, fmt.Errorf("lastword: %w: %w: %w", ErrFailed, errNotBegun, err)
	}
	defer tx.Rollback() // only where fn ended its goroutine (runtime.Goexit) is there something left to undo
	panicked, err = call(context.WithValue(ctx, writing{}, s), tx, fn)
	if ended := s.endedInside(ctx, p); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(ended, err)
	}
	if err == nil && panicked == nil {
		switch {
		case p.failure != nil:
			err = fmt.Errorf("the error of a statement was not returned: %w", p.failure)
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		}
	}
	if err != nil || panicked != nil {
		timer := time.AfterFunc(rollbackTimeout, cutOff)
		defer timer.Stop()
		if rollbackErr := tx.Rollback(); rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) {
			p.broken = true
		}
		again, err = s.rolledBack(err, p.failure)
		return again && panicked == nil, panicked, err
	}
	timer := time.AfterFunc(commitTimeout, cutOff)
	defer timer.Stop()
	if err := tx.Commit(); err != nil {
		p.broken = true
		again, err := s.commitFailed(err)
		return again, nil, err
	}
	return false, nil, nil
}

// writing marks the context of a transaction's function with its Store.
type writing struct{}

func call(ctx context.Context, tx *sql.Tx, fn func(context.Context, *sql.Tx) error) (panicked any, err error) {
	defer func() { panicked = recover() }()
	return nil, fn(ctx, tx)
}

// rolledBack says what an error before COMMIT means: nothing was written, that is proven.
func (s *Store) rolledBack(err, failure error) (again bool, _ error) {
	if err == nil || isOutcome(err) {
		return false, err
	}
	if errors.Is(err, errLookAgain) || s.classify(err) == Contended || failure != nil && s.classify(failure) == Contended {
		return true, err
	}
	if failure != nil {
		return false, fmt.Errorf("lastword: %w: %w", ErrFailed, err)
	}
	return false, err
}

func (s *Store) commitFailed(err error) (again bool, _ error) {
	switch s.classify(err) {
	case Contended:
		return true, err
	case Answered, Fenced:
		return false, fmt.Errorf("lastword: %w: commit: %w", ErrFailed, err)
	}
	return false, fmt.Errorf("lastword: %w: the reply to COMMIT was lost: %w", ErrUnknown, err)
}

func (s *Store) classify(err error) ErrorClass {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unanswered
	}
	return s.dialect.Classify(err)
}

func isOutcome(err error) bool {
	for _, outcome := range []error{ErrFenced, ErrExpired, ErrContended, ErrUnknown, ErrFailed, ErrHeld, ErrNotFound, ErrConflict, ErrInvalid} {
		if errors.Is(err, outcome) {
			return true
		}
	}
	return false
}

// within runs fn in the caller's transaction, or in one of its own when tx is nil.
func (s *Store) within(ctx context.Context, tx *sql.Tx, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if tx != nil {
		return fn(ctx, tx)
	}
	return s.transact(ctx, nil, fn)
}

// connection is a *sql.DB or a *sql.Conn.
type connection interface {
	querier
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// autocommit runs one section that commits by itself, again after contention; what says in errors what it was for.
func (s *Store) autocommit(ctx context.Context, on connection, section, what string, fn func(q querier) error) error {
	return s.retry(ctx, func() (bool, error) {
		leave, err := s.enterWriter(ctx)
		if err != nil {
			return false, err
		}
		defer leave()
		if s.statement(section).Then != nil {
			err = s.inSteps(ctx, on, fn)
		} else {
			err = fn(on)
		}
		switch {
		case err == nil || isOutcome(err):
			return false, err
		case s.classify(err) == Contended:
			return true, err
		}
		return false, fmt.Errorf("lastword: %s: %w", what, err)
	})
}

// inSteps runs a section of several statements. Its writes are of the library's own tables and tell by their rows what they did, so it
// needs no more than a plain transaction.
func (s *Store) inSteps(ctx context.Context, on connection, fn func(q querier) error) error {
	tx, err := on.BeginTx(ctx, &sql.TxOptions{Isolation: s.dialect.Isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// enterWriter queues writers of this process on an engine with a single writer, where waiting in the database is unfair. A wait
// that the context ends is contention.
func (s *Store) enterWriter(ctx context.Context) (leave func(), err error) {
	if s.writer == nil {
		return func() {}, nil
	}
	if ctx.Value(writing{}) == s {
		return nil, invalidf("inside the function of a transaction, pass its tx: another transaction would wait for this one")
	}
	select {
	case s.writer <- struct{}{}:
		return func() { <-s.writer }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("lastword: %w: waiting for the one writer of this database: %w", ErrContended, context.Cause(ctx))
	}
}
