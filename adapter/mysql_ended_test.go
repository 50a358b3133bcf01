package adapter

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/lastword-go/lastword"
)

// A statement whose text does not show that it commits is found out, whatever the function does then; one that does not commit is
// let be.
func TestMySQLHiddenEnd(t *testing.T) {
	t.Parallel()
	failure := errors.New("its own")
	exec := func(query string) func(ctx context.Context, tx *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, query); return err }
	}
	for name, test := range map[string]struct {
		run   func(ctx context.Context, tx *sql.Tx) error
		want  error // nil: success
		first bool  // what was written before stands
	}{
		"a harmless CALL":                 {exec(`CALL harmless()`), nil, true},
		"a CALL that fails":               {exec(`CALL fails()`), lastword.ErrFailed, false},
		"no procedure":                    {exec(`CALL nothing()`), lastword.ErrFailed, false},
		"a CALL that commits":             {exec(`CALL commits()`), lastword.ErrUnknown, true},
		"a CALL that commits, then fails": {exec(`CALL commits_and_fails()`), lastword.ErrUnknown, true},
		"swallowed": {func(ctx context.Context, tx *sql.Tx) error {
			_ = exec(`CALL commits_and_fails()`)(ctx, tx)
			return nil
		}, lastword.ErrUnknown, true},
		"an error of the function after it": {func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(exec(`CALL commits()`)(ctx, tx), failure)
		}, lastword.ErrUnknown, true},
		"contention after it": {func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(exec(`CALL commits()`)(ctx, tx), lastword.ErrContended)
		}, lastword.ErrUnknown, true},
		"a query": {func(ctx context.Context, tx *sql.Tx) error {
			var v string
			return tx.QueryRowContext(ctx, `CALL commits_and_says()`).Scan(&v)
		}, lastword.ErrUnknown, true},
		"prepared": {func(ctx context.Context, tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(ctx, `CALL commits()`)
			if err != nil {
				return err
			}
			defer stmt.Close()
			_, err = stmt.ExecContext(ctx)
			return err
		}, lastword.ErrUnknown, true},
		"hidden between quotes": {exec(`UPDATE r SET v = 'it\''; COMMIT; UPDATE r SET v = 'x' WHERE id = 9`), lastword.ErrUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newControl(t, mysqlEngine(t, "multiStatements=true"))
			for _, procedure := range []string{
				`harmless() UPDATE r SET v = v`, `fails() BEGIN INSERT INTO r VALUES (7, 'x'); INSERT INTO r VALUES (1, 'x'); END`, `commits() COMMIT`,
				`commits_and_fails() BEGIN COMMIT; INSERT INTO r VALUES (1, 'x'); END`, `commits_and_says() BEGIN COMMIT; SELECT 'done'; END`,
			} {
				c.exec(c.b, `CREATE PROCEDURE `+procedure)
			}
			runs := 0
			err := c.store.Tx(c.ctx, c.token, nil, func(ctx context.Context, tx *sql.Tx) error {
				runs++
				c.exec(tx, `INSERT INTO r VALUES (2, 'first')`)
				if err := test.run(ctx, tx); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, `INSERT INTO r VALUES (3, 'second')`)
				return err
			})
			if !errors.Is(err, test.want) || runs != 1 {
				t.Errorf("%v after %d runs, want %v", err, runs, test.want)
			}
			var first, second, failed int
			c.must(c.b.QueryRowContext(c.ctx, `SELECT coalesce(sum(id = 2), 0), coalesce(sum(id = 3), 0), coalesce(sum(id = 7), 0) FROM r`).Scan(&first, &second, &failed))
			if (first == 1) != test.first || (second == 1) != (test.want == nil) || failed != 0 {
				t.Errorf("there are %d, %d, %d rows", first, second, failed)
			}
			c.must(c.store.InTx(c.ctx, nil, func(ctx context.Context, tx *sql.Tx) error { return exec(`UPDATE r SET v = v`)(ctx, tx) })) // the pool is whole
		})
	}
}
