package reconcile

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lastword-go/lastword"
)

const (
	sampleKeys = 20
	maxReason  = 4 << 10
)

// CheckReport is what one check has found.
type CheckReport struct {
	Name    string   `json:"name"`
	Rows    int64    `json:"rows"`
	Orphans int64    `json:"orphans"`
	Sample  []string `json:"sample,omitempty"` // the first 20 keys of orphans
	Done    bool     `json:"done"`             // to the end of its keys
}

func (c *CheckReport) add(p *Page) {
	for _, row := range p.Rows {
		c.Rows++
		if !row.Orphan {
			continue
		}
		c.Orphans++
		if len(c.Sample) < sampleKeys {
			c.Sample = append(c.Sample, row.Key)
		}
	}
}

// Totals are sums over the checks of a run.
type Totals struct {
	ChecksDone   int   `json:"checks_done"`   // scanned to their end
	OrphanChecks int   `json:"orphan_checks"` // that found an orphan
	Rows         int64 `json:"rows"`          // seen
	Orphans      int64 `json:"orphans"`
}

func total(checks []CheckReport) Totals {
	var t Totals
	for _, c := range checks {
		t.Rows += c.Rows
		t.Orphans += c.Orphans
		if c.Done {
			t.ChecksDone++
		}
		if c.Orphans > 0 {
			t.OrphanChecks++
		}
	}
	return t
}

// Handle is an open run: a row that says "running", and the lease that it stands on. [Run] keeps one for its caller; use it for a
// scan of your own. Its writes are guarded transactions of their own, and errors are those of [lastword.Store.Tx]. A run that is
// not running any more refuses them with a [lastword.RefusedError], whoever holds the lease.
type Handle struct {
	store     *lastword.Store
	lease     *lastword.Lease
	id        int64
	abandoned int64
}

// Begin opens a run under a lease that the caller holds, usually the one named [LeaseName]. The row is visible to others at once. In
// the same guarded transaction, runs of this lease that an earlier holder left running are closed as abandoned.
func Begin(ctx context.Context, s *lastword.Store, l *lastword.Lease, label string) (*Handle, error) {
	h := &Handle{store: s, lease: l}
	token := l.Token()
	args := lastword.Args{"lease": token.Name, "epoch": token.Epoch, "nonce": token.Nonce, "holder": holder(s, label), "mode": string(Full)}
	err := l.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		query, values := s.Bind("RunsAbandon", args)
		closed, err := tx.ExecContext(ctx, query, values...)
		if err != nil {
			return fmt.Errorf("reconcile: close abandoned runs: %w", err)
		}
		if h.abandoned, err = closed.RowsAffected(); err != nil {
			return fmt.Errorf("reconcile: close abandoned runs: %w", err)
		}
		if _, err := s.QueryRow(ctx, tx, "RunStart", args, &h.id); err != nil {
			return fmt.Errorf("reconcile: start a run: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// ID returns the run's id.
func (h *Handle) ID() int64 { return h.id }

// Abandoned returns how many runs Begin closed.
func (h *Handle) Abandoned() int64 { return h.abandoned }

// Progress writes what has been found so far.
func (h *Handle) Progress(ctx context.Context, checks []CheckReport) error {
	args, err := h.args(checks)
	if err != nil {
		return err
	}
	return h.lease.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return h.write(ctx, tx, "progress", "RunProgress", args)
	})
}

// Complete publishes the result. effects, if not nil, runs in the same transaction, after the guard and before the run's own row:
// its writes stand exactly if the run is completed. Like the function of [lastword.Store.Tx] it may run more than once.
func (h *Handle) Complete(ctx context.Context, checks []CheckReport, effects func(ctx context.Context, tx *sql.Tx) error) error {
	return h.finish(ctx, Completed, checks, "", effects)
}

// Fail closes the run as failed.
func (h *Handle) Fail(ctx context.Context, checks []CheckReport, reason string) error {
	return h.finish(ctx, Failed, checks, reason, nil)
}

func (h *Handle) finish(ctx context.Context, state State, checks []CheckReport, reason string, effects func(ctx context.Context, tx *sql.Tx) error) error {
	args, err := h.args(checks)
	if err != nil {
		return err
	}
	args["state"], args["error"] = string(state), clip(reason)
	return h.lease.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if effects != nil {
			if err := effects(ctx, tx); err != nil {
				return err
			}
		}
		return h.write(ctx, tx, "finish", "RunFinish", args)
	})
}

func (h *Handle) args(checks []CheckReport) (lastword.Args, error) {
	detail, err := json.Marshal(checks)
	if err != nil {
		return nil, fmt.Errorf("reconcile: detail of run %d: %w", h.id, err)
	}
	sums, token := total(checks), h.lease.Token()
	return lastword.Args{"id": h.id, "epoch": token.Epoch, "nonce": token.Nonce,
		"checks": sums.ChecksDone, "rows_seen": sums.Rows, "orphans": sums.Orphans, "detail": string(detail)}, nil
}

// write changes the run's row if it is running and of this grant. The guard has proven the lease, not that: zero rows mean that the
// run was finished or closed before, and trying again cannot mend it.
func (h *Handle) write(ctx context.Context, tx *sql.Tx, operation, statement string, args lastword.Args) error {
	var id int64
	found, err := h.store.QueryRow(ctx, tx, statement, args, &id)
	if err != nil {
		return fmt.Errorf("reconcile: %s of run %d: %w", operation, h.id, err)
	}
	if !found {
		return h.refusal(ctx, tx, operation)
	}
	return nil
}

func (h *Handle) refusal(ctx context.Context, tx *sql.Tx, operation string) error {
	runs, err := read(ctx, h.store, tx, Filter{Before: h.id + 1, Limit: 1})
	if err != nil {
		return err
	}
	token := h.lease.Token()
	refused := &lastword.RefusedError{Token: token, Operation: operation, Outcome: lastword.ErrFenced, Current: token.Epoch}
	switch {
	case len(runs) == 0 || runs[0].ID != h.id:
		refused.Reason = fmt.Sprintf("there is no run %d", h.id)
	case runs[0].State == Running:
		refused.Reason = fmt.Sprintf("run %d belongs to another grant of its lease", h.id)
	default:
		refused.Reason = fmt.Sprintf("run %d is already %s", h.id, runs[0].State)
	}
	return refused
}

func holder(s *lastword.Store, label string) string {
	if label == "" {
		return s.Holder()
	}
	return s.Holder() + " " + label
}

// clip makes any text fit to be stored: PostgreSQL takes neither a zero byte nor broken UTF-8, and a reason that cannot be stored
// would leave the run open.
func clip(text string) string {
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "�"), "�")
}
