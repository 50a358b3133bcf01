package lastword

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	refusalFlush = time.Second // at most one flush in so long
	refusalQueue = 1000        // distinct tokens between two flushes; more are only counted
	refusalKeep  = 10_000      // rows
)

// refusalLog records refusals behind the caller's back: after the rollback, on no connection of his, one row a token. Recording is
// best effort, counting is not.
type refusalLog struct {
	store      *Store
	refused    atomic.Int64
	unrecorded atomic.Int64
	mu         sync.Mutex
	queued     map[Token]*queuedRefusal
	scheduled  bool
	flushing   sync.Mutex
}

type queuedRefusal struct {
	RefusedError
	count int64
}

// RefusalCounts are counted since the Store was opened, in this process.
type RefusalCounts struct {
	Refused    int64 // writes, renewals and completions refused
	Unrecorded int64 // of those, not recorded in the table: too many at once, or the database failed
}

// RefusalCounts returns how often this Store refused.
func (s *Store) RefusalCounts() RefusalCounts {
	return RefusalCounts{Refused: s.refusals.refused.Load(), Unrecorded: s.refusals.unrecorded.Load()}
}

// refused counts and queues a refusal, and returns err as it came. Call it after the transaction has ended.
func (s *Store) refused(err error) error {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	l := &s.refusals
	l.refused.Add(1)
	observation := Observation{What: Refused, Kind: refused.Token.Kind, Operation: refused.Operation, Err: refused}
	if refused.Token.Kind == KindLease {
		observation.Name = refused.Token.Name
	}
	s.observe(observation)
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queued[refused.Token]; q != nil {
		q.RefusedError = *refused
		q.count++
		return err
	}
	if len(l.queued) >= refusalQueue {
		l.unrecorded.Add(1)
		return err
	}
	if l.queued == nil {
		l.queued = map[Token]*queuedRefusal{}
	}
	l.queued[refused.Token] = &queuedRefusal{RefusedError: *refused, count: 1}
	if !l.scheduled {
		l.scheduled = true
		time.AfterFunc(refusalFlush, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.FlushRefusals(ctx); err != nil {
				s.log.WarnContext(ctx, "refusals were counted but not recorded", "error", err)
			}
		})
	}
	return err
}

// FlushRefusals writes the refusals that wait in memory to their table. It happens by itself within about a second; call it
// before a process ends. On an error they are counted as unrecorded and dropped.
func (s *Store) FlushRefusals(ctx context.Context) error {
	l := &s.refusals
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	batch := l.queued
	l.queued, l.scheduled = nil, false
	l.mu.Unlock()
	var failures []error
	for token, refusal := range batch {
		args := Args{"kind": string(token.Kind), "name": token.Name, "epoch": token.Epoch, "nonce_start": nonceStart(token.Nonce), "operation": refusal.Operation,
			"holder": s.holder, "current_epoch": refusal.Current, "outcome": refusal.Outcome.Error(), "reason": clip(refusal.Reason), "count": refusal.count}
		err := s.autocommit(ctx, s.db, "RefusalUpsert", "record a refusal", func(q querier) error { return s.exec(ctx, q, "RefusalUpsert", args) })
		if err != nil {
			l.unrecorded.Add(refusal.count)
			failures = append(failures, err)
		}
	}
	if len(batch) > 0 && failures == nil {
		failures = append(failures, s.autocommit(ctx, s.db, "RefusalTrim", "trim the refusals", func(q querier) error {
			return s.exec(ctx, q, "RefusalTrim", Args{"keep": refusalKeep})
		}))
	}
	return errors.Join(failures...)
}

// Refusal is a recorded refusal of one token.
type Refusal struct {
	Kind       Kind
	Name       string
	Epoch      int64  // of the refused token
	NonceStart string // its first six characters
	Operation  string
	Holder     string // the process that was refused
	Current    int64  // the epoch in force then; 0 when there was no such row
	Outcome    string
	Reason     string // one sentence for people
	Count      int64
	First      time.Time
	Last       time.Time
}

// RefusalFilter chooses refusals; zero fields choose all.
type RefusalFilter struct {
	Kind  Kind
	Name  string
	Limit int // 0 is 100
}

// Refusals lists recorded refusals, the newest first.
func (s *Store) Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error) {
	var out []Refusal
	err := s.all(ctx, s.db, "Refusals", Args{"kind": string(f.Kind), "name": f.Name, "limit": limit(f.Limit)}, func(scan func(...any) error) error {
		var r Refusal
		var first, last int64
		err := scan(&r.Kind, &r.Name, &r.Epoch, &r.NonceStart, &r.Operation, &r.Holder, &r.Current, &r.Outcome, &r.Reason, &r.Count, &first, &last)
		r.First, r.Last = fromMillis(first), fromMillis(last)
		out = append(out, r)
		return err
	})
	return out, listed("refusals", err)
}
