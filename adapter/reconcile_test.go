package adapter

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/mysql"
	"github.com/lastword-go/lastword/postgres"
	"github.com/lastword-go/lastword/reconcile"
	"github.com/lastword-go/lastword/sqlite"
)

func TestReconcile(t *testing.T) {
	behaviours := []struct {
		name string
		test func(reconcileDB, *testing.T)
	}{
		{"13 a second process sees RUNNING and is answered busy", reconcileDB.testSecondProcess},
		{"14 17 20 loss during the scan cancels it and the next run closes it", reconcileDB.testLossDuringScan},
		{"15 20 a finish after the takeover is refused", reconcileDB.testFinishAfterTakeover},
		{"15 a late finish with an old handle is refused", reconcileDB.testLateHandle},
		{"16 a second finish is refused", reconcileDB.testSecondFinish},
		{"17 a run of the same fence but another owner is not ours", reconcileDB.testSameFenceOtherOwner},
		{"18 busy stores no row", reconcileDB.testBusy},
		{"19 a failed acquire stores FAILED", reconcileDB.testAcquireError},
		{"a run whose row cannot be closed says so", reconcileDB.testRowGone},
		{"a lost reply to COMMIT is unknown", reconcileDB.testUnknown},
		{"24 what a check or Publish does wrong fails the run", reconcileDB.testFailures},
		{"26 rows and checks are counted over several pages", reconcileDB.testCounts},
	}
	each := func(t *testing.T, open func(t *testing.T) reconcileDB) {
		for _, b := range behaviours {
			t.Run(b.name, func(t *testing.T) { b.test(open(t).migrate(t), t) })
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		each(t, func(t *testing.T) reconcileDB {
			url := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
			return reconcileDB{"sqlite", url, sqlite.Dialect()}
		})
	})
	t.Run("mysql", func(t *testing.T) {
		each(t, func(t *testing.T) reconcileDB { return reconcileDB{"mysql", newMySQL(t), mysql.Dialect()} })
	})
	t.Run("postgres", func(t *testing.T) {
		server, err := testserver.StartPostgres(t.Context())
		if err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		each(t, func(t *testing.T) reconcileDB {
			url, drop, err := server.NewDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(drop)
			return reconcileDB{"pgx", url, postgres.Dialect()}
		})
	})
}

const reconcileChild = "LASTWORD_TEST_RECONCILE_CHILD"

// TestReconcileChild is the second process of reconcileDB.testSecondProcess; by itself it does nothing.
func TestReconcileChild(t *testing.T) {
	driver, url, isChild := strings.Cut(os.Getenv(reconcileChild), " ")
	if !isChild {
		return
	}
	dialects := map[string]lastword.Dialect{"sqlite": sqlite.Dialect(), "mysql": mysql.Dialect(), "pgx": postgres.Dialect()}
	s := reconcileDB{driver, url, dialects[driver]}.open(t, "second")
	report, err := reconcile.Run(t.Context(), s, reconcileOptions, reconcileOnePage(func() {}))
	runs := reconcileMust(reconcile.List(t.Context(), s, reconcile.Filter{}))
	fmt.Printf("child: %s %v %s %d %s\n", report.State, err, report.Held.Holder, len(runs), runs[0].State)
}

// The first run cannot end before the second process has: an answer at all is an answer at once.
func (d reconcileDB) testSecondProcess(t *testing.T) {
	s := d.open(t, "first")
	report, err := reconcile.Run(t.Context(), s, reconcileOptions, reconcileOnePage(func() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestReconcileChild$", "-test.count=1")
		cmd.Env = append(os.Environ(), reconcileChild+"="+d.driver+" "+d.url)
		out, err := cmd.CombinedOutput()
		if want := "child: skipped <nil> first 1 running"; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("second process: %v\n%s\nwant %q", err, out, want)
		}
	}))
	if err != nil || report.State != reconcile.Completed {
		t.Fatal(report, err)
	}
	d.wantState(t, s, report.RunID, reconcile.Completed)
	d.wantPublished(t, s, 1)
}

