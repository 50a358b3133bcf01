// Package reconcile compares facts between their owners, as a singleton job: one process in a fleet at a time, under a lease. Each
// run is a row that others can watch while it works, and that only its own holder can finish.
//
//	report, err := reconcile.Run(ctx, store, reconcile.Options{},
//		reconcile.Query(db, "orders without a customer", `SELECT o.id, c.id IS NULL FROM …`))
//
// A run that has lost its lease publishes nothing: the guard refuses its finish, in the same transaction as the effects that the
// caller hangs on it.
package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/lastword-go/lastword"
)

// LeaseName is the lease that all runs of [Run] stand under.
const LeaseName = "lastword:reconciliation"

// State is what became of a run.
type State string

// States of a run's row.
const (
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Abandoned State = "abandoned" // its owner lost the lease; the next run closed it
)

// Answers of [Run] that are never stored.
const (
	Skipped State = "skipped" // another holds the lease; there is no row
	Lost    State = "lost"    // the lease was lost; nothing is published, and the next run closes the row
	Unknown State = "unknown" // the run's last write failed or its reply was lost: [Get] says what the row says
)

// Mode is what a run looks at.
type Mode string

// Full compares everything. It is the only mode so far.
const Full Mode = "full"

const (
	defaultTTL      = 30 * time.Second
	defaultPageSize = 500
	maxPageSize     = 10_000
	recordTimeout   = 10 * time.Second // for writing that a run failed, also when its caller has given up
)

// Options of a run. The zero value is ready for use.
type Options struct {
	TTL      time.Duration // of the lease; 0 is 30 s. It is renewed while the run works.
	Wait     time.Duration // for a lease that is held, as in [lastword.LeaseOptions]; 0 does not wait
	PageSize int           // rows asked of a check at a time: 1 to 10,000; 0 is 500
	Label    string        // added to the holder that others see
	Log      *slog.Logger  // gets one line a run; nil discards it

	// Observe is called after each page whose progress is stored, and once at the end, however the run ended.
	Observe func(Report)

	// Publish writes the caller's own effects in the transaction that completes the run, behind its guard: they stand exactly if
	// the run is completed. It may run more than once. An error or a panic fails the run.
	Publish func(ctx context.Context, tx *sql.Tx, r Report) error
}

// Report is what [Run] has to say. While State is Completed it is the published result; otherwise it says how far the scan got.
type Report struct {
	RunID     int64 `json:"run_id"` // 0 when there is no row
	Fence     int64 `json:"fence"`  // 0 when the lease was not acquired
	State     State `json:"state"`
	Mode      Mode  `json:"mode"`
	Abandoned int64 `json:"abandoned"` // runs of earlier holders that this one closed
	Totals
	Checks []CheckReport       `json:"checks"`
	Held   *lastword.HeldError `json:"held,omitempty"`   // who holds the lease, of a run that was skipped
	Reason string              `json:"reason,omitempty"` // why it was not completed
}

// Run acquires the lease, opens a run, asks each check for all its pages, and finishes the run. No transaction is open while a check
// works; its context is cancelled when the lease is lost. What Run returns:
//
//   - Completed, nil: the result is published. Orphans are a result, not an error.
//   - Skipped, nil: another holds the lease; Report.Held says who. The error is not nil when ctx ended while Run waited.
//   - Failed and an error: a check failed, panicked or gave an [ErrBadPage], Publish failed, ctx ended, or there was no
//     acquiring the lease. The run is stored as failed; without the lease only if that was possible (RunID is not 0).
//   - Lost and an error that matches [lastword.ErrFenced]: nothing is published.
//   - Unknown and an error: the last write was not answered, or could not be made.
//
// Options or checks that make no sense are [lastword.ErrInvalid], and nothing is stored; a TTL out of bounds is found by the
// attempt to acquire, and stored.
func Run(ctx context.Context, s *lastword.Store, opts Options, checks ...Check) (Report, error) {
	report := Report{State: Failed, Mode: Full}
	if err := opts.fill(); err != nil {
		return report, err
	}
	if err := validateChecks(checks); err != nil {
		return report, err
	}
	j := &job{store: s, opts: opts, checks: checks, caller: ctx, report: report}
	for _, c := range checks {
		j.report.Checks = append(j.report.Checks, CheckReport{Name: c.Name})
	}
	entered := false
	leaseOpts := lastword.LeaseOptions{TTL: opts.TTL, Wait: opts.Wait, Label: opts.Label}
	err := s.WithLease(ctx, LeaseName, leaseOpts, func(ctx context.Context, l *lastword.Lease) error {
		entered = true
		j.run(ctx, l)
		return nil
	})
	// A loss after the finish was committed takes nothing back: what a run does outside of guarded writes is only to look.
	if !entered {
		j.notAcquired(ctx, err)
	}
	j.tell(ctx)
	return j.report, j.err
}

