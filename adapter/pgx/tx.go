// Package pgxlastword guards writes through pgx's own interface, as package lastword does through database/sql: in the pgx transaction
// that writes, or in the one statement that does.
//
// A [lastword.Store] goes with it, opened with postgres.Dialect on the same database: it knows the statements and the prefix, and it reads and
// records on its own connections why a token was refused. One made by stdlib.OpenDBFromPool shares the pool. Errors, retries
// and refusals are those of the Store. In the mode of execution that pgx has by default each call below takes the round trips
// that its comment says as soon as the connection knows the statements; new statements cost one more, once a connection.
package pgxlastword

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword-go/lastword"
)

const (
	// A server that does not answer COMMIT for so long is taken for gone: ErrUnknown.
	commitTimeout   = 30 * time.Second
	rollbackTimeout = 5 * time.Second
)

// DB is a *pgxpool.Pool, or a *pgxpool.Conn or *pgx.Conn that is in no transaction. It must lead to the server itself or to a
// pooler that keeps a transaction on one session.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Tx runs fn in a transaction of its own that begins with the guard: when fn's writes are committed, token was in force, and nobody can
// have taken over before the commit. BEGIN and guard are one round trip; fn is called when the guard has answered.
//
// fn may run more than once: after a proven rollback for contention it is called again in a new transaction, a few times and
// with jitter. After an error of a statement only a rollback is possible, and an error that fn swallows is returned by Tx. The
// exception is a savepoint: what fails inside of tx.Begin is forgiven when that inner transaction is rolled back, and the guard, which is
// older, stays.
//
// Statements that end the transaction, and tx.Commit, are refused with [lastword.ErrInvalid], and then nothing is committed. tx.Rollback
// works, and Tx returns an error: fn's own, or else [lastword.ErrFailed]. tx.Conn and tx.LargeObjects give what is not watched: a COMMIT sent
// by Conn, or by a statement that was prepared before, ends the guard with the transaction; it is noticed and returned as
// [lastword.ErrUnknown], except for COMMIT AND CHAIN.
//
// opts without an isolation means READ COMMITTED. A BeginQuery of the caller's must begin a transaction that may write: the guard locks
// the token's row. The row stays locked until fn returns, so keep fn short: the server ends a transaction that idles for a third
// of the lease (at least a second, never above the user's own idle_in_transaction_session_timeout). Nothing else bounds fn but ctx.
//
// Errors: what fn returned (unless a statement failed and left the transaction aborted), or one that matches [lastword.ErrFenced],
// [lastword.ErrExpired] (*[lastword.RefusedError] has the details), [lastword.ErrContended], [lastword.ErrFailed] or [lastword.ErrUnknown]; where
// the reply to COMMIT was lost that is a *[UnknownError], which [Resolve] can settle. Only after ErrUnknown may the writes be
// there. When fn panics or ends its goroutine, the transaction is rolled back first.
func Tx(ctx context.Context, s *lastword.Store, db DB, token lastword.Token, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if err := check(s, db == nil, token); err != nil {
		return err
	}
	if opts.IsoLevel == "" && opts.BeginQuery == "" {
		opts.IsoLevel = pgx.ReadCommitted
	}
	guard := guardOf(s, token)
	return retry(ctx, db, func() (bool, error) {
		again, err := transact(ctx, s, db, guard, opts, fn)
		if errors.Is(err, errNotInForce) {
			return refuse(ctx, s, token, "guard")
		}
		return again, err
	})
}

func check(s *lastword.Store, noDB bool, token lastword.Token) error {
	switch {
	case s == nil || noDB:
		return invalidf("the Store or the database is nil")
	case s.Dialect().Name != "postgres":
		return invalidf("the Store is on %s, and pgx talks to PostgreSQL", s.Dialect().Name)
	}
	_, err := lastword.ParseToken(token.String())
	return err
}

// acquire lends the connection of one transaction. The pool destroys one that comes back closed or in a transaction.
func acquire(ctx context.Context, db DB) (conn *pgx.Conn, release func(), err error) {
	release = func() {}
	switch db := db.(type) {
	case interface {
		Acquire(ctx context.Context) (*pgxpool.Conn, error)
	}:
		pooled, err := db.Acquire(ctx)
		if err != nil {
			return nil, nil, failed("getting a connection", err)
		}
		conn, release = pooled.Conn(), pooled.Release
	case interface{ Conn() *pgx.Conn }:
		conn = db.Conn()
	case *pgx.Conn:
		conn = db
	default:
		return nil, nil, invalidf("%T is no *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn", db)
	}
	switch {
	case conn.IsClosed():
		err = failed("getting a connection", errors.New("it is closed"))
	case conn.PgConn().TxStatus() != idle:
		err = invalidf("the connection is in a transaction already: use Guard")
	default:
		return conn, release, nil
	}
	release()
	return nil, nil, err
}

