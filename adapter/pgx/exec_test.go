package pgxlastword_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
)

// What Exec takes, what it returns, and what it refuses.
func TestExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.lease("l", time.Minute).Token()
	exec := func(sql string, args ...any) (int64, error) {
		return pgxlastword.Exec(w.ctx, w.store, w.pool, token, sql, args...)
	}
	for _, c := range []struct {
		rows int64
		sql  string
		args []any
	}{
		{3, `INSERT INTO r SELECT generate_series(2, 4)`, nil},
		{2, `UPDATE r SET v = $2 WHERE id < $1;`, []any{3, 7}},
		{0, `DELETE FROM r WHERE id = @id`, []any{pgx.NamedArgs{"id": 99}}},
		{1, `DELETE FROM r WHERE id = @id AND v = @v`, []any{pgx.StrictNamedArgs{"id": 2, "v": 7}}},
		{1, `UPDATE r SET v = $1 WHERE id = 1`, []any{pgx.QueryExecModeExec, 8}},
		{1, `UPDATE r SET v = @v WHERE id = 1`, []any{pgx.QueryExecModeSimpleProtocol, pgx.NamedArgs{"v": 9}}},
	} {
		if rows, err := exec(c.sql, c.args...); rows != c.rows || err != nil {
			t.Errorf("%s: %d rows, %v", c.sql, rows, err)
		}
	}
	w.want(9)
	for _, c := range []struct {
		want error
		sql  string
		args []any
	}{
		{lastword.ErrInvalid, `SELECT 1`, nil},
		{lastword.ErrInvalid, ``, nil},
		{lastword.ErrInvalid, `UPDATE r SET v = 1; UPDATE r SET v = 2`, nil},
		{lastword.ErrInvalid, `UPDATE r SET v = 1 RETURNING v`, nil},
		{lastword.ErrInvalid, `WITH x AS (SELECT 1) UPDATE r SET v = 1`, nil},
		{lastword.ErrInvalid, `UPDATE r SET v = @v`, []any{pgx.StrictNamedArgs{}}},
		{lastword.ErrInvalid, `UPDATE r SET v = 1`, []any{rewriter{}}},
		{lastword.ErrFailed, `INSERT INTO r VALUES (1)`, nil},
		{lastword.ErrFailed, `UPDATE r SET v = $1`, []any{struct{}{}}}, // cannot be encoded: nothing is sent
		{lastword.ErrFailed, `UPDATE r SET v = $1`, nil},
		{lastword.ErrFailed, `UPDATE nowhere SET v = 1`, nil},
	} {
		if rows, err := exec(c.sql, c.args...); rows != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d rows, error %v, want %v", c.sql, rows, err, c.want)
		}
	}
	w.want(9)
	w.clean()
}

type rewriter struct{}

func (rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return "", nil, nil
}

// The nonce shows in no error, and in nothing that a tracer of the caller's writes down.
func TestNonceIsSecret(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w := newWorld(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelTrace, Logger: tracelog.LoggerFunc(func(ctx context.Context, _ tracelog.LogLevel, msg string, data map[string]any) {
			logger.InfoContext(ctx, msg, "data", data, "text", fmt.Sprintf("%v %+v %#v", data, data, data))
		})}
	})
	token := w.lease("l", time.Minute).Token()
	task := w.attempt().Token()
	w.exec(`ALTER TABLE lastword_tasks RENAME COLUMN attempt_id TO gone`)
	for _, run := range ways {
		must(t, run(w, token))
		err := run(w, task)
		w.is(err, lastword.ErrFailed)
		if strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), task.Nonce) {
			t.Errorf("the nonce is shown: %v", err)
		}
	}
	if !strings.Contains(log.String(), "[secret]") {
		t.Error("the tracer saw no statement of ours")
	}
	for _, nonce := range []string{token.Nonce, task.Nonce} {
		if strings.Contains(log.String(), nonce) {
			t.Error("a tracer saw the nonce")
		}
	}
}

// Tables in a schema or with a prefix of the user's own.
func TestPrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE SCHEMA jobs`)
	w.store = w.migrated("jobs.")
	token := w.lease("l", time.Minute).Token()
	for _, run := range ways {
		must(t, run(w, token))
	}
	w.want(3)
	w.exec(`UPDATE jobs.leases SET fence = fence + 1`)
	for _, run := range ways {
		w.is(run(w, token), lastword.ErrFenced)
	}
	w.want(3)
}
