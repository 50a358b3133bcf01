package reconcile

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/lastword-go/lastword"
)

const defaultLimit = 100

// RunInfo is a run as others see it.
type RunInfo struct {
	ID       int64     `json:"id"`
	Lease    string    `json:"lease"`
	Fence    int64     `json:"fence"` // 0 for one that failed before it had the lease
	Holder   string    `json:"holder"`
	State    State     `json:"state"` // of those that are rows
	Mode     Mode      `json:"mode"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"` // zero while it runs
	Totals
	Checks []CheckReport `json:"checks"`
	Reason string        `json:"reason,omitempty"` // why it failed or was abandoned
}

// Filter chooses runs; zero fields choose all.
type Filter struct {
	Lease  string
	Before int64 // only ids below; 0 begins at the newest
	Limit  int   // 0 is 100
}

// List lists runs, the newest first. One whose owner died says Running until the next run closes it.
func List(ctx context.Context, s *lastword.Store, f Filter) ([]RunInfo, error) {
	return read(ctx, s, s.DB(), f)
}

// Get returns one run, or [lastword.ErrNotFound].
func Get(ctx context.Context, s *lastword.Store, id int64) (RunInfo, error) {
	if id < 1 || id == math.MaxInt64 {
		return RunInfo{}, fmt.Errorf("reconcile: run %d: %w", id, lastword.ErrNotFound)
	}
	runs, err := read(ctx, s, s.DB(), Filter{Before: id + 1, Limit: 1})
	if err != nil {
		return RunInfo{}, err
	}
	if len(runs) == 0 || runs[0].ID != id {
		return RunInfo{}, fmt.Errorf("reconcile: run %d: %w", id, lastword.ErrNotFound)
	}
	return runs[0], nil
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func read(ctx context.Context, s *lastword.Store, q querier, f Filter) (runs []RunInfo, err error) {
	if f.Before <= 0 {
		f.Before = math.MaxInt64
	}
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	query, values := s.Bind("Runs", lastword.Args{"lease": f.Lease, "before": f.Before, "limit": f.Limit})
	rows, err := q.QueryContext(ctx, query, values...)
	if err != nil {
		return nil, fmt.Errorf("reconcile: list runs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		run, err := scanRun(rows)
		if err != nil {
			return nil, fmt.Errorf("reconcile: list runs: %w", err)
		}
		runs = append(runs, run)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reconcile: list runs: %w", err)
	}
	return runs, nil
}

func scanRun(rows *sql.Rows) (RunInfo, error) {
	var r RunInfo
	var started, finished int64
	var stored Totals
	var detail string
	err := rows.Scan(&r.ID, &r.Lease, &r.Fence, &r.Holder, &r.State, &r.Mode, &started, &finished, &stored.ChecksDone, &stored.Rows, &stored.Orphans, &detail, &r.Reason)
	if err != nil {
		return r, err
	}
	r.Started = time.UnixMilli(started).UTC()
	if finished != 0 {
		r.Finished = time.UnixMilli(finished).UTC()
	}
	// A detail that cannot be read hides no run: the columns beside it still count.
	if json.Unmarshal([]byte(detail), &r.Checks) != nil {
		r.Checks = nil
	}
	stored.OrphanChecks = total(r.Checks).OrphanChecks
	r.Totals = stored
	return r, nil
}
