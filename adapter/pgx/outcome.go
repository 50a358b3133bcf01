package pgxlastword

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastword-go/lastword"
)

const maxTries = 8

var (
	// errNotBegun: nothing was run, most likely on a connection that died in the pool.
	errNotBegun = errors.New("begin")
	// errNotInForce: the guard found no row, or raised.
	errNotInForce = errors.New("lastword: the token is not in force")
	// errOldSnapshot: it found none, and yet the token is in force.
	errOldSnapshot = errors.New("lastword: the transaction's snapshot is older than the token's row")
)

// retry calls try again while it asks for it, with full jitter under a growing cap. Dead connections do not count as tries:
// each takes one out of the pool. A single connection has no successor.
func retry(ctx context.Context, db DB, try func() (again bool, err error)) error {
	dead, mayDie := 0, 0
	for n := 1; ; n++ {
		again, err := try()
		if !again {
			return err
		}
		if errors.Is(err, errNotBegun) {
			if pool, ok := db.(interface{ Stat() *pgxpool.Stat }); ok && dead == 0 {
				mayDie = int(pool.Stat().TotalConns()) + maxTries // of the pool as it was: it shrinks as they die
			}
			if dead++; dead > mayDie {
				return err
			}
			n--
		}
		if n == maxTries {
			return fmt.Errorf("lastword: %w after %d tries: %w", lastword.ErrContended, n, err)
		}
		if !pause(ctx, rand.N(time.Millisecond<<max(n, 1))) {
			return fmt.Errorf("lastword: %w: %w: %w", lastword.ErrContended, context.Cause(ctx), err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse asks why the token is not in force, when the connection has been given back.
func refuse(ctx context.Context, s *lastword.Store, token lastword.Token, operation string) (again bool, _ error) {
	err := s.Refuse(ctx, token, operation)
	switch {
	case err == nil:
		return true, errOldSnapshot
	case isOutcome(err):
		return false, err
	}
	return false, failed(operation, fmt.Errorf("%w, and why could not be read: %w", errNotInForce, err))
}

// isVerdict: a verdict on the token, or one that was reached before.
func isVerdict(err error) bool {
	return errors.Is(err, lastword.ErrFenced) || errors.Is(err, lastword.ErrExpired) || errors.Is(err, lastword.ErrContended) || errors.Is(err, lastword.ErrUnknown) || errors.Is(err, lastword.ErrFailed)
}

func isOutcome(err error) bool {
	return isVerdict(err) || errors.Is(err, lastword.ErrHeld) || errors.Is(err, lastword.ErrNotFound) || errors.Is(err, lastword.ErrConflict) || errors.Is(err, lastword.ErrInvalid)
}

func failed(what string, err error) error {
	return fmt.Errorf("lastword: %w: %s: %w", lastword.ErrFailed, what, err)
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("lastword: %w: "+format, append([]any{lastword.ErrInvalid}, args...)...)
}

// UnknownError says that a reply was lost: what was written is there whole or not at all. errors.Is matches [lastword.ErrUnknown].
type UnknownError struct {
	XID int64 // the transaction's id, for txid_status; 0 after [Exec], where it was to come with the lost reply
	Err error // what the connection said

	lost string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("lastword: %v: %s was lost: %v", lastword.ErrUnknown, e.lost, e.Err)
}

// Unwrap returns ErrUnknown and Err.
func (e *UnknownError) Unwrap() []error { return []error{lastword.ErrUnknown, e.Err} }

// Resolve asks the server what became of the transaction of a *[UnknownError] that [Tx] returned, and waits, until ctx ends, while
// it is in progress: the COMMIT may still be on its way, and a transaction whose client has gone is ended by the bounds that the guard
// has set. true: it was committed. false without an error: it was rolled back, and writing again is sound.
//
// An error means that it is still unknown, and matches [lastword.ErrUnknown]. That is so for an id of [Exec] (0), for one so old that the
// server has forgotten it, and when the server could not be asked. db must lead to the same server: after a failover to a replica or
// a restore that lost the transaction, its id may have been given to another. A *pgx.Conn whose reply was lost is closed: bring another.
//
// Tx knows the id for nothing: the guard's lock has given the transaction one, and it comes with the guard's answer.
func Resolve(ctx context.Context, db DB, err error) (committed bool, _ error) {
	var unknown *UnknownError
	switch {
	case !errors.As(err, &unknown):
		return false, invalidf("the error is no *UnknownError")
	case unknown.XID == 0:
		return false, unresolved(errors.New("the transaction's id was lost with the reply"))
	}
	for n, wait := 1, 2*time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		var status *string
		asked := db.QueryRow(ctx, `SELECT txid_status($1)`, unknown.XID).Scan(&status)
		switch {
		case asked != nil && (serverSays(asked) || n >= maxTries || ctx.Err() != nil):
			return false, unresolved(asked)
		case asked != nil: // a dead connection: the pool has another
			n++
		case status == nil:
			return false, unresolved(errors.New("the transaction is so old that the server has forgotten it"))
		case *status == "committed":
			return true, nil
		case *status == "aborted":
			return false, nil
		}
		if !pause(ctx, wait) {
			return false, unresolved(fmt.Errorf("the transaction is in progress: %w", context.Cause(ctx)))
		}
	}
}

func unresolved(err error) error {
	return fmt.Errorf("lastword: %w: resolve: %w", lastword.ErrUnknown, err)
}
