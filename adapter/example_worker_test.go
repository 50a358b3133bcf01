package adapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

// A worker decodes the payload, runs the handler, and completes the task with what it returns.
func Example_worker() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store, _, remove := openExample()
	defer remove()
	ids := must(store.Submit(ctx, nil, lastword.NewTask("square", 12)))

	w := lastword.NewWorker(store, lastword.WorkerOptions{Slots: 8, Grace: time.Minute})
	lastword.Handle(w, "square", func(_ context.Context, a *lastword.Attempt, in int) (int, error) {
		if a.Number() == 1 {
			return 0, lastword.RetryAfter(0, errors.New("not now")) // without RetryAfter: after a backoff
		}
		stop() // Run returns when this attempt has ended
		return in * in, nil
	})
	fmt.Println("worker:", w.Run(ctx))

	task := must(store.Task(context.Background(), ids[0]))
	fmt.Println(task.State, task.Result, "attempts:", task.Attempt, "failures:", task.Failures)
	// Output:
	// worker: <nil>
	// succeeded 144 attempts: 2 failures: 1
}

// A handler completes its task by itself where a write must stand exactly if the result stands.
func Example_workerEffects() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store, db, remove := openExample(`CREATE TABLE balance (cents INTEGER NOT NULL)`, `INSERT INTO balance VALUES (0)`)
	defer remove()
	must(store.Submit(ctx, nil, lastword.NewTask("deposit", 500)))

	w := lastword.NewWorker(store, lastword.WorkerOptions{Grace: time.Minute})
	lastword.Handle(w, "deposit", func(ctx context.Context, a *lastword.Attempt, cents int) (string, error) {
		defer stop()
		return "", a.Complete(ctx, "booked", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE balance SET cents = cents + ?`, cents)
			return err
		})
	})
	check(w.Run(ctx))

	var cents int
	check(db.QueryRow(`SELECT cents FROM balance`).Scan(&cents))
	fmt.Println(cents, must(store.Task(context.Background(), 1)).Result)
	// Output:
	// 500 "booked"
}

// A task survives its worker: the reaper opens the next generation, and another worker runs it.
func Example_workerLost() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store, db, remove := openExample()
	defer remove()
	must(store.Submit(ctx, nil, lastword.NewTask("import", "customers.csv")))
	must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"import"}})) // by a worker that dies here
	expire(db)

	reaper := make(chan error)
	go func() { reaper <- store.RunReaper(ctx, 20*time.Millisecond) }()

	w := lastword.NewWorker(store, lastword.WorkerOptions{Grace: time.Minute, Source: lastword.Poll(20 * time.Millisecond)})
	lastword.Handle(w, "import", func(_ context.Context, a *lastword.Attempt, file string) (any, error) {
		fmt.Println("generation", a.Generation(), "imports", file)
		stop()
		return nil, nil
	})
	fmt.Println("worker:", w.Run(ctx))
	fmt.Println("reaper:", <-reaper)
	// Output:
	// generation 2 imports customers.csv
	// worker: <nil>
	// reaper: <nil>
}
