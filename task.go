package lastword

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// State is where a task stands.
type State string

// The states of a task. Succeeded, failed, cancelled and quarantined are terminal: only a rerun leaves them.
const (
	Pending     State = "pending"
	Waiting     State = "waiting"
	Running     State = "running"
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Cancelled   State = "cancelled"
	Quarantined State = "quarantined" // its workers were lost too often
)

// Terminal reports whether a task in this state has ended.
func (st State) Terminal() bool {
	return st == Succeeded || st == Failed || st == Cancelled || st == Quarantined
}

const (
	defaultQueue       = "default"
	defaultMaxAttempts = 5
	defaultMaxReaps    = 3
	maxPayload         = 1 << 20
	maxText            = 4 << 10 // of an error or a progress line that is stored
)

// Task is work to be submitted.
type Task struct {
	Kind        string        // chooses the handler; same rules as a lease's name
	Payload     any           // stored as JSON, at most 1 MiB
	Queue       string        // "" is "default"
	Key         string        // if set, at most one task of this kind and key is live at a time; at most 255 bytes
	Priority    int           // higher first
	Delay       time.Duration // not before so long from now, by the database's clock
	MaxAttempts int           // handler failures until the task fails; 0 is 5
	MaxReaps    int           // lost workers until the task is quarantined; 0 is 3, negative is none
}

// NewTask returns a task with default settings.
func NewTask(kind string, payload any) Task { return Task{Kind: kind, Payload: payload} }

func (t Task) args() (Args, error) {
	if err := validateName(t.Kind); err != nil {
		return nil, fmt.Errorf("task kind: %w", err)
	}
	if t.Queue == "" {
		t.Queue = defaultQueue
	}
	if err := validateName(t.Queue); err != nil {
		return nil, fmt.Errorf("task queue: %w", err)
	}
	if len(t.Key) > 255 || !utf8.ValidString(t.Key) {
		return nil, invalidf("task key is longer than 255 bytes or not UTF-8")
	}
	if t.MaxAttempts < 0 || t.Delay < 0 {
		return nil, invalidf("task has a negative MaxAttempts or Delay")
	}
	if t.MaxAttempts == 0 {
		t.MaxAttempts = defaultMaxAttempts
	}
	if t.MaxReaps == 0 {
		t.MaxReaps = defaultMaxReaps
	}
	payload, err := encode("payload", t.Payload)
	if err != nil {
		return nil, err
	}
	return Args{"kind": t.Kind, "queue": t.Queue, "key": t.Key, "payload": payload, "priority": t.Priority, "delay_ms": t.Delay.Milliseconds(),
		"max_attempts": t.MaxAttempts, "max_reaps": max(t.MaxReaps, 0)}, nil
}

func encode(what string, value any) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", invalidf("%s is not JSON: %v", what, err)
	}
	if len(encoded) > maxPayload {
		return "", invalidf("%s has %d bytes: %d are allowed", what, len(encoded), maxPayload)
	}
	return string(encoded), nil
}

