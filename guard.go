package lastword

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// errLookAgain: the guard found no row, but the row is in force as far as this transaction can see. That happens under REPEATABLE READ
// and above with an old snapshot, and says nothing about the token.
var errLookAgain = errors.New("lastword: the transaction's snapshot is older than the token's row")

// Guard locks the row that granted t, inside the caller's transaction, and keeps it locked until the transaction ends: nobody can take
// over before the commit. It must be the first statement of the transaction and must not stand inside a savepoint.
//
// When the token is not in force, Guard rolls the transaction back, so that nothing sent after it can be committed, and returns an
// error that matches [ErrFenced] or [ErrExpired]. [ErrContended] means that the guard should be tried again in a new transaction.
// On any other error roll back as well: on some engines an error ends the transaction silently, and later statements on the
// same *sql.Tx commit by themselves. [Store.Tx] makes that impossible; prefer it.
func (s *Store) Guard(ctx context.Context, tx *sql.Tx, t Token) error {
	if tx == nil {
		return invalidf("the *sql.Tx is nil")
	}
	if err := t.validate(); err != nil {
		return err
	}
	err := s.guard(ctx, tx, t)
	if err == nil {
		return nil
	}
	if rollbackErr := tx.Rollback(); rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) {
		err = errors.Join(err, fmt.Errorf("lastword: rollback after a refused guard: %w", rollbackErr))
	}
	if errors.Is(err, errLookAgain) || s.classify(err) == Contended {
		err = fmt.Errorf("lastword: %w: guard: %w", ErrContended, err)
	}
	return s.refused(err)
}

func (s *Store) guard(ctx context.Context, tx *sql.Tx, t Token) error {
	var one int
	var ignored any // what bounding the wait of others returned
	statement := "LeaseGuard"
	if t.Kind == KindTask {
		statement = "TaskGuard"
	}
	found, err := s.one(ctx, tx, statement, t.args(), &one, &ignored, &ignored)
	if err != nil {
		if isOutcome(err) || s.classify(err) == Contended {
			return err
		}
		return fmt.Errorf("lastword: guard: %w", err)
	}
	if !found {
		return s.refusal(ctx, tx, t, "guard")
	}
	return nil
}

func (t Token) args() Args {
	if t.Kind == KindTask {
		id, _ := t.taskID()
		return Args{"id": id, "epoch": t.Epoch, "nonce": t.Nonce}
	}
	return Args{"name": t.Name, "epoch": t.Epoch, "nonce": t.Nonce}
}

// Exec runs one guarded INSERT, UPDATE or DELETE and returns how many rows it changed; 0 means that nothing matched, while t was in
// force. (MySQL does not count a row that had the same values before, unless the driver is told clientFoundRows=true.) On PostgreSQL
// guard and write are one statement and one round trip.
//
// A text that cannot be guarded in one statement is refused with [ErrInvalid]: several statements, one that is not an INSERT,
// UPDATE or DELETE, or one with a RETURNING of its own. Use [Store.Tx] for those. Errors are those of Tx; a lost reply is [ErrUnknown].
func (s *Store) Exec(ctx context.Context, t Token, query string, args ...any) (rows int64, err error) {
	if err := t.validate(); err != nil {
		return 0, err
	}
	if err := validateWrite(query); err != nil {
		return 0, err
	}
	form := s.statements["GuardedWrite"]
	if form.Empty() {
		err = s.Tx(ctx, t, nil, func(ctx context.Context, tx *sql.Tx) error {
			result, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return err
			}
			rows, err = result.RowsAffected()
			return err
		})
		return rows, err
	}
	text, err := s.GuardedWrite(query, len(args))
	if err != nil {
		return 0, err
	}
	err = s.retry(ctx, func() (bool, error) {
		var in any
		err := s.db.QueryRowContext(ctx, text, append(slices.Clone(args), t.String())...).Scan(&rows, &in)
		return s.execFailed(ctx, t, err)
	})
	return rows, s.refused(err)
}

// execFailed says what an error of a statement that commits by itself means.
func (s *Store) execFailed(ctx context.Context, t Token, err error) (again bool, _ error) {
	if err == nil {
		return false, nil
	}
	switch s.classify(err) {
	case Contended:
		return true, err
	case Answered:
		return false, fmt.Errorf("lastword: %w: %w", ErrFailed, err)
	case Fenced:
		refusal := s.refusal(ctx, s.db, t, "exec")
		if errors.Is(refusal, errLookAgain) {
			return true, refusal
		}
		return false, refusal
	}
	return false, fmt.Errorf("lastword: %w: the reply to a guarded statement was lost: %w", ErrUnknown, err)
}

