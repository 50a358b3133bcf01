package adapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

type welcome struct {
	Customer int64 `json:"customer"`
}

// A task and the rows that it is about are stored together or not at all.
func Example_submit() {
	ctx := context.Background()
	store, _, remove := openExample(`CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`)
	defer remove()

	var ids []int64
	err := store.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		if _, err = tx.ExecContext(ctx, `INSERT INTO customers VALUES (7, 'Ada')`); err != nil {
			return err
		}
		ids, err = store.Submit(ctx, tx, lastword.NewTask("welcome", welcome{Customer: 7}))
		return err
	})
	fmt.Println(ids, err)

	// Without rows of one's own, nil instead of a transaction. At most one live task has the key.
	report := lastword.Task{Kind: "report", Key: "2026-11", Priority: 5}
	fmt.Println(must(store.Submit(ctx, nil, report)))
	_, err = store.Submit(ctx, nil, report)
	fmt.Println("conflict:", errors.Is(err, lastword.ErrConflict))
	// Output:
	// [1] <nil>
	// [2]
	// conflict: true
}

// One execution of a task by hand, as a Worker does it.
func Example_attempt() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE mails (customer INTEGER NOT NULL, text TEXT NOT NULL)`)
	defer remove()
	must(store.Submit(ctx, nil, lastword.NewTask("welcome", welcome{Customer: 7})))

	for _, a := range must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"welcome"}})) {
		var in welcome
		check(a.Payload(&in))
		fmt.Println("task", a.ID(), a.Kind(), "generation", a.Generation(), "attempt", a.Number(), "customer", in.Customer)

		until := must(a.Extend(ctx)) // the heartbeat, every third of the lease
		fmt.Println("may be reaped later:", until.After(time.Time{}))
		check(a.Progress(ctx, "writing the mail"))

		must(a.Exec(ctx, `INSERT INTO mails VALUES (?, 'draft')`, in.Customer))
		check(a.Tx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE mails SET text = 'Welcome!' WHERE customer = ?`, in.Customer)
			return err
		}))

		// The last write stands exactly if the result stands.
		check(a.Complete(ctx, map[string]string{"mail": "sent"}, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE mails SET text = text || ' (sent)' WHERE customer = ?`, in.Customer)
			return err
		}))
	}
	var text string
	check(db.QueryRow(`SELECT text FROM mails`).Scan(&text))
	fmt.Println(text)
	task := must(store.Task(ctx, 1))
	fmt.Println(task.State, task.Result, "ended:", task.State.Terminal())
	// Output:
	// task 1 welcome generation 1 attempt 1 customer 7
	// may be reaped later: true
	// Welcome! (sent)
	// succeeded {"mail":"sent"} ended: true
}

// An attempt that is over cannot write, whether it knows that or not. A rerun ends it, in the same transaction that opens the
// next generation.
func Example_rerun() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE verdicts (text TEXT NOT NULL)`)
	defer remove()
	id := must(store.Submit(ctx, nil, lastword.NewTask("judge", "plan A")))[0]
	stale := must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"judge"}}))[0]

	next := must(store.Rerun(ctx, nil, id, stale.Generation(), lastword.RerunOptions{
		Payload: "plan B", Actor: "ada", Reason: "the plan was wrong", RequestID: "r-17",
	}))
	fmt.Println("generation:", next)

	tx := must(db.BeginTx(ctx, nil))
	defer tx.Rollback()
	fmt.Println("Guard is fenced:", errors.Is(stale.Guard(ctx, tx), lastword.ErrFenced)) // and has rolled tx back
	err := stale.Complete(ctx, "guilty", nil)
	fmt.Println("Complete is fenced:", errors.Is(err, lastword.ErrFenced))
	var refused *lastword.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("operation:", refused.Operation, "epoch:", stale.Token().Epoch, "current:", refused.Current)
	}

	_, err = store.Rerun(ctx, nil, id, 1, lastword.RerunOptions{})
	fmt.Println("somebody else was faster:", errors.Is(err, lastword.ErrConflict))
	_, err = store.Rerun(ctx, nil, 99, 1, lastword.RerunOptions{})
	fmt.Println("no such task:", errors.Is(err, lastword.ErrNotFound))
	// Output:
	// generation: 2
	// Guard is fenced: true
	// Complete is fenced: true
	// operation: complete epoch: 1 current: 2
	// somebody else was faster: true
	// no such task: true
}

// A cancelled task ends at once, also for the attempt that runs.
func Example_cancel() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	id := must(store.Submit(ctx, nil, lastword.NewTask("import", nil)))[0]
	a := must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"import"}}))[0]

	check(store.Cancel(ctx, nil, id, a.Generation(), "ada", "wrong file"))
	fmt.Println("fenced:", errors.Is(a.Progress(ctx, "50%"), lastword.ErrFenced))
	task := must(store.Task(ctx, id))
	fmt.Println(task.State, task.Generation, task.Error)
	err := store.Cancel(ctx, nil, id, task.Generation, "ada", "again")
	fmt.Println("conflict:", errors.Is(err, lastword.ErrConflict))
	// Output:
	// fenced: true
	// cancelled 2 wrong file
	// conflict: true
}

// How an attempt can end without a result.
func Example_fail() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	id := must(store.Submit(ctx, nil, lastword.NewTask("charge", nil)))[0]
	claim := func() *lastword.Attempt {
		return must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"charge"}}))[0]
	}
	show := func() {
		task := must(store.Task(ctx, id))
		fmt.Printf("%s, failures: %d, error: %q\n", task.State, task.Failures, task.Error)
	}

	check(claim().Return(ctx)) // unfinished; free for anybody at once
	show()
	check(claim().Fail(ctx, lastword.RetryAfter(0, errors.New("the bank is closed"))))
	show()
	check(claim().Fail(ctx, lastword.Permanent(errors.New("the card is stolen")))) // no retry would mend it
	show()
	// Output:
	// pending, failures: 0, error: ""
	// pending, failures: 1, error: "the bank is closed"
	// failed, failures: 2, error: "the card is stolen"
}

// Reap finds tasks whose workers were lost, and opens their next generation: the lost one may still be at work, and is fenced.
func Example_reap() {
	ctx := context.Background()
	store, db, remove := openExample()
	defer remove()
	id := must(store.Submit(ctx, nil, lastword.Task{Kind: "crash", MaxReaps: 1}))[0]

	for range 2 {
		lost := must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"crash"}}))[0]
		expire(db) // no heartbeat for longer than the lease
		fmt.Println("reaped:", must(store.Reap(ctx, 100)))
		fmt.Println("fenced:", errors.Is(lost.Complete(ctx, nil, nil), lastword.ErrFenced))
		task := must(store.Task(ctx, id))
		fmt.Println(task.State, "generation", task.Generation)
	}
	// Output:
	// reaped: 1
	// fenced: true
	// pending generation 2
	// reaped: 1
	// fenced: true
	// quarantined generation 3
}
