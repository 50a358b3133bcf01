package adapter

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/reconcile"
	"github.com/lastword-go/lastword/sqlite"
)

func Example_reconcile() {
	if err := reconcileOrders(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// completed: 3 rows, 1 orphan in 1 of 1 checks
	// orders without a customer: [order-2]
	// alert: 1 orphan
}

func reconcileOrders(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "reconcile")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "shop.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // a run needs no more
	for _, statement := range []string{
		`CREATE TABLE customers (id TEXT PRIMARY KEY)`,
		`CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL)`,
		`CREATE TABLE alerts (text TEXT NOT NULL)`,
		`INSERT INTO customers VALUES ('ada'), ('grace')`,
		`INSERT INTO orders VALUES ('order-1', 'ada'), ('order-2', 'nobody'), ('order-3', 'grace')`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := lastword.Migrate(ctx, db, sqlite.Dialect(), nil); err != nil {
		return err
	}
	store, err := lastword.Open(ctx, db, sqlite.Dialect(), nil)
	if err != nil {
		return err
	}

	report, err := reconcile.Run(ctx, store, reconcile.Options{
		// The alert stands exactly if the run is completed.
		Publish: func(ctx context.Context, tx *sql.Tx, r reconcile.Report) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO alerts VALUES (?)`, fmt.Sprintf("alert: %d orphan", r.Orphans))
			return err
		},
	}, reconcile.Query(db, "orders without a customer", `
		SELECT o.id, c.id IS NULL
		FROM orders o LEFT JOIN customers c ON c.id = o.customer
		WHERE o.id > ? ORDER BY o.id LIMIT ?`))
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d rows, %d orphan in %d of %d checks\n", report.State, report.Rows, report.Orphans, report.OrphanChecks, report.ChecksDone)
	for _, check := range report.Checks {
		fmt.Printf("%s: %v\n", check.Name, check.Sample)
	}
	var alert string
	if err := db.QueryRowContext(ctx, `SELECT text FROM alerts`).Scan(&alert); err != nil {
		return err
	}
	fmt.Println(alert)
	return nil
}
