package demo

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/reconcile"
)

// A submission that has lost its task: what the reconciler reports.
const orphanID = 1_000_000_000

// reconcilerStory: A holds the lease and has counted one orphan when it is stopped. The orphan is mended, the lease expires, B takes over
// and reports none. Then A wakes up and reports.
func (s *stage) reconcilerStory(ctx context.Context, guarded bool) (landed bool, err error) {
	if err := s.plantOrphan(ctx); err != nil {
		return false, err
	}
	a, err := s.start(ctx, "A", "reconciler", guarded)
	if err != nil {
		return false, err
	}
	defer a.end()
	holds, err := a.expect(ctx, "holds")
	if err != nil {
		return false, err
	}
	ready, err := a.expect(ctx, "ready")
	if err != nil {
		return false, err
	}
	s.say("A (process %d) holds %s with fence %d for %v; it has counted %s", a.pid(), reconcile.LeaseName, holds.Epoch, s.Lease, orphans(ready.Orphans))
	if err := a.freeze(); err != nil {
		return false, err
	}
	s.say("A is stopped (SIGSTOP) just before it writes its report; the orphan is mended meanwhile")
	if err := s.mendOrphan(ctx); err != nil {
		return false, err
	}
	b, err := s.start(ctx, "B", "reconciler", guarded)
	if err != nil {
		return false, err
	}
	defer b.end()
	holdsB, err := b.expect(ctx, "holds")
	if err != nil {
		return false, err
	}
	s.say("A's lease has expired; B (process %d) took over with fence %d → %d", b.pid(), holds.Epoch, holdsB.Epoch)
	if _, err := b.expect(ctx, "ready"); err != nil {
		return false, err
	}
	if err := b.proceed(); err != nil {
		return false, err
	}
	if _, err := b.expect(ctx, "wrote"); err != nil {
		return false, err
	}
	if err := s.sayReport(ctx, "B has finished"); err != nil {
		return false, err
	}
	if err := a.proceed(); err != nil {
		return false, err
	}
	if err := a.thaw(); err != nil {
		return false, err
	}
	s.say("A is continued (SIGCONT) and writes its report")
	last, err := a.next(ctx)
	if err != nil {
		return false, err
	}
	return s.reportAfter(ctx, guarded, last)
}

func (s *stage) reportAfter(ctx context.Context, guarded bool, last message) (landed bool, err error) {
	switch last.Event {
	case "failed":
		return false, fmt.Errorf("process A could not write: %s", last.Reason)
	case "refused":
		s.refusal("A", last)
	}
	var by string
	var found int64
	if err := s.db.QueryRowContext(ctx, `SELECT orphans, written_by FROM demo_report WHERE id = 1`).Scan(&found, &by); err != nil {
		return false, err
	}
	if by == "A" {
		s.say("the report now says %s, written by A: the stale write LANDED over B's", orphans(found))
		return true, nil
	}
	s.say("the report still says %s, written by %s", orphans(found), by)
	if guarded {
		runs, err := reconcile.List(ctx, s.store, reconcile.Filter{Lease: reconcile.LeaseName, Limit: 2})
		if err != nil {
			return false, err
		}
		for _, run := range runs {
			s.say("run %d, fence %d: %s", run.ID, run.Fence, run.State)
		}
	}
	return last.Event == "wrote", nil
}

func (s *stage) sayReport(ctx context.Context, what string) error {
	var by string
	var found int64
	if err := s.db.QueryRowContext(ctx, `SELECT orphans, written_by FROM demo_report WHERE id = 1`).Scan(&found, &by); err != nil {
		return err
	}
	s.say("%s: the report says %s, written by %s", what, orphans(found), by)
	return nil
}

func orphans(n int64) string {
	if n == 1 {
		return "1 orphan"
	}
	return fmt.Sprintf("%d orphans", n)
}

func (s *stage) plantOrphan(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM demo_report`); err != nil {
		return err
	}
	id, err := s.archive.Submit(ctx, judge.Submission{Problem: "demo", Language: "python", Filename: "demo.py", Source: []byte("print()")})
	if err != nil {
		return err
	}
	if err := s.store.Cancel(ctx, nil, id, 1, "demo", "only its row is wanted"); err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO judge_submissions (id, problem, language, filename, source, created_at)
		SELECT %d, problem, language, filename, source, created_at FROM judge_submissions WHERE id = %d`, orphanID, id))
	return err
}

func (s *stage) mendOrphan(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, fmt.Sprintf(`DELETE FROM judge_submissions WHERE id = %d`, orphanID))
	return err
}

// Reconciler is the child's side: it takes the lease, counts, waits for its cue, and writes its report, guarded or not.
func Reconciler(ctx context.Context, store *lastword.Store, name string, ttl time.Duration, guarded bool, in io.Reader, out io.Writer) error {
	c := newCast(in, out)
	archive, err := judge.OpenArchive(ctx, store)
	if err != nil {
		return err
	}
	opts := lastword.LeaseOptions{TTL: ttl, Wait: 30 * time.Second, Label: name}
	told := false
	err = store.WithLease(ctx, reconcile.LeaseName, opts, func(jobCtx context.Context, l *lastword.Lease) error {
		if err := c.tell(message{Event: "holds", Epoch: l.Token().Epoch}); err != nil {
			return err
		}
		run, err := reconcile.Begin(jobCtx, store, l, name)
		if err != nil {
			return err
		}
		found, err := count(jobCtx, archive.Checks())
		if err != nil {
			return err
		}
		var total int64
		for _, check := range found {
			total += check.Orphans
		}
		if err := c.tell(message{Event: "ready", Orphans: total}); err != nil {
			return err
		}
		if err := c.waitForCue(); err != nil {
			return err
		}
		// A job that does not look at its context: only the guard stands between it and the report.
		report := func(ctx context.Context, tx *sql.Tx) error { return writeReport(ctx, tx, name, total) }
		stubborn := context.WithoutCancel(jobCtx)
		told = true
		if guarded {
			return c.outcome(run.Complete(stubborn, found, report))
		}
		return c.outcome(store.InTx(stubborn, nil, report))
	})
	if told {
		return nil // that the lease was lost is the story, and has been told
	}
	return err
}

func writeReport(ctx context.Context, tx *sql.Tx, name string, found int64) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM demo_report WHERE id = 1`); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO demo_report (id, orphans, written_by) VALUES (1, %d, '%s')`, found, name))
	return err
}

func count(ctx context.Context, checks []reconcile.Check) ([]reconcile.CheckReport, error) {
	var out []reconcile.CheckReport
	for _, check := range checks {
		report := reconcile.CheckReport{Name: check.Name, Done: true}
		for after := ""; ; {
			page, err := check.Page(ctx, reconcile.PageQuery{After: after, Limit: 500})
			if err != nil {
				return nil, err
			}
			if len(page.Rows) == 0 {
				break
			}
			for _, row := range page.Rows {
				report.Rows++
				if row.Orphan {
					report.Orphans++
				}
				after = row.Key
			}
		}
		out = append(out, report)
	}
	return out, nil
}
