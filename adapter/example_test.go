package adapter_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/sqlite"
)

// README begin
func runPayroll(ctx context.Context, db *sql.DB) error {
	if err := lastword.Migrate(ctx, db, sqlite.Dialect(), nil); err != nil {
		return err
	}
	store, err := lastword.Open(ctx, db, sqlite.Dialect(), nil)
	if err != nil {
		return err
	}
	opts := lastword.LeaseOptions{TTL: 30 * time.Second} // renewed while the job runs
	return store.WithLease(ctx, "payroll", opts, func(ctx context.Context, l *lastword.Lease) error {
		total, err := computeTotal(ctx) // takes minutes; no transaction is open
		if err != nil {
			return err
		}
		return l.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error { // or ErrFenced
			_, err := tx.ExecContext(ctx, `UPDATE payroll SET total = ? WHERE month = '2026-11'`, total)
			return err
		})
	})
}

// README end

func computeTotal(context.Context) (int64, error) { return 4200, nil }

// A job that runs once in a fleet, and whose write stands only if nobody has taken over meanwhile.
func Example() {
	_, db, remove := openExample(
		`CREATE TABLE payroll (month TEXT PRIMARY KEY, total INTEGER NOT NULL)`,
		`INSERT INTO payroll VALUES ('2026-11', 0)`)
	defer remove()

	if err := runPayroll(context.Background(), db); err != nil {
		fmt.Println(err)
	}
	var total int64
	check(db.QueryRow(`SELECT total FROM payroll`).Scan(&total))
	fmt.Println("total:", total)
	// Output:
	// total: 4200
}