func (o *Options) fill() error {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.PageSize == 0 {
		o.PageSize = defaultPageSize
	}
	if o.PageSize < 1 || o.PageSize > maxPageSize {
		return invalidf("page size %d: 1 to %d are allowed", o.PageSize, maxPageSize)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

type job struct {
	store  *lastword.Store
	opts   Options
	checks []Check
	caller context.Context // tells a caller who gave up from a lease that was lost
	token  lastword.Token
	report Report
	err    error
}

func (j *job) run(ctx context.Context, l *lastword.Lease) {
	j.token = l.Token()
	j.report.Fence = j.token.Epoch
	h, err := Begin(ctx, j.store, l, j.opts.Label)
	if err != nil {
		j.notBegun(ctx, err)
		return
	}
	j.report.RunID, j.report.Abandoned, j.report.State = h.ID(), h.Abandoned(), Running
	if err := j.scan(ctx, h); err != nil {
		j.fail(ctx, h, err)
		return
	}
	j.complete(ctx, h)
}

func (j *job) scan(ctx context.Context, h *Handle) error {
	for i, check := range j.checks {
		found := &j.report.Checks[i]
		after := ""
		for !found.Done {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			page, err := check.next(ctx, PageQuery{After: after, Limit: j.opts.PageSize})
			if err != nil {
				return err
			}
			found.add(page)
			found.Done = len(page.Rows) == 0
			j.report.Totals = total(j.report.Checks)
			if found.Done {
				continue
			}
			after = page.Rows[len(page.Rows)-1].Key
			if err := h.Progress(ctx, j.report.Checks); err != nil {
				return err
			}
			if err := j.observe(); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete tells an error of Publish, after which the transaction was rolled back, from one of the transaction itself.
func (j *job) complete(ctx context.Context, h *Handle) {
	var effects func(ctx context.Context, tx *sql.Tx) error
	var ofPublish error
	if j.opts.Publish != nil {
		effects = func(ctx context.Context, tx *sql.Tx) error {
			r := j.snapshot()
			r.State = Completed
			ofPublish = protect("Publish", func() error { return j.opts.Publish(ctx, tx, r) })
			return ofPublish
		}
	}
	err := h.Complete(ctx, j.report.Checks, effects)
	switch {
	case err == nil:
		j.end(Completed, nil)
	case ofPublish == nil && errors.Is(err, lastword.ErrUnknown):
		j.end(Unknown, err)
	case ofPublish != nil:
		j.fail(ctx, h, fmt.Errorf("reconcile: publish: %w", err))
	default:
		j.fail(ctx, h, err)
	}
}

// fail closes the run as failed, unless the failure is that the lease is gone.
func (j *job) fail(ctx context.Context, h *Handle, err error) {
	if j.isLost(ctx, err) {
		j.lost(ctx, err)
		return
	}
	// The caller's context may be what ended the scan; the row should say so all the same.
	writeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	writeErr := h.Fail(writeCtx, j.report.Checks, err.Error())
	switch {
	case writeErr == nil:
		j.end(Failed, err)
	case j.isLost(ctx, writeErr):
		j.lost(ctx, fmt.Errorf("%w; before that: %w", writeErr, err))
	default:
		j.end(Unknown, fmt.Errorf("%w; and the run could not be closed: %w", err, writeErr))
	}
}

// isLost asks about this run's own lease: a check may well have fenced tokens of its own in its errors.
func (j *job) isLost(ctx context.Context, err error) bool {
	var refused *lastword.RefusedError
	if errors.As(err, &refused) && refused.Token == j.token {
		return true
	}
	return ctx.Err() != nil && j.caller.Err() == nil
}

func (j *job) lost(ctx context.Context, err error) {
	if cause := context.Cause(ctx); cause != nil && j.caller.Err() == nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w; after which: %w", cause, err)
	}
	if !errors.Is(err, lastword.ErrFenced) {
		err = fmt.Errorf("%w: %w", lastword.ErrFenced, err) // expired, and not taken yet: no less lost
	}
	j.end(Lost, fmt.Errorf("reconcile: run %d lost its lease and publishes nothing: %w", j.report.RunID, err))
}

// notBegun: the lease was there, the row could not be made.
func (j *job) notBegun(ctx context.Context, err error) {
	switch {
	case j.isLost(ctx, err):
		j.lost(ctx, err)
	case errors.Is(err, lastword.ErrUnknown):
		j.end(Unknown, err)
	default:
		j.recordFailure(ctx, err)
	}
}

func (j *job) notAcquired(ctx context.Context, err error) {
	var held *lastword.HeldError
	if errors.As(err, &held) {
		j.end(Skipped, nil)
		j.report.Held, j.report.Reason = held, held.Error()
		if ctx.Err() != nil {
			j.err = err
		}
		return
	}
	j.recordFailure(ctx, err)
}

// recordFailure stores a run that failed before it began, without a fence and without a guard: it claims nothing.
func (j *job) recordFailure(ctx context.Context, err error) {
	j.end(Failed, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	args := lastword.Args{"lease": LeaseName, "holder": holder(j.store, j.opts.Label), "mode": string(Full), "error": clip(err.Error())}
	err = j.store.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := j.store.QueryRow(ctx, tx, "RunFailedStart", args, &j.report.RunID)
		return err
	})
	if err != nil {
		j.report.RunID = 0
		j.opts.Log.WarnContext(ctx, "a failed reconciliation could not be recorded", "error", err)
	}
}

func (j *job) end(state State, err error) {
	j.report.State, j.err = state, err
	if err != nil {
		j.report.Reason = err.Error()
	}
}

// tell reports the end. The run is over: nothing that Observe does can change it.
func (j *job) tell(ctx context.Context) {
	level := slog.LevelInfo
	if j.err != nil {
		level = slog.LevelError
	}
	r := j.report
	j.opts.Log.LogAttrs(ctx, level, "reconciliation "+string(r.State), slog.Int64("run", r.RunID), slog.Int64("fence", r.Fence),
		slog.Int64("rows", r.Rows), slog.Int64("orphans", r.Orphans), slog.Int("checks_with_orphans", r.OrphanChecks),
		slog.Int64("abandoned", r.Abandoned), slog.String("reason", r.Reason))
	if err := j.observe(); err != nil {
		j.opts.Log.ErrorContext(ctx, "the observer of a reconciliation failed", "error", err)
	}
}

func (j *job) observe() error {
	if j.opts.Observe == nil {
		return nil
	}
	return protect("Observe", func() error {
		j.opts.Observe(j.snapshot())
		return nil
	})
}

// snapshot is a report that its receiver may keep: the scan goes on.
func (j *job) snapshot() Report {
	r := j.report
	r.Checks = slices.Clone(r.Checks)
	for i := range r.Checks {
		r.Checks[i].Sample = slices.Clone(r.Checks[i].Sample)
	}
	return r
}
