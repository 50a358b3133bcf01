package judge_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/reconcile"
)

type fixture struct {
	*testing.T
	db      *sql.DB
	store   *lastword.Store
	archive *judge.Archive
}

// onEachEngine runs a test on SQLite and on PostgreSQL.
func onEachEngine(t *testing.T, test func(f fixture)) {
	for name, open := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "judge.db") },
		"postgres": func(t *testing.T) string {
			server, err := testserver.StartPostgres(t.Context())
			if err != nil && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			return server.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, store, err := database.Open(t.Context(), open(t), &lastword.Options{Holder: "test"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			archive, err := judge.OpenArchive(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := judge.OpenArchive(t.Context(), store); err != nil {
				t.Fatalf("opening the archive again: %v", err)
			}
			test(fixture{t, db, store, archive})
		})
	}
}

func (f fixture) submit() int64 {
	f.Helper()
	id, err := f.archive.Submit(f.Context(), judge.Submission{Problem: "sum", Language: "c", Filename: "a\x00\xff.c", Source: []byte("\x00\xff any bytes")})
	if err != nil {
		f.Fatal(err)
	}
	return id
}

func (f fixture) claim() *lastword.Attempt {
	f.Helper()
	attempts, err := f.store.Claim(f.Context(), lastword.ClaimOptions{Kinds: []string{judge.TaskKind}})
	if err != nil || len(attempts) != 1 {
		f.Fatalf("claimed %d: %v", len(attempts), err)
	}
	return attempts[0]
}

func (f fixture) submission(id int64) judge.Detail {
	f.Helper()
	detail, err := f.archive.Submission(f.Context(), id)
	if err != nil {
		f.Fatal(err)
	}
	return detail
}

func result(verdict judge.Verdict) judge.Result {
	return judge.Result{Verdict: verdict, Time: 12 * time.Millisecond, Memory: 1 << 20, Test: "secret/1", Message: "hostile \x00\xff\x1b[31m " + strings.Repeat("é", 5000),
		Tests: []judge.TestResult{{Name: "sample/1", Verdict: judge.Accepted}, {Name: "secret/1", Verdict: verdict, Message: "\x00"}}}
}

func TestRecordAndRejudge(t *testing.T) {
	onEachEngine(t, func(f fixture) {
		id := f.submit()
		first := f.claim()
		if err := f.archive.Record(f.Context(), first, result(judge.WrongAnswer)); err != nil {
			f.Fatal(err)
		}
		detail := f.submission(id)
		if v := detail.Verdict; v == nil || v.Verdict != judge.WrongAnswer {
			f.Fatalf("the verdict is %+v", v)
		}
		if string(detail.Source) != "\x00\xff any bytes" {
			f.Errorf("the source came back as %q", detail.Source)
		}
		if len(detail.Verdicts[0].Tests) != 2 || strings.ContainsAny(detail.Verdicts[0].Message, "\x00\x1b") || len(detail.Verdicts[0].Message) > 4<<10 {
			f.Errorf("the stored verdict is %+v", detail.Verdicts[0])
		}
		next, err := f.archive.Rejudge(f.Context(), id, 1, "somebody", "the tests were wrong")
		if err != nil || next != 2 {
			f.Fatalf("rejudge: generation %d, %v", next, err)
		}
		if detail := f.submission(id); detail.Verdict != nil || detail.Before == nil || detail.Before.Verdict != judge.WrongAnswer {
			f.Errorf("while it is judged again: verdict %+v, before %+v", detail.Verdict, detail.Before)
		}
		second := f.claim()
		if err := f.archive.Record(f.Context(), first, result(judge.RunTimeError)); !errors.Is(err, lastword.ErrFenced) {
			f.Errorf("the first judging's second verdict: %v", err)
		}
		if err := f.archive.Record(f.Context(), second, result(judge.Accepted)); err != nil {
			f.Fatal(err)
		}
		detail = f.submission(id)
		if detail.Verdict.Verdict != judge.Accepted || detail.Before.Verdict != judge.WrongAnswer || len(detail.Generations) != 2 || detail.Generations[1].Actor != "somebody" {
			f.Errorf("after the rejudge: %+v", detail)
		}
		if _, err := f.archive.Rejudge(f.Context(), id, 1, "", ""); !errors.Is(err, lastword.ErrConflict) {
			f.Errorf("a rejudge of an old generation: %v", err)
		}
		if _, err := f.archive.Rejudge(f.Context(), 999, 0, "", ""); !errors.Is(err, lastword.ErrNotFound) {
			f.Errorf("a rejudge of nothing: %v", err)
		}
	})
}

