package lastword

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"
)

// Reap looks once for running attempts whose lease has ended, at most atMost of them (0 is 100), fences each and opens its task's next
// generation; a task whose workers were lost more than Task.MaxReaps times is quarantined instead. Everything is tested again in each
// write, so that a verdict or a heartbeat that lands in between wins. Each task has a transaction of its own: one that fails does
// not stop the others, and its error is joined to what is returned. Any number of reapers may run.
func (s *Store) Reap(ctx context.Context, atMost int) (reaped int, err error) {
	type candidate struct {
		id, generation int64
		nonce          string
	}
	var expired []candidate
	err = s.all(ctx, s.db, "TasksExpired", Args{"limit": limit(atMost)}, func(scan func(...any) error) error {
		var c candidate
		err := scan(&c.id, &c.generation, &c.nonce)
		expired = append(expired, c)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("lastword: reap: %w", err)
	}
	var failures []error
	for _, c := range expired {
		token := Token{Kind: KindTask, Name: strconv.FormatInt(c.id, 10), Epoch: c.generation, Nonce: c.nonce}
		won, err := s.reapOne(ctx, c.id, token)
		if err != nil {
			failures = append(failures, fmt.Errorf("lastword: reap task %d: %w", c.id, err))
		}
		if won {
			reaped++
		}
	}
	return reaped, errors.Join(failures...)
}

func (s *Store) reapOne(ctx context.Context, id int64, t Token) (won bool, err error) {
	err = s.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		var kind string
		var generation int64
		var state State
		if err := s.exec(ctx, tx, "Durable", nil); err != nil {
			return err
		}
		won, err = s.one(ctx, tx, "TaskReap", t.args(), &kind, &generation, &state)
		if err != nil || !won {
			return err
		}
		if err := s.revoke(ctx, tx, id, "lost", "its lease ended without a heartbeat"); err != nil {
			return err
		}
		why := opening{cause: "reap", actor: s.holder, reason: "the worker of generation " + strconv.FormatInt(t.Epoch, 10) + " was lost"}
		if state == Quarantined {
			if err := s.recordGeneration(ctx, tx, id, generation, why); err != nil {
				return err
			}
			return s.emit(ctx, tx, TopicQuarantined, kind, id, generation)
		}
		return s.opened(ctx, tx, kind, id, generation, why)
	})
	return won && err == nil, err
}

// reapBatch is how many tasks one pass of RunReaper takes; a full pass is followed by the next at once.
const reapBatch = 100

// RunReaper reaps every interval, jittered, until ctx ends, and returns nil then. Failures are logged and tried again.
func (s *Store) RunReaper(ctx context.Context, interval time.Duration) error {
	for sleepUntil(ctx, time.Now().Add(interval/2+rand.N(interval/2+1))) {
		for {
			n, err := s.Reap(ctx, reapBatch)
			if err != nil && ctx.Err() == nil {
				s.log.LogAttrs(ctx, slog.LevelError, "reap", slog.Any("error", err))
			}
			if n > 0 {
				s.log.LogAttrs(ctx, slog.LevelInfo, "reaped tasks of lost workers", slog.Int("tasks", n))
			}
			if n < reapBatch || err != nil {
				break
			}
		}
	}
	return nil
}
