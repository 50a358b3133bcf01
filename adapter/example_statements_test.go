package adapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

// A program on several engines keeps its SQL as the library does: one file an engine, with the same sections.
func Example_parseStatements() {
	statements := must(lastword.ParseStatements(`
-- define: now = CURRENT_TIMESTAMP

-- Comments on lines of their own are dropped.
-- name: OrderInsert
INSERT INTO orders (item, price, ordered) VALUES (@item, @price, {now})

-- This engine does without it.
-- name: OrderLock
`, "", func(n int) string { return fmt.Sprintf("$%d", n) }))

	insert := statements["OrderInsert"]
	fmt.Println(insert.Text)
	fmt.Println(insert.Params, insert.Bind(lastword.Args{"item": "tea", "price": 3}))
	fmt.Println("empty:", insert.Empty(), statements["OrderLock"].Empty())
	// Output:
	// INSERT INTO orders (item, price, ordered) VALUES ($1, $2, CURRENT_TIMESTAMP)
	// [item price] [tea 3]
	// empty: false true
}

// A package that builds on the library's tables uses its statements, its database and its dialect.
func Example_storeBind() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	must(store.Acquire(ctx, "indexer", lastword.LeaseOptions{TTL: 30 * time.Second}))

	query, values := store.Bind("LeaseRead", lastword.Args{"name": "indexer"})
	rows := must(store.DB().QueryContext(ctx, query, values...))
	defer rows.Close()
	columns := must(rows.Columns())
	fmt.Println(store.Dialect().Name, store.Holder(), values, len(columns), rows.Next())
	check(rows.Err())
	// Output:
	// sqlite host-a [indexer] 8 true
}

// A section may have several statements on another engine: QueryRow runs them all. They belong into one transaction.
func Example_storeQueryRow() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	lease := must(store.Acquire(ctx, "indexer", lastword.LeaseOptions{TTL: 30 * time.Second})).Token()

	for range 2 {
		check(store.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			var fence int64
			args := lastword.Args{"name": lease.Name, "epoch": lease.Epoch, "nonce": lease.Nonce}
			found, err := store.QueryRow(ctx, tx, "LeaseRelease", args, &fence)
			fmt.Println(found, fence)
			return err
		}))
	}
	// Output:
	// true 1
	// false 0
}

// Open says when the tables are missing, and Migrate makes them.
func Example_migrate() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	db := store.DB()

	// Another prefix keeps two programs apart in one database.
	opts := &lastword.Options{Prefix: "jobs_", Holder: "host-a"}
	_, err := lastword.Open(ctx, db, store.Dialect(), opts)
	var schema *lastword.SchemaError
	fmt.Println("missing:", errors.As(err, &schema) && schema.Have == 0)
	check(lastword.Migrate(ctx, db, store.Dialect(), opts))
	check(lastword.Migrate(ctx, db, store.Dialect(), opts)) // again is harmless
	jobs := must(lastword.Open(ctx, db, store.Dialect(), opts))
	fmt.Println("leases:", len(must(jobs.Leases(ctx, "", 0))))
	// Output:
	// missing: true
	// leases: 0
}