// A rejudge while the old judging still runs: its verdict, which comes last, is refused with everything that came with it.
func TestStaleVerdictIsRefused(t *testing.T) {
	onEachEngine(t, func(f fixture) {
		id := f.submit()
		stale := f.claim()
		if _, err := f.archive.Rejudge(f.Context(), id, 0, "somebody", ""); err != nil {
			f.Fatal(err)
		}
		if err := f.archive.Record(f.Context(), f.claim(), result(judge.Accepted)); err != nil {
			f.Fatal(err)
		}
		scored := false
		err := f.archive.Record(f.Context(), stale, result(judge.WrongAnswer), func(context.Context, *sql.Tx) error {
			scored = true
			return nil
		})
		var refused *lastword.RefusedError
		if !errors.As(err, &refused) || refused.Current != 2 || scored {
			f.Errorf("the stale verdict: %v (effects ran: %v)", err, scored)
		}
		if err := f.store.FlushRefusals(f.Context()); err != nil {
			f.Fatal(err)
		}
		detail := f.submission(id)
		if len(detail.Verdicts) != 1 || detail.Verdict.Generation != 2 || detail.Verdict.Verdict != judge.Accepted || len(detail.Refusals) != 1 {
			f.Errorf("verdicts %+v, refusals %+v", detail.Verdicts, detail.Refusals)
		}
	})
}

func TestUnknownVerdictIsRefusedBeforeSQL(t *testing.T) {
	onEachEngine(t, func(f fixture) {
		f.submit()
		attempt := f.claim()
		ended, cancel := context.WithCancel(f.Context())
		cancel() // a database that is asked would say so
		for _, verdict := range []judge.Verdict{"", "OK", "ac", "Accepted", "PE"} {
			err := f.archive.Record(ended, attempt, judge.Result{Verdict: verdict})
			if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "is no verdict") {
				f.Errorf("verdict %q: %v", verdict, err)
			}
		}
	})
}

// A task that ends without a verdict ends as a judge error, visibly, and the two checks of the reconciler see what is missing before.
func TestJudgeErrorAndChecks(t *testing.T) {
	onEachEngine(t, func(f fixture) {
		id := f.submit()
		if err := f.claim().Fail(f.Context(), lastword.Permanent(errors.New("the sandbox is broken"))); err != nil {
			f.Fatal(err)
		}
		f.submit() // pending: owes nothing yet
		copied := `INSERT INTO judge_submissions (id, problem, language, filename, source, created_at) SELECT 777, problem, language, filename, source, created_at FROM judge_submissions WHERE id = 1`
		if _, err := f.db.ExecContext(f.Context(), copied); err != nil {
			f.Fatal(err)
		}
		if got := f.orphans(); got["submission without task"] != 1 || got["ended task without verdict"] != 1 {
			f.Errorf("orphans before the event: %v", got)
		}
		ctx, stop := context.WithCancel(f.Context())
		relayed := make(chan error, 1)
		sink := sinkFunc(func(ctx context.Context, event lastword.Event) error {
			err := f.archive.Publish(ctx, event)
			if event.Topic == lastword.TopicFailed {
				stop()
			}
			return err
		})
		go func() { relayed <- f.store.Relay(ctx, sink, lastword.Poll(time.Millisecond)) }()
		if err := <-relayed; err != nil {
			f.Fatal(err)
		}
		if v := f.submission(id).Verdict; v == nil || v.Verdict != judge.JudgeError || !strings.Contains(v.Message, "the sandbox is broken") {
			f.Errorf("the verdict is %+v", v)
		}
		if got := f.orphans(); got["submission without task"] != 1 || got["ended task without verdict"] != 0 {
			f.Errorf("orphans after the event: %v", got)
		}
	})
}

type sinkFunc func(context.Context, lastword.Event) error

func (s sinkFunc) Publish(ctx context.Context, event lastword.Event) error { return s(ctx, event) }

func (f fixture) orphans() map[string]int64 {
	f.Helper()
	report, err := reconcile.Run(f.Context(), f.store, reconcile.Options{PageSize: 1}, f.archive.Checks()...)
	if err != nil {
		f.Fatal(err)
	}
	found := map[string]int64{}
	for _, check := range report.Checks {
		found[check.Name] = check.Orphans
	}
	return found
}