// transact runs one transaction.
func transact(ctx context.Context, s *lastword.Store, db DB, guard guard, opts pgx.TxOptions, fn func(context.Context, pgx.Tx) error) (again bool, err error) {
	conn, release, err := acquire(ctx, db)
	if err != nil {
		return false, err
	}
	defer release()
	t := &transaction{store: s, conn: conn}
	if err := t.begin(ctx, guard, opts); err != nil {
		t.rollback(ctx)
		return t.notBegun(ctx, err)
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or ended its goroutine
			t.rollback(ctx)
		}
	}()
	err = fn(ctx, &guardedTx{inner: t.tx, in: t})
	returned = true
	return t.finish(ctx, err)
}

// begin sends BEGIN and guard in one batch, and reads both answers. The guard that returns a row is enough: nothing is sent behind it
// before its row was read. It is also the cheaper one, and sets the bounds on idling.
func (t *transaction) begin(ctx context.Context, guard guard, opts pgx.TxOptions) error {
	batch := &pgx.Batch{}
	batch.BeginTx(opts)
	batch.Queue(guard.query, guard.args...)
	results := t.conn.SendBatch(ctx, batch)
	t.tx = results.Tx()
	_, err := results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(nil, nil, nil, &t.xid)
	}
	if closeErr := results.Close(); closeErr != nil && (err == nil || errors.Is(err, pgx.ErrNoRows)) {
		err = closeErr
	}
	return err
}

// notBegun says what an error of BEGIN or guard means: fn was not called, nothing can have been committed.
func (t *transaction) notBegun(ctx context.Context, err error) (again bool, _ error) {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, errNotInForce
	case ctx.Err() != nil:
		return false, failed("begin", context.Cause(ctx))
	case classify(t.store, err) == lastword.Contended:
		return true, err
	case t.conn.IsClosed():
		return true, fmt.Errorf("lastword: %w: %w: %w", lastword.ErrFailed, errNotBegun, err)
	}
	return false, failed("begin", err)
}

// rollback leaves the connection out of any transaction, or closed.
func (t *transaction) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = t.tx.Rollback(ctx) // an error closes the connection, and the server rolls back
	if t.state() != idle {
		_ = t.conn.Close(ctx)
	}
}

// finish commits when fn and all its statements went well, and rolls back else.
func (t *transaction) finish(ctx context.Context, err error) (again bool, _ error) {
	state := t.state()
	if t.rolledBackByFn {
		state = t.stateThen
	}
	if err == nil {
		err = t.unsound(ctx, state)
	}
	if err != nil {
		t.rollback(ctx)
		return t.rolledBack(err, state)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	err = t.tx.Commit(ctx)
	if err == nil {
		return false, nil
	}
	switch classify(t.store, err) {
	case lastword.Contended:
		return true, err
	case lastword.Answered, lastword.Fenced:
		return false, failed("commit", err)
	}
	return false, &UnknownError{XID: t.xid, Err: err, lost: "the reply to COMMIT"}
}

// unsound says why the transaction cannot be committed though fn returned no error.
func (t *transaction) unsound(ctx context.Context, state byte) error {
	switch {
	case t.misuse != nil:
		return t.misuse
	case t.rolledBackByFn:
		return failed("tx", errors.New("the function rolled back and returned no error"))
	case state == inError:
		return failed("tx", fmt.Errorf("the error of a statement was not returned: %w", t.cause()))
	case state == gone:
		return failed("tx", fmt.Errorf("the connection is gone: %w", t.cause()))
	case state == idle:
		return t.endedUnseen()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.conn.PgConn().IsBusy():
		return failed("tx", errors.New("the function left rows or the results of a batch unread"))
	}
	return nil
}

// rolledBack says what an error before COMMIT means; state is that before the rollback.
func (t *transaction) rolledBack(err error, state byte) (again bool, _ error) {
	switch {
	case state == idle && !errors.Is(err, lastword.ErrUnknown):
		return false, errors.Join(t.endedUnseen(), err)
	case classify(t.store, err) == lastword.Contended && !isVerdict(err), state == inError && t.failure != nil && classify(t.store, t.failure) == lastword.Contended:
		return true, err
	case isOutcome(err) || state == open:
		return false, err
	}
	return false, fmt.Errorf("lastword: %w: %w", lastword.ErrFailed, err)
}

func (t *transaction) endedUnseen() error {
	return fmt.Errorf("lastword: %w: the function ended the transaction by a way that is not watched", lastword.ErrUnknown)
}

func classify(s *lastword.Store, err error) lastword.ErrorClass {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return lastword.Unanswered
	}
	return s.Dialect().Classify(err)
}

func serverSays(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer)
}
