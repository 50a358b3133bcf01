package lastword

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// Attempt is one execution of a task. Its token is in force until the attempt ends, is reaped, or the task is rerun or cancelled.
type Attempt struct {
	store       *Store
	id          int64
	kind        string
	payload     string
	generation  int64
	nonce       string
	number      int
	failures    int
	maxAttempts int
	lease       time.Duration
	claimed     time.Time // local, before the request was sent
	settled     atomic.Bool
}

// Format keeps the nonce out of everything printed with fmt.
func (a *Attempt) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, a.Token()) }

// ID returns the task's id.
func (a *Attempt) ID() int64 { return a.id }

// Kind returns the task's kind.
func (a *Attempt) Kind() string { return a.kind }

// Generation returns the generation that this attempt executes.
func (a *Attempt) Generation() int64 { return a.generation }

// Number counts the attempts of this generation, from 1.
func (a *Attempt) Number() int { return a.number }

// Payload decodes the task's JSON payload into v.
func (a *Attempt) Payload(v any) error {
	if err := json.Unmarshal([]byte(a.payload), v); err != nil {
		return fmt.Errorf("lastword: payload of task %d: %w", a.id, err)
	}
	return nil
}

// Token returns the attempt's token.
func (a *Attempt) Token() Token {
	return Token{Kind: KindTask, Name: strconv.FormatInt(a.id, 10), Epoch: a.generation, Nonce: a.nonce}
}

// ClaimOptions say what to claim.
type ClaimOptions struct {
	Kinds []string      // required
	Queue string        // "" is "default"
	Limit int           // at most so many; 0 is 1, at most 1,000
	Lease time.Duration // until the attempt may be reaped unless extended: 1 s to 24 h; 0 is 30 s
	Label string        // added to the holder that others see
}

const defaultTaskLease = 30 * time.Second

// Claim takes up to opts.Limit pending tasks that are due, highest priority first, and gives each a new attempt. No task is an
// empty slice. Two claimers never get the same attempt.
func (s *Store) Claim(ctx context.Context, opts ClaimOptions) ([]*Attempt, error) {
	opts.Limit = max(opts.Limit, 1)
	if opts.Lease == 0 {
		opts.Lease = defaultTaskLease
	}
	if opts.Queue == "" {
		opts.Queue = defaultQueue
	}
	if err := validateTTL("lease", opts.Lease); err != nil {
		return nil, err
	}
	if len(opts.Kinds) == 0 || opts.Limit > 1000 {
		return nil, invalidf("claim names %d kinds and wants %d tasks: at least one kind, at most 1000 tasks", len(opts.Kinds), opts.Limit)
	}
	kinds, _ := json.Marshal(opts.Kinds)
	holder := s.holder
	if opts.Label != "" {
		holder += " " + opts.Label
	}
	nonces := make([]string, opts.Limit)
	for i := range nonces {
		nonces[i] = newNonce()
	}
	attempts, _ := json.Marshal(nonces)
	args := Args{"queue": opts.Queue, "kinds": string(kinds), "limit": opts.Limit, "attempts": string(attempts), "lease_ms": opts.Lease.Milliseconds(), "holder": holder}
	var claimed []*Attempt
	err := s.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		claimed = nil
		now := time.Now()
		ids := []int64{}
		err := s.all(ctx, tx, "TaskClaim", args, func(scan func(...any) error) error {
			a := &Attempt{store: s, lease: opts.Lease, claimed: now}
			claimed = append(claimed, a)
			err := scan(&a.id, &a.kind, &a.payload, &a.generation, &a.nonce, &a.number, &a.failures, &a.maxAttempts)
			ids = append(ids, a.id)
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		idsText, _ := json.Marshal(ids)
		return s.exec(ctx, tx, "AttemptsOpen", Args{"attempts": string(attempts), "ids": string(idsText)})
	})
	if err != nil {
		return nil, fmt.Errorf("lastword: claim: %w", err)
	}
	return claimed, nil
}

// Tx is [Store.Tx] with the attempt's token, bounded to a third of its lease, because heartbeats wait for it.
func (a *Attempt) Tx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.lease/3, errTooLong(a.lease/3))
	defer cancel()
	return a.store.Tx(ctx, a.Token(), opts, fn)
}

// Exec is [Store.Exec] with the attempt's token.
func (a *Attempt) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	return a.store.Exec(ctx, a.Token(), query, args...)
}

// Guard is [Store.Guard] with the attempt's token.
func (a *Attempt) Guard(ctx context.Context, tx *sql.Tx) error {
	return a.store.Guard(ctx, tx, a.Token())
}

// Extend is the heartbeat: the attempt may be reaped one lease from now. [ErrFenced] means stop.
func (a *Attempt) Extend(ctx context.Context) (until time.Time, err error) {
	var millis int64
	err = a.write(ctx, nil, "extend", "TaskExtend", nil, &millis)
	return fromMillis(millis), err
}

// Progress stores one line for people, at most 4 KiB. [ErrFenced] means stop.
func (a *Attempt) Progress(ctx context.Context, line string) error {
	var one int
	return a.write(ctx, nil, "progress", "TaskProgress", Args{"progress": clip(line)}, &one)
}