// Submit stores tasks and their outbox rows in the caller's transaction, or in one of its own when tx is nil, and returns their
// ids in order: all or none. A key that a live task of the same kind has is [ErrConflict]; what breaks the rules of [Task] is
// [ErrInvalid].
func (s *Store) Submit(ctx context.Context, tx *sql.Tx, tasks ...Task) (ids []int64, err error) {
	rows := make([]Args, len(tasks))
	for i, task := range tasks {
		if rows[i], err = task.args(); err != nil {
			return nil, err
		}
	}
	err = s.within(ctx, tx, func(ctx context.Context, tx *sql.Tx) error {
		ids = make([]int64, len(rows))
		for i, row := range rows {
			found, err := s.one(ctx, tx, "TaskInsert", row, &ids[i])
			if err != nil {
				return fmt.Errorf("lastword: submit: %w", err)
			}
			if !found {
				return fmt.Errorf("lastword: %w: a live task of kind %q has the key %q", ErrConflict, row["kind"], row["key"])
			}
			if err := s.opened(ctx, tx, tasks[i].Kind, ids[i], 1, opening{cause: "submit", actor: s.holder}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// opening says who opened a generation, and why.
type opening struct{ cause, actor, reason, requestID string }

// opened records a new generation that is ready to run, with its outbox row.
func (s *Store) opened(ctx context.Context, tx *sql.Tx, kind string, id, generation int64, o opening) error {
	if err := s.recordGeneration(ctx, tx, id, generation, o); err != nil {
		return err
	}
	return s.emit(ctx, tx, TopicPending, kind, id, generation)
}

func (s *Store) recordGeneration(ctx context.Context, tx *sql.Tx, id, generation int64, o opening) error {
	err := s.exec(ctx, tx, "GenerationOpen", Args{"id": id, "generation": generation, "cause": o.cause, "actor": o.actor, "reason": o.reason, "request_id": o.requestID})
	if err != nil {
		return fmt.Errorf("lastword: record generation %d of task %d: %w", generation, id, err)
	}
	return nil
}

// RerunOptions say why and how a task runs again.
type RerunOptions struct {
	Payload   any // replaces the payload; nil keeps it
	Delay     time.Duration
	Actor     string // who asked; "" is this process
	Reason    string
	RequestID string
}

// Rerun opens the next generation of a task that stands at generation, and returns its number. In the same transaction a running attempt
// is fenced: whatever it still writes under its token is refused. In the caller's transaction it must be the first statement.
//
// Errors: [ErrNotFound]; [ErrConflict] when the task has moved to another generation meanwhile, or when its key is taken by
// another live task.
func (s *Store) Rerun(ctx context.Context, tx *sql.Tx, id, generation int64, opts RerunOptions) (next int64, err error) {
	args := Args{"id": id, "epoch": generation, "replace": 0, "payload": "", "delay_ms": opts.Delay.Milliseconds()}
	if opts.Payload != nil {
		if args["payload"], err = encode("payload", opts.Payload); err != nil {
			return 0, err
		}
		args["replace"] = 1
	}
	err = s.within(ctx, tx, func(ctx context.Context, tx *sql.Tx) error {
		var kind string
		if err := s.exec(ctx, tx, "Durable", nil); err != nil {
			return fmt.Errorf("lastword: rerun task %d: %w", id, err)
		}
		found, err := s.one(ctx, tx, "TaskRerun", args, &kind, &next)
		if err != nil {
			return s.keyConflict(err, id)
		}
		if !found {
			return s.moved(ctx, tx, id, generation)
		}
		if err := s.revoke(ctx, tx, id, "revoked", opts.Reason); err != nil {
			return err
		}
		return s.opened(ctx, tx, kind, id, next, opening{cause: "rerun", actor: s.actor(opts.Actor), reason: clip(opts.Reason), requestID: opts.RequestID})
	})
	return next, err
}

// Cancel ends a live task that stands at generation, and fences its running attempt. In the caller's transaction it must be the
// first statement. Errors: [ErrNotFound]; [ErrConflict] when the task has ended or moved to another generation.
func (s *Store) Cancel(ctx context.Context, tx *sql.Tx, id, generation int64, actor, reason string) error {
	return s.within(ctx, tx, func(ctx context.Context, tx *sql.Tx) error {
		var kind string
		var next int64
		if err := s.exec(ctx, tx, "Durable", nil); err != nil {
			return fmt.Errorf("lastword: cancel task %d: %w", id, err)
		}
		found, err := s.one(ctx, tx, "TaskCancel", Args{"id": id, "epoch": generation, "reason": clip(reason)}, &kind, &next)
		if err != nil {
			return fmt.Errorf("lastword: cancel task %d: %w", id, err)
		}
		if !found {
			return s.moved(ctx, tx, id, generation)
		}
		if err := s.revoke(ctx, tx, id, "cancelled", reason); err != nil {
			return err
		}
		if err := s.recordGeneration(ctx, tx, id, next, opening{cause: "cancel", actor: s.actor(actor), reason: clip(reason)}); err != nil {
			return err
		}
		return s.emit(ctx, tx, TopicCancelled, kind, id, next)
	})
}

func (s *Store) revoke(ctx context.Context, tx *sql.Tx, id int64, outcome, why string) error {
	if err := s.exec(ctx, tx, "AttemptsRevoke", Args{"id": id, "outcome": outcome, "error": clip(why)}); err != nil {
		return fmt.Errorf("lastword: close the attempts of task %d: %w", id, err)
	}
	return nil
}

// moved says why no row of task id matched generation.
func (s *Store) moved(ctx context.Context, tx *sql.Tx, id, generation int64) error {
	task, err := s.readTask(ctx, tx, id)
	if err != nil {
		return err
	}
	if task.Generation == generation {
		return fmt.Errorf("lastword: %w: task %d has ended: it is %s", ErrConflict, id, task.State)
	}
	return fmt.Errorf("lastword: %w: task %d is %s at generation %d, not at generation %d", ErrConflict, id, task.State, task.Generation, generation)
}

// keyConflict: the unique index over live keys is the only one that a rerun can break.
func (s *Store) keyConflict(err error, id int64) error {
	if s.classify(err) == Answered {
		return fmt.Errorf("lastword: %w: rerun of task %d: its key is taken by a live task: %w", ErrConflict, id, err)
	}
	return fmt.Errorf("lastword: rerun task %d: %w", id, err)
}

func (s *Store) actor(actor string) string {
	if actor == "" {
		return s.holder
	}
	return actor
}

// clip bounds a text that is stored for people, and makes it valid UTF-8 without NUL, which PostgreSQL refuses.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	clean := make([]rune, 0, len(text))
	for _, r := range text {
		if r == 0 {
			r = utf8.RuneError
		}
		clean = append(clean, r)
	}
	return string(clean)
}