func (d reconcileDB) testLossDuringScan(t *testing.T) {
	s := d.open(t, "")
	opts := reconcileOptions
	opts.TTL = 3 * time.Second // found by the first renewal, after a second
	report, err := reconcile.Run(t.Context(), s, opts, reconcileCheck(func(ctx context.Context, _ reconcile.PageQuery) (*reconcile.Page, error) {
		d.expire(t, s)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	if report.State != reconcile.Lost || !errors.Is(err, lastword.ErrFenced) {
		t.Fatal(report, err)
	}
	d.wantState(t, s, report.RunID, reconcile.Running)
	d.wantPublished(t, s, 0)
	next, err := reconcile.Run(t.Context(), s, reconcileOptions, reconcileOnePage(func() {}))
	if err != nil || next.State != reconcile.Completed || next.Abandoned != 1 || next.Fence <= report.Fence {
		t.Fatal(next, err)
	}
	if run := d.wantState(t, s, report.RunID, reconcile.Abandoned); run.Finished.IsZero() || run.Reason == "" {
		t.Fatal(run)
	}
}

func (d reconcileDB) testFinishAfterTakeover(t *testing.T) {
	s, other := d.open(t, "first"), d.open(t, "second")
	for _, takeover := range []bool{false, true} { // expired and taken; expired only
		var states []reconcile.State
		opts := reconcileOptions
		opts.Observe = func(r reconcile.Report) { states = append(states, r.State) }
		report, err := reconcile.Run(t.Context(), s, opts, reconcileOnePage(func() {
			d.expire(t, s)
			if takeover {
				d.acquire(t, other)
			}
		}))
		if report.State != reconcile.Lost || !errors.Is(err, lastword.ErrFenced) || report.Rows != 1 {
			t.Fatal(report, err)
		}
		if want := []reconcile.State{reconcile.Running, reconcile.Lost}; !slices.Equal(states, want) {
			t.Fatalf("observed %v, want %v", states, want)
		}
		d.wantState(t, s, report.RunID, reconcile.Running)
		d.wantPublished(t, s, 0)
	}
}

func (d reconcileDB) testLateHandle(t *testing.T) {
	s, other := d.open(t, "first"), d.open(t, "second")
	old, err := reconcile.Begin(t.Context(), s, d.acquire(t, s), "")
	if err != nil {
		t.Fatal(err)
	}
	d.expire(t, s)
	current, err := reconcile.Begin(t.Context(), other, d.acquire(t, other), "nightly")
	if err != nil || current.Abandoned() != 1 {
		t.Fatal(current, err)
	}
	found := []reconcile.CheckReport{{Name: "c", Rows: 9, Done: true}}
	for _, late := range []error{old.Progress(t.Context(), found), old.Complete(t.Context(), found, reconcilePublish), old.Fail(t.Context(), found, "late")} {
		if !errors.Is(late, lastword.ErrFenced) {
			t.Fatalf("%v: want fenced", late)
		}
	}
	if n := s.RefusalCounts().Refused; n != 3 {
		t.Fatalf("%d refusals counted, want 3", n)
	}
	if run := d.wantState(t, s, old.ID(), reconcile.Abandoned); run.Rows != 0 {
		t.Fatal(run)
	}
	d.wantPublished(t, s, 0)
	if err := current.Complete(t.Context(), found, reconcilePublish); err != nil {
		t.Fatal(err)
	}
	if run := d.wantState(t, s, current.ID(), reconcile.Completed); run.Rows != 9 || run.Holder != "second nightly" || run.ChecksDone != 1 {
		t.Fatal(run)
	}
	d.wantPublished(t, s, 1)
}

func (d reconcileDB) testSecondFinish(t *testing.T) {
	s := d.open(t, "")
	h := reconcileMust(reconcile.Begin(t.Context(), s, d.acquire(t, s), ""))
	if err := h.Complete(t.Context(), []reconcile.CheckReport{{Name: "c", Rows: 1}}, reconcilePublish); err != nil {
		t.Fatal(err)
	}
	second := []reconcile.CheckReport{{Name: "c", Rows: 2}}
	for _, err := range []error{h.Complete(t.Context(), second, reconcilePublish), h.Fail(t.Context(), second, "no"), h.Progress(t.Context(), second)} {
		if !errors.Is(err, lastword.ErrFenced) || !strings.Contains(err.Error(), "already completed") {
			t.Fatalf("%v: want fenced, already completed", err)
		}
	}
	if run := d.wantState(t, s, h.ID(), reconcile.Completed); run.Rows != 1 || run.Reason != "" {
		t.Fatal(run)
	}
	d.wantPublished(t, s, 1)
}

// A restore or a failover can mint a fence twice: only fence and owner together say whose run it is.
func (d reconcileDB) testSameFenceOtherOwner(t *testing.T) {
	s := d.open(t, "")
	l := d.acquire(t, s)
	h := reconcileMust(reconcile.Begin(t.Context(), s, l, ""))
	d.exec(t, s.DB(), `UPDATE lastword_runs SET owner = 'somebody else'`)
	if err := h.Complete(t.Context(), nil, reconcilePublish); !errors.Is(err, lastword.ErrFenced) {
		t.Fatalf("%v: want fenced", err)
	}
	d.wantPublished(t, s, 0)
	if again := reconcileMust(reconcile.Begin(t.Context(), s, l, "")); again.Abandoned() != 1 {
		t.Fatalf("%d abandoned, want 1", again.Abandoned())
	}
	d.wantState(t, s, h.ID(), reconcile.Abandoned)
}

func (d reconcileDB) testBusy(t *testing.T) {
	s := d.open(t, "")
	l := d.acquire(t, d.open(t, "the other"))
	report, err := reconcile.Run(t.Context(), s, reconcileOptions, reconcileOnePage(func() { t.Error("scanned") }))
	if err != nil || report.State != reconcile.Skipped || report.Held == nil || report.Held.Holder != "the other" || report.Held.Fence != l.Token().Epoch {
		t.Fatal(report, err)
	}
	if runs, err := reconcile.List(t.Context(), s, reconcile.Filter{}); err != nil || len(runs) != 0 {
		t.Fatal(runs, err)
	}
}

func (d reconcileDB) testAcquireError(t *testing.T) {
	s := d.open(t, "here")
	failed := func(opts reconcile.Options, reason string) {
		t.Helper()
		report, err := reconcile.Run(t.Context(), s, opts, reconcileOnePage(func() { t.Error("scanned") }))
		if err == nil || report.State != reconcile.Failed || report.Fence != 0 {
			t.Fatal(report, err)
		}
		run := d.wantState(t, s, report.RunID, reconcile.Failed)
		if run.Mode != reconcile.Full || run.Fence != 0 || run.Lease != reconcile.LeaseName || run.Holder != "here nightly" || !strings.Contains(run.Reason, reason) {
			t.Fatalf("%+v", run)
		}
	}
	failed(reconcile.Options{TTL: time.Millisecond, Label: "nightly"}, "TTL is 1ms")
	d.exec(t, s.DB(), `ALTER TABLE lastword_leases RENAME TO gone`)
	failed(reconcile.Options{Label: "nightly"}, "lastword_leases")
}

func (d reconcileDB) testRowGone(t *testing.T) {
	s := d.open(t, "")
	report, err := reconcile.Run(t.Context(), s, reconcileOptions, reconcileOnePage(func() {
		d.exec(t, s.DB(), `ALTER TABLE lastword_runs RENAME TO gone`)
	}))
	if report.State != reconcile.Unknown || !errors.Is(err, lastword.ErrFailed) || errors.Is(err, lastword.ErrFenced) {
		t.Fatal(report, err)
	}
	d.wantPublished(t, s, 0)
}

// The trigger runs at COMMIT and ends the server's process, and with it the connection.
func (d reconcileDB) testUnknown(t *testing.T) {
	if d.driver != "pgx" {
		t.Skip("no connection can be lost at COMMIT: the engine is in the process, or has no triggers that run so late")
	}
	s := d.open(t, "")
	d.exec(t, s.DB(), `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_terminate_backend(pg_backend_pid());
		PERFORM pg_sleep(60); -- is where the termination arrives
		RETURN NULL;
	END $$`)
	d.exec(t, s.DB(), `CREATE CONSTRAINT TRIGGER die AFTER INSERT ON published DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`)
	report, err := reconcile.Run(t.Context(), s, reconcileOptions, reconcileOnePage(func() {}))
	if report.State != reconcile.Unknown || !errors.Is(err, lastword.ErrUnknown) {
		t.Fatal(report, err)
	}
	// No second finish was tried, neither to complete nor to fail.
	d.wantState(t, s, report.RunID, reconcile.Running)
	d.wantPublished(t, s, 0)
}

func (d reconcileDB) testFailures(t *testing.T) {
	s := d.open(t, "")
	broken := errors.New("broken\x00\xff")
	rows := func(keys ...string) reconcile.Check {
		return reconcileCheck(func(context.Context, reconcile.PageQuery) (*reconcile.Page, error) {
			page := &reconcile.Page{}
			for _, key := range keys {
				page.Rows = append(page.Rows, reconcile.Row{Key: key})
			}
			return page, nil
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cases := []struct {
		name   string
		check  reconcile.Check
		opts   reconcile.Options
		ctx    context.Context
		is     error
		reason string
	}{
		{name: "nil", check: reconcileCheck(func(context.Context, reconcile.PageQuery) (*reconcile.Page, error) { return nil, nil }), is: reconcile.ErrBadPage, reason: "none at all"},
		{name: "unordered", check: rows("b", "a"), is: reconcile.ErrBadPage, reason: `the key "a" after "b"`},
		{name: "duplicate", check: rows("a", "a"), is: reconcile.ErrBadPage, reason: "repeats"},
		{name: "the same page again", check: rows("a", "b"), is: reconcile.ErrBadPage, reason: `"a" after "b"`},
		{name: "blank", check: rows("a", " "), is: reconcile.ErrBadPage, reason: "blank"},
		{name: "oversized", check: rows("a", "b", "c", "d"), is: reconcile.ErrBadPage, reason: "4 rows where at most 3"},
		{name: "long key", check: rows(strings.Repeat("k", 1025)), is: reconcile.ErrBadPage, reason: "1025 bytes"},
		{name: "error", check: reconcileCheck(func(context.Context, reconcile.PageQuery) (*reconcile.Page, error) { return nil, broken }), is: broken, reason: "broken"},
		{name: "a fence of the check's own", check: reconcileCheck(func(context.Context, reconcile.PageQuery) (*reconcile.Page, error) {
			return nil, &lastword.RefusedError{Outcome: lastword.ErrFenced, Reason: "another token"}
		}), is: lastword.ErrFenced, reason: "another token"},
		{name: "panic", check: reconcileCheck(func(context.Context, reconcile.PageQuery) (*reconcile.Page, error) { panic("boo") }), reason: "panicked: boo"},
		{name: "publish", opts: reconcile.Options{Publish: func(context.Context, *sql.Tx, reconcile.Report) error { return broken }}, is: broken, reason: "publish: broken"},
		{name: "publish panics", opts: reconcile.Options{Publish: func(context.Context, *sql.Tx, reconcile.Report) error { panic("boo") }}, reason: "panicked: boo"},
		{name: "observe panics", opts: reconcile.Options{Observe: func(reconcile.Report) { panic("boo") }}, reason: "panicked: boo"},
		{name: "the caller gives up", check: reconcileOnePage(cancel), ctx: cancelled, is: context.Canceled, reason: "canceled"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.opts.PageSize = 3
			if c.check.Page == nil {
				c.check = reconcileOnePage(func() {})
			}
			if c.opts.Publish == nil {
				c.opts.Publish = reconcileOptions.Publish
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			report, err := reconcile.Run(c.ctx, s, c.opts, c.check)
			if err == nil || report.State != reconcile.Failed || c.is != nil && !errors.Is(err, c.is) {
				t.Fatal(report, err)
			}
			if run := d.wantState(t, s, report.RunID, reconcile.Failed); !strings.Contains(run.Reason, c.reason) || run.Finished.IsZero() {
				t.Fatalf("%+v: want the reason %q", run, c.reason)
			}
			d.wantPublished(t, s, 0)
		})
	}
}

func (d reconcileDB) testCounts(t *testing.T) {
	s, other := d.open(t, ""), d.open(t, "")
	d.exec(t, s.DB(), `CREATE TABLE parent (id varchar(20) PRIMARY KEY, deleted integer NOT NULL)`)
	d.exec(t, s.DB(), `CREATE TABLE child (id varchar(20) PRIMARY KEY, parent_id varchar(20) NOT NULL)`)
	d.exec(t, s.DB(), `INSERT INTO parent VALUES ('kept', 0), ('soft-deleted', 1)`)
	for i := range 24 { // exactly three pages of eight
		d.exec(t, s.DB(), fmt.Sprintf(`INSERT INTO child VALUES ('%s', '%s')`, reconcile.IntKey(int64(i)), [...]string{"gone", "kept", "gone", "soft-deleted", "gone", "gone"}[i%6]))
	}
	const join = `SELECT c.id, p.id IS NULL FROM child c LEFT JOIN parent p ON p.id = c.parent_id WHERE c.id > %s %s ORDER BY c.id LIMIT %s`
	query := func(name, where string) reconcile.Check {
		return reconcile.Query(s.DB(), name, fmt.Sprintf(join, d.dialect.Placeholder(1), where, d.dialect.Placeholder(2)))
	}
	all, asked := query("all", ""), 0
	page := all.Page
	all.Page = func(ctx context.Context, q reconcile.PageQuery) (*reconcile.Page, error) {
		asked++
		d.exec(t, other.DB(), `INSERT INTO published VALUES ('no transaction is open while a check works')`)
		return page(ctx, q)
	}
	var seen []int64
	opts := reconcile.Options{PageSize: 8, Observe: func(r reconcile.Report) {
		if run := d.wantState(t, other, r.RunID, r.State); run.Rows != r.Rows || run.Orphans != r.Orphans || !slices.EqualFunc(run.Checks, r.Checks, d.sameCheck) {
			t.Errorf("stored %+v, observed %+v", run, r)
		}
		seen = append(seen, r.Rows)
	}}
	report, err := reconcile.Run(t.Context(), s, opts, all, query("kept", "AND p.id IS NOT NULL"), query("few", "AND c.parent_id = 'gone' AND c.id < '0000000000000000005'"), query("none", "AND 1 = 0"))
	if err != nil || report.State != reconcile.Completed {
		t.Fatal(report, err)
	}
	if want := []int64{8, 16, 24, 32, 35, 35}; asked != 4 || !slices.Equal(seen, want) {
		t.Fatalf("asked %d times, want 4; observed %v, want %v", asked, seen, want)
	}
	want := reconcile.Totals{ChecksDone: 4, OrphanChecks: 2, Rows: 35, Orphans: 19}
	if run := d.wantState(t, s, report.RunID, reconcile.Completed); report.Totals != want || run.Totals != want || len(run.Checks[0].Sample) != 16 {
		t.Fatalf("report %+v\nrun %+v\nwant %+v", report, run, want)
	}
}

func (reconcileDB) sameCheck(a, b reconcile.CheckReport) bool {
	return string(reconcileMust(json.Marshal(a))) == string(reconcileMust(json.Marshal(b)))
}