// write runs one statement that matches id, generation, attempt and running. In the caller's transaction, or by itself.
func (a *Attempt) write(ctx context.Context, tx *sql.Tx, operation, statement string, extra Args, dest ...any) error {
	args := a.Token().args()
	for name, value := range extra {
		args[name] = value
	}
	run := func(q querier) error {
		found, err := a.store.one(ctx, q, statement, args, dest...)
		if err == nil && !found {
			return a.store.refusal(ctx, q, a.Token(), operation)
		}
		return err
	}
	if tx != nil {
		return run(tx)
	}
	return a.store.refused(a.store.autocommit(ctx, a.store.db, statement, operation+" task "+strconv.FormatInt(a.id, 10), run))
}

// Complete ends the attempt with a result: the task succeeds, and an event is emitted with it. effects, if not nil, runs in the
// same transaction, after the guard and before the completion: its writes stand exactly if the result stands. Like the function of
// [Store.Tx] it may run more than once.
//
// The same attempt completing again with the same result (the first reply was lost) is a success; effects do not run again.
// Errors are those of [Store.Tx].
func (a *Attempt) Complete(ctx context.Context, result any, effects func(ctx context.Context, tx *sql.Tx) error) error {
	text, err := encode("result", result)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.lease/3, errTooLong(a.lease/3))
	defer cancel()
	err = a.store.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if effects == nil {
			return a.complete(ctx, tx, text)
		}
		if err := a.store.guard(ctx, tx, a.Token()); err != nil {
			return err
		}
		if err := effects(ctx, tx); err != nil {
			return err
		}
		return a.complete(ctx, tx, text)
	})
	if errors.Is(err, ErrFenced) && a.applied(ctx, text) {
		err = nil
	}
	if err == nil {
		a.settled.Store(true)
	}
	return a.store.refused(err)
}

func (a *Attempt) complete(ctx context.Context, tx *sql.Tx, result string) error {
	var kind string
	if err := a.write(ctx, tx, "complete", "TaskComplete", Args{"result": result}, &kind); err != nil {
		return err
	}
	return a.ended(ctx, tx, "succeeded", result, "", TopicSucceeded)
}

// applied reports whether this very attempt has completed with this very result before.
func (a *Attempt) applied(ctx context.Context, result string) bool {
	var outcome, stored string
	found, err := a.store.one(ctx, a.store.db, "AttemptRead", a.Token().args(), &outcome, &stored)
	return err == nil && found && outcome == "succeeded" && stored == result
}

// ended closes the attempt's row and emits the event of a task that has ended; topic "" emits none.
func (a *Attempt) ended(ctx context.Context, tx *sql.Tx, outcome, result, failure, topic string) error {
	err := a.store.exec(ctx, tx, "AttemptClose", Args{"nonce": a.nonce, "outcome": outcome, "result": result, "error": failure})
	if err != nil {
		return fmt.Errorf("lastword: close the attempt of task %d: %w", a.id, err)
	}
	if topic == "" {
		return nil
	}
	return a.store.emit(ctx, tx, topic, a.kind, a.id, a.generation)
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks a failure that no retry would mend: the task fails at once. Of nil it makes nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type retryAfterError struct {
	error
	delay time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// RetryAfter marks a failure to be retried no sooner than after delay, instead of after the usual backoff. Of nil it makes nil.
func RetryAfter(delay time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, delay}
}

// Fail ends the attempt with a failure, which must not be nil. The task is pending again after a backoff (exponential with full jitter,
// at most an hour; or what [RetryAfter] says) until it has failed Task.MaxAttempts times; then, or after [Permanent], it is failed
// and an event is emitted. Errors are those of [Store.Tx].
func (a *Attempt) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return invalidf("the cause of a failure is nil")
	}
	delay := rand.N(min(time.Second<<min(a.failures, 12), time.Hour))
	var after retryAfterError
	if errors.As(cause, &after) {
		delay = after.delay
	}
	retry := 1
	var permanent permanentError
	if errors.As(cause, &permanent) {
		retry = 0
	}
	text := clip(cause.Error())
	err := a.store.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		var kind string
		var state State
		if err := a.write(ctx, tx, "fail", "TaskFail", Args{"retry": retry, "delay_ms": delay.Milliseconds(), "error": text}, &kind, &state); err != nil {
			return err
		}
		topic := ""
		if state == Failed {
			topic = TopicFailed
		}
		return a.ended(ctx, tx, "failed", "", text, topic)
	})
	if err == nil {
		a.settled.Store(true)
	}
	return a.store.refused(err)
}

// Return gives the task back unfinished: it is pending at once, and no failure is counted. Errors are those of [Store.Tx].
func (a *Attempt) Return(ctx context.Context) error {
	err := a.store.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		var kind string
		if err := a.write(ctx, tx, "return", "TaskReturn", nil, &kind); err != nil {
			return err
		}
		return a.ended(ctx, tx, "returned", "", "", "")
	})
	if err == nil {
		a.settled.Store(true)
	}
	return a.store.refused(err)
}
