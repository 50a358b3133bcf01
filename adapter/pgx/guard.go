package pgxlastword

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/lastword-go/lastword"
)

// Guard locks the row that granted token, inside the caller's transaction, and keeps it locked until the transaction ends: nobody can take
// over before the commit. It is one round trip, must be the first statement of the transaction and cannot stand in a savepoint of tx.Begin
// ([lastword.ErrInvalid]). Do not put it into a batch with the statements that it is to guard, nor before them in a pipeline: it refuses
// by returning no row, which does not stop what was sent behind it. [Tx] and [Exec] save round trips soundly.
//
// When the token is not in force, Guard rolls the transaction back, so that nothing sent after it can be committed, and returns an
// error that matches [lastword.ErrFenced] or [lastword.ErrExpired]. [lastword.ErrContended] means that the guard should be tried again in a
// new transaction, [lastword.ErrFailed] that the database failed; either way it was rolled back, too. The Store reads the reason on
// a connection of its own pool: while the caller keeps the last one of a shared pool, that waits for ctx.
//
// What [Tx] does beyond that is up to the caller: to send no COMMIT in between, and to judge the errors of his statements and of COMMIT.
func Guard(ctx context.Context, s *lastword.Store, tx pgx.Tx, token lastword.Token) error {
	if err := check(s, tx == nil, token); err != nil {
		return err
	}
	if inSavepoint(tx) {
		return invalidf("Guard in a savepoint: a rollback to it would drop the lock")
	}
	guard := guardOf(s, token)
	var xid int64
	err := tx.QueryRow(ctx, guard.query, guard.args...).Scan(nil, nil, nil, &xid)
	if err == nil {
		return nil
	}
	rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(rollback) // an error closes the connection, and the server rolls back
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		again, err := refuse(ctx, s, token, "guard")
		if again {
			return fmt.Errorf("lastword: %w: guard: %w", lastword.ErrContended, err)
		}
		return err
	case classify(s, err) == lastword.Contended:
		return fmt.Errorf("lastword: %w: guard: %w", lastword.ErrContended, err)
	}
	return failed("guard", err)
}

// inSavepoint knows pgx's inner transactions by their name: their type is not exported.
func inSavepoint(tx pgx.Tx) bool {
	if ours, ok := tx.(*guardedTx); ok {
		return ours.nested
	}
	return fmt.Sprintf("%T", tx) == "*pgx.dbSimulatedNestedTx"
}

// guard is the statement that returns a row while the token is in force.
type guard struct {
	query string
	args  []any
}

// guardOf adds the transaction's id to the Store's guard. It costs no id and no round trip: locking the row takes an id anyway, and has
// happened when this column is computed. PostgreSQL 12 has no pg_current_xact_id_if_assigned.
func guardOf(s *lastword.Store, t lastword.Token) guard {
	statement, args := "LeaseGuard", lastword.Args{"name": t.Name, "epoch": t.Epoch, "nonce": secret{t.Nonce}}
	if t.Kind == lastword.KindTask {
		var id int64
		_, _ = fmt.Sscan(t.Name, &id) // a valid token's is a number
		statement, args = "TaskGuard", lastword.Args{"id": id, "epoch": t.Epoch, "nonce": secret{t.Nonce}}
	}
	query, values := s.Bind(statement, args)
	return guard{query: "SELECT g.*, txid_current_if_assigned() FROM (\n" + query + "\n) g", args: values}
}

// secret is a value for the server that tracers and loggers of the caller's do not see.
type secret struct{ text string }

func (s secret) Value() (driver.Value, error) { return s.text, nil }
func (s secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, "[secret]") }
func (s secret) LogValue() slog.Value         { return slog.StringValue("[secret]") }
func (s secret) MarshalJSON() ([]byte, error) { return []byte(`"[secret]"`), nil }
