package pgxlastword_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lastword-go/lastword"
	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
	"github.com/lastword-go/lastword/postgres"
)

// example opens a Store that shares the pool, and makes the examples' table.
func example(ctx context.Context) (store *lastword.Store, pool *pgxpool.Pool, done func()) {
	url, drop, err := server.NewDatabase(ctx)
	check(err)
	pool, err = pgxpool.New(ctx, url)
	check(err)
	db := stdlib.OpenDBFromPool(pool)
	store = open(ctx, db)
	_, err = pool.Exec(ctx, `CREATE TABLE payroll (month text PRIMARY KEY, total bigint NOT NULL)`)
	check(err)
	return store, pool, func() { _ = db.Close(); pool.Close(); drop() }
}

func open(ctx context.Context, db *sql.DB) *lastword.Store {
	check(lastword.Migrate(ctx, db, postgres.Dialect(), nil))
	store, err := lastword.Open(ctx, db, postgres.Dialect(), &lastword.Options{Holder: "host-a"})
	check(err)
	return store
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// takeOver ends the lease's time and gives it to the next.
func takeOver(ctx context.Context, store *lastword.Store, pool *pgxpool.Pool) {
	_, err := pool.Exec(ctx, `UPDATE lastword_leases SET leased_until = clock_timestamp()`)
	check(err)
	_, err = store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: time.Minute, Label: "next"})
	check(err)
}

// BEGIN and guard are one round trip; the write stands only if nobody has taken over before its commit.
func ExampleTx() {
	ctx := context.Background()
	store, pool, done := example(ctx)
	defer done()
	err := store.WithLease(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second}, func(ctx context.Context, l *lastword.Lease) error {
		pay := func(ctx context.Context, tx pgx.Tx) error { // may run again after a deadlock: no effects but those of tx
			_, err := tx.Exec(ctx, `INSERT INTO payroll VALUES ($1, $2)`, "2026-11", 4200)
			return err
		}
		err := pgxlastword.Tx(ctx, store, pool, l.Token(), pgx.TxOptions{}, pay)
		if errors.Is(err, lastword.ErrUnknown) { // the reply to COMMIT was lost
			committed, resolveErr := pgxlastword.Resolve(ctx, pool, err)
			if committed {
				return nil
			}
			return errors.Join(err, resolveErr)
		}
		return err
	})
	var total int64
	check(pool.QueryRow(ctx, `SELECT total FROM payroll`).Scan(&total))
	fmt.Println(total, err)
	// Output:
	// 4200 <nil>
}

// The guard is the first statement of the caller's own transaction. When it refuses, the transaction is rolled back.
func ExampleGuard() {
	ctx := context.Background()
	store, pool, done := example(ctx)
	defer done()
	lease, err := store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second})
	check(err)
	pay := func(tx pgx.Tx) error {
		if err := pgxlastword.Guard(ctx, store, tx, lease.Token()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO payroll VALUES ('2026-11', 4200)`)
		return err
	}
	fmt.Println("while it holds:", pgx.BeginFunc(ctx, pool, pay))
	takeOver(ctx, store, pool)
	fmt.Println("after a takeover it is fenced:", errors.Is(pgx.BeginFunc(ctx, pool, pay), lastword.ErrFenced))
	// Output:
	// while it holds: <nil>
	// after a takeover it is fenced: true
}

// Guard and write as one statement, in one round trip.
func ExampleExec() {
	ctx := context.Background()
	store, pool, done := example(ctx)
	defer done()
	lease, err := store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second})
	check(err)
	const insert = `INSERT INTO payroll VALUES (@month, @total)`
	rows, err := pgxlastword.Exec(ctx, store, pool, lease.Token(), insert, pgx.NamedArgs{"month": "2026-11", "total": 4200})
	fmt.Println("rows:", rows, err)
	takeOver(ctx, store, pool)
	rows, err = pgxlastword.Exec(ctx, store, pool, lease.Token(), insert, pgx.NamedArgs{"month": "2026-12", "total": 1})
	var refused *lastword.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("rows:", rows, refused.Outcome, "by", refused.Holder, "with fence", refused.Current)
	}
	// Output:
	// rows: 1 <nil>
	// rows: 0 fenced by host-a next with fence 2
}
