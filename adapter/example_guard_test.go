package adapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lastword-go/lastword"
)

// The failure that a lease alone does not prevent: its holder stops for longer than the TTL, another takes over, and the first
// wakes up in front of its write.
func Example_staleHolder() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE payroll (total INTEGER NOT NULL)`, `INSERT INTO payroll VALUES (0)`)
	defer remove()

	stale := must(store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second, Label: "first"}))
	expire(db) // a suspended machine, a long pause, a cut network
	next := must(store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second, Label: "second"}))

	err := stale.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		fmt.Println("this is never called")
		_, err := tx.ExecContext(ctx, `UPDATE payroll SET total = 1`)
		return err
	})
	fmt.Println("Tx is fenced:", errors.Is(err, lastword.ErrFenced))

	_, err = stale.Exec(ctx, `UPDATE payroll SET total = 1`)
	fmt.Println("Exec is fenced:", errors.Is(err, lastword.ErrFenced))
	var refused *lastword.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("epoch:", refused.Token.Epoch, "current:", refused.Current, "outcome:", refused.Outcome, "holder:", refused.Holder)
	}

	rows := must(next.Exec(ctx, `UPDATE payroll SET total = ?`, 4200))
	fmt.Println("rows of the new holder:", rows)
	// Output:
	// Tx is fenced: true
	// Exec is fenced: true
	// epoch: 1 current: 2 outcome: fenced holder: host-a second
	// rows of the new holder: 1
}

// A lease whose time is over, but which nobody has taken, is refused as well.
func Example_expiredLease() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE payroll (total INTEGER NOT NULL)`, `INSERT INTO payroll VALUES (0)`)
	defer remove()

	lease := must(store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second}))
	expire(db)
	_, err := lease.Exec(ctx, `UPDATE payroll SET total = 1`)
	fmt.Println("expired:", errors.Is(err, lastword.ErrExpired), "fenced:", errors.Is(err, lastword.ErrFenced))
	// Output:
	// expired: true fenced: false
}

// The guard in a transaction that the caller began. It is the transaction's first statement.
func Example_ownTransaction() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE payroll (total INTEGER NOT NULL)`, `INSERT INTO payroll VALUES (0)`)
	defer remove()
	lease := must(store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second}))

	write := func(total int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := lease.Guard(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE payroll SET total = ?`, total); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println("while it holds:", write(4200))
	must(lease.Release(ctx))
	fmt.Println("after its release:", errors.Is(write(1), lastword.ErrFenced))

	var total int
	check(db.QueryRow(`SELECT total FROM payroll`).Scan(&total))
	fmt.Println("total:", total)
	// Output:
	// while it holds: <nil>
	// after its release: true
	// total: 4200
}

// A token as text gives the right to write to another process, such as a child. fmt and logs show the start of it only.
func Example_token() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE steps (name TEXT NOT NULL)`)
	defer remove()
	lease := must(store.Acquire(ctx, "nightly", lastword.LeaseOptions{TTL: 30 * time.Second}))
	environment := lease.Token().String() // the whole token: a secret

	token := must(lastword.ParseToken(environment))
	fmt.Println(token.Kind, token.Name, token.Epoch, strings.HasPrefix(token.Short(), "lease/nightly@1."))
	fmt.Println("printed whole:", fmt.Sprint(token) == environment)

	must(store.Exec(ctx, token, `INSERT INTO steps VALUES ('extract')`))
	check(store.Tx(ctx, token, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO steps VALUES ('transform'), ('load')`)
		return err
	}))
	tx := must(db.BeginTx(ctx, nil))
	defer tx.Rollback()
	check(store.Guard(ctx, tx, token))
	var steps int
	check(tx.QueryRowContext(ctx, `SELECT count(*) FROM steps`).Scan(&steps))
	check(tx.Commit())
	fmt.Println("steps:", steps)

	_, err := lastword.ParseToken("nightly")
	fmt.Println("invalid:", errors.Is(err, lastword.ErrInvalid))
	// Output:
	// lease nightly 1 true
	// printed whole: false
	// steps: 3
	// invalid: true
}

// Exec refuses what it cannot guard in one statement. Tx takes it.
func Example_execRefuses() {
	ctx := context.Background()
	store, _, remove := openExample(`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)`)
	defer remove()
	lease := must(store.Acquire(ctx, "orders", lastword.LeaseOptions{TTL: 30 * time.Second}))

	_, err := lease.Exec(ctx, `INSERT INTO orders (item) VALUES ('tea') RETURNING id`)
	fmt.Println("invalid:", errors.Is(err, lastword.ErrInvalid))

	var id int64
	check(lease.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `INSERT INTO orders (item) VALUES ('tea') RETURNING id`).Scan(&id)
	}))
	fmt.Println("order:", id)
	// Output:
	// invalid: true
	// order: 1
}

// What the database refuses by itself is ErrFailed, and nothing was written. What the function returns comes back as it is.
func Example_outcomes() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE seats (number INTEGER PRIMARY KEY)`)
	defer remove()
	lease := must(store.Acquire(ctx, "seats", lastword.LeaseOptions{TTL: 30 * time.Second}))

	err := lease.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO seats VALUES (1), (1)`)
		return err
	})
	fmt.Println("failed:", errors.Is(err, lastword.ErrFailed))

	errFull := errors.New("the bus is full")
	err = lease.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO seats VALUES (2)`); err != nil {
			return err
		}
		return errFull
	})
	fmt.Println("ours:", errors.Is(err, errFull))

	var seats int
	check(db.QueryRow(`SELECT count(*) FROM seats`).Scan(&seats))
	fmt.Println("seats:", seats)
	// Output:
	// failed: true
	// ours: true
	// seats: 0
}