func validateWrite(query string) error {
	statements := sqlWords(query)
	for len(statements) > 1 && len(statements[len(statements)-1]) == 0 {
		statements = statements[:len(statements)-1]
	}
	if len(statements) != 1 || len(statements[0]) == 0 {
		return invalidf("Exec guards one statement, the text has %d: use Tx", len(statements))
	}
	words := statements[0]
	if !slices.Contains([]string{"INSERT", "UPDATE", "DELETE"}, words[0]) {
		return invalidf("Exec guards INSERT, UPDATE and DELETE, not %s: use Tx", words[0])
	}
	if slices.Contains(words, "RETURNING") {
		return invalidf("Exec adds a RETURNING of its own, and the statement has one: use Tx")
	}
	return nil
}

// refusal reads why t is not in force and returns a *RefusedError, or errLookAgain when it is in force after all.
func (s *Store) refusal(ctx context.Context, q querier, t Token, operation string) error {
	if t.Kind == KindTask {
		return s.taskRefusal(ctx, q, t, operation)
	}
	return s.leaseRefusal(ctx, q, t, operation)
}

func (s *Store) leaseRefusal(ctx context.Context, q querier, t Token, operation string) error {
	row, found, err := s.readLease(ctx, q, t.Name)
	if err != nil {
		return fmt.Errorf("lastword: %s: read the lease: %w", operation, err)
	}
	refused := &RefusedError{Token: t, Operation: operation, Outcome: ErrFenced, Current: row.fence, Holder: row.holder}
	same := row.fence == t.Epoch && row.owner == t.Nonce
	switch {
	case !found:
		refused.Reason = fmt.Sprintf("there is no lease %q", t.Name)
	case same && row.live:
		return errLookAgain
	case same && row.until.IsZero():
		refused.Outcome = ErrExpired
		refused.Reason = "the lease was ended; nobody has taken it yet"
	case same:
		refused.Outcome = ErrExpired
		refused.Reason = fmt.Sprintf("the lease ended %s ago; nobody has taken it yet", row.now.Sub(row.until).Round(time.Millisecond))
	case row.fence == t.Epoch && row.owner == "":
		refused.Holder = ""
		refused.Reason = fmt.Sprintf("the lease was released; fence %d is over", t.Epoch)
	default:
		refused.Reason = fmt.Sprintf("%s was granted fence %d %s ago", row.holder, row.fence, row.now.Sub(row.acquired).Round(time.Millisecond))
	}
	return refused
}

func (s *Store) taskRefusal(ctx context.Context, q querier, t Token, operation string) error {
	id, _ := t.taskID()
	task, err := s.readTask(ctx, q, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("lastword: %s: read the task: %w", operation, err)
	}
	refused := &RefusedError{Token: t, Operation: operation, Outcome: ErrFenced, Current: task.Generation}
	switch {
	case err != nil:
		refused.Reason = fmt.Sprintf("there is no task %d", id)
	case task.Generation == t.Epoch && task.attemptID == t.Nonce && task.State == Running:
		return errLookAgain
	case task.Generation != t.Epoch:
		refused.Reason = s.generationReason(ctx, q, task)
	case task.State == Running:
		refused.Reason = fmt.Sprintf("%s holds another attempt of generation %d", task.Holder, task.Generation)
	default:
		refused.Reason = fmt.Sprintf("this attempt is over; the task is %s", task.State)
	}
	if task.State == Running {
		refused.Holder = task.Holder
	}
	return refused
}

func (s *Store) generationReason(ctx context.Context, q querier, task TaskInfo) string {
	reason := fmt.Sprintf("generation %d had begun", task.Generation)
	generations, err := s.readGenerations(ctx, q, task.ID)
	if err == nil && len(generations) > 0 {
		last := generations[len(generations)-1]
		reason += fmt.Sprintf(" %s before (%s)", task.now.Sub(last.Opened).Round(time.Millisecond), last.Cause)
	}
	return fmt.Sprintf("%s; the task is %s", reason, task.State)
}
