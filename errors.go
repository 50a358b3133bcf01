package lastword

import (
	"errors"
	"fmt"
	"time"
)

// A guarded write ends in success or in one of five ways. Test for them with errors.Is.
var (
	// ErrFenced: the token is not in force any more. Nothing was written; stop the work, do not retry.
	ErrFenced = errors.New("fenced")
	// ErrExpired: the token is still the newest, but its time is over. Nothing was written.
	ErrExpired = errors.New("lease expired")
	// ErrContended: the database gave up on a lock or a conflict as often as we retried. Nothing was written, and it is no
	// verdict on the token: trying later is sound.
	ErrContended = errors.New("contended")
	// ErrUnknown: the reply to COMMIT was lost. The write is there whole or not at all; look before you write again. On MySQL also: a
	// statement of the caller's, such as a CALL, has ended the transaction, or failed and may have; what ran before it is there.
	ErrUnknown = errors.New("outcome unknown")
	// ErrFailed: the database refused for a reason of its own. Nothing was written.
	ErrFailed = errors.New("failed")
)

// Errors of other calls.
var (
	// ErrHeld: somebody else holds the lease. [HeldError] says who and until when.
	ErrHeld = errors.New("lease is held")
	// ErrNotFound: there is no such task.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the task is not at the generation or in the state that the call asked for, or its key is taken by a live task.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: an argument outside of the stated rules. The database was not asked.
	ErrInvalid = errors.New("invalid")
)

// RefusedError says that a write, a renewal or a completion was refused, and why. errors.Is matches ErrFenced or ErrExpired.
type RefusedError struct {
	Token     Token  // the refused token; printed short
	Operation string // what was tried: "guard", "renew", "extend", "complete" …
	Outcome   error  // ErrFenced or ErrExpired
	Current   int64  // the epoch in force; 0 when there is no such row
	Holder    string // who holds the right now; "" when nobody does
	Reason    string // one sentence for people, without the nonce
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("lastword: %s with %s: %v: %s", e.Operation, e.Token.Short(), e.Outcome, e.Reason)
}

// Unwrap returns the outcome.
func (e *RefusedError) Unwrap() error { return e.Outcome }

// HeldError says who holds a lease. errors.Is matches ErrHeld.
type HeldError struct {
	Name   string
	Holder string    // host, process and label of the holder; never its nonce
	Until  time.Time // by the database's clock; past when the lease is expired and a guarded write still holds it
	Fence  int64
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lastword: lease %q is held by %s with fence %d until %s", e.Name, e.Holder, e.Fence, e.Until.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// SchemaError says that the tables are missing, older or newer than this version of the library. [Migrate] mends the first two.
type SchemaError struct {
	Have int // 0 when there are no tables
	Want int
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("lastword: the database has no lastword tables (version %d is wanted): run Migrate first", e.Want)
	case e.Have < e.Want:
		return fmt.Sprintf("lastword: the database has tables of version %d and version %d is wanted: run Migrate", e.Have, e.Want)
	}
	return fmt.Sprintf("lastword: the database has tables of version %d, which this program (version %d) does not know: use a newer program", e.Have, e.Want)
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("lastword: %w: "+format, append([]any{ErrInvalid}, args...)...)
}
