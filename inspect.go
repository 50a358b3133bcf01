package lastword

import (
	"context"
	"fmt"
	"math"
	"time"
)

const defaultLimit = 100

func limit(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return n
}

func listed(what string, err error) error {
	if err != nil {
		return fmt.Errorf("lastword: list %s: %w", what, err)
	}
	return nil
}

// LeaseInfo is a lease as others see it: without its nonce.
type LeaseInfo struct {
	Name       string
	Fence      int64
	OwnerStart string // six characters of the nonce; "" when released
	Holder     string // of the newest grant, also after its release
	Until      time.Time
	Live       bool
	TTL        time.Duration
	Acquired   time.Time
}

// Leases lists leases by name, after the name given, at most limit (0 is 100).
func (s *Store) Leases(ctx context.Context, after string, atMost int) ([]LeaseInfo, error) {
	var out []LeaseInfo
	err := s.all(ctx, s.db, "Leases", Args{"after": after, "limit": limit(atMost)}, func(scan func(...any) error) error {
		var l LeaseInfo
		var until, ttl, acquired int64
		err := scan(&l.Name, &l.Fence, &l.OwnerStart, &l.Holder, &until, &l.Live, &ttl, &acquired)
		l.Until, l.TTL, l.Acquired = fromMillis(until), time.Duration(ttl)*time.Millisecond, fromMillis(acquired)
		out = append(out, l)
		return err
	})
	return out, listed("leases", err)
}

// TaskInfo is a task as others see it. Looking never lends the power to complete.
type TaskInfo struct {
	ID         int64
	Kind       string
	Queue      string
	Key        string
	Payload    string // JSON
	Priority   int
	State      State
	Generation int64
	Holder     string // of the newest attempt
	Attempt    int    // claims in this generation
	Failures   int    // handler failures in this generation
	Reaps      int    // lost workers since the last rerun
	Progress   string
	Result     string // JSON; "" until the task has succeeded
	Error      string
	Created    time.Time
	Updated    time.Time // changes other than heartbeats
	Finished   time.Time // zero while the task is live
	Until      time.Time // of the running attempt's lease
	RunAt      time.Time

	attemptID string
	now       time.Time
}

func scanTask(scan func(...any) error) (TaskInfo, error) {
	var t TaskInfo
	var created, updated, finished, until, runAt, now int64
	err := scan(&t.ID, &t.Kind, &t.Queue, &t.Key, &t.Payload, &t.Priority, &t.State, &t.Generation, &t.attemptID, &t.Holder, &t.Attempt, &t.Failures, &t.Reaps,
		&t.Progress, &t.Result, &t.Error, &created, &updated, &finished, &until, &runAt, &now)
	t.Created, t.Updated, t.Finished = fromMillis(created), fromMillis(updated), fromMillis(finished)
	t.Until, t.RunAt, t.now = fromMillis(until), fromMillis(runAt), fromMillis(now)
	return t, err
}

// Task returns one task, or [ErrNotFound].
func (s *Store) Task(ctx context.Context, id int64) (TaskInfo, error) {
	task, err := s.readTask(ctx, s.db, id)
	task.attemptID = "" // printed with fmt, it would show
	return task, err
}

func (s *Store) readTask(ctx context.Context, q querier, id int64) (task TaskInfo, err error) {
	found := false
	err = s.all(ctx, q, "TaskRead", Args{"id": id}, func(scan func(...any) error) (err error) {
		task, err = scanTask(scan)
		found = true
		return err
	})
	if err != nil {
		return TaskInfo{}, fmt.Errorf("lastword: read task %d: %w", id, err)
	}
	if !found {
		return TaskInfo{}, fmt.Errorf("lastword: task %d: %w", id, ErrNotFound)
	}
	return task, nil
}

// TaskFilter chooses tasks; zero fields choose all.
type TaskFilter struct {
	Kind   string
	State  State
	Before int64 // only ids below; 0 begins at the newest
	Limit  int   // 0 is 100
}

// Tasks lists tasks, the newest first.
func (s *Store) Tasks(ctx context.Context, f TaskFilter) ([]TaskInfo, error) {
	return s.listTasks(ctx, "Tasks", Args{"kind": f.Kind, "state": string(f.State), "before": before(f.Before), "limit": limit(f.Limit)})
}

// TasksAfter lists tasks whose ids are above after, the oldest first: for walking through all of them. f.Before is not looked at.
func (s *Store) TasksAfter(ctx context.Context, after int64, f TaskFilter) ([]TaskInfo, error) {
	return s.listTasks(ctx, "TasksAfter", Args{"kind": f.Kind, "state": string(f.State), "after": after, "limit": limit(f.Limit)})
}

func (s *Store) listTasks(ctx context.Context, statement string, args Args) ([]TaskInfo, error) {
	var out []TaskInfo
	err := s.all(ctx, s.db, statement, args, func(scan func(...any) error) error {
		t, err := scanTask(scan)
		t.attemptID = ""
		out = append(out, t)
		return err
	})
	return out, listed("tasks", err)
}

func before(id int64) int64 {
	if id <= 0 {
		return math.MaxInt64
	}
	return id
}

// AttemptInfo is one attempt in a task's history.
type AttemptInfo struct {
	Generation int64
	Number     int
	NonceStart string // six characters
	Holder     string
	Claimed    time.Time
	Ended      time.Time // zero while it runs
	Outcome    string    // "" while it runs; succeeded, failed, returned, revoked, cancelled, lost
	Result     string    // JSON, of one that succeeded
	Error      string
}

// Attempts lists all attempts of a task, in order.
func (s *Store) Attempts(ctx context.Context, id int64) ([]AttemptInfo, error) {
	var out []AttemptInfo
	err := s.all(ctx, s.db, "Attempts", Args{"id": id}, func(scan func(...any) error) error {
		var a AttemptInfo
		var claimed, ended int64
		err := scan(&a.Generation, &a.Number, &a.NonceStart, &a.Holder, &claimed, &ended, &a.Outcome, &a.Result, &a.Error)
		a.Claimed, a.Ended = fromMillis(claimed), fromMillis(ended)
		out = append(out, a)
		return err
	})
	return out, listed("attempts", err)
}

// GenerationInfo says who opened a generation of a task, and why.
type GenerationInfo struct {
	Generation int64
	Cause      string // submit, rerun, reap or cancel
	Actor      string
	Reason     string
	RequestID  string
	Opened     time.Time
}

// Generations lists all generations of a task, in order.
func (s *Store) Generations(ctx context.Context, id int64) ([]GenerationInfo, error) {
	return s.readGenerations(ctx, s.db, id)
}

func (s *Store) readGenerations(ctx context.Context, q querier, id int64) ([]GenerationInfo, error) {
	var out []GenerationInfo
	err := s.all(ctx, q, "Generations", Args{"id": id}, func(scan func(...any) error) error {
		var g GenerationInfo
		var opened int64
		err := scan(&g.Generation, &g.Cause, &g.Actor, &g.Reason, &g.RequestID, &opened)
		g.Opened = fromMillis(opened)
		out = append(out, g)
		return err
	})
	return out, listed("generations", err)
}
