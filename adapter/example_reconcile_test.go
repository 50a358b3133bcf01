package adapter_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/reconcile"
)

// A check that is no SQL query: its rows may come from an API. Numbers become keys by IntKey.
func Example_reconcileCheck() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	paid := map[int64]bool{2: true, 9: true, 10: false, 11: true}

	unpaid := reconcile.Check{Name: "unpaid shipments", Page: func(_ context.Context, q reconcile.PageQuery) (*reconcile.Page, error) {
		after, _ := strconv.ParseInt(q.After, 10, 64) // "" begins
		page := &reconcile.Page{}
		for _, id := range []int64{2, 9, 10, 11} {
			if id > after && len(page.Rows) < q.Limit {
				page.Rows = append(page.Rows, reconcile.Row{Key: reconcile.IntKey(id), Orphan: !paid[id]})
			}
		}
		return page, nil
	}}
	report := must(reconcile.Run(ctx, store, reconcile.Options{PageSize: 2}, unpaid))
	fmt.Println(report.State, report.Rows, report.Checks[0].Sample)
	// Output:
	// completed 4 [0000000000000000010]
}

// A scan of one's own under a lease that one holds: a run that others can watch, and that only its holder can finish.
func Example_reconcileHandle() {
	ctx := context.Background()
	store, db, remove := openExample(`CREATE TABLE alerts (text TEXT NOT NULL)`)
	defer remove()
	opts := lastword.LeaseOptions{TTL: 30 * time.Second}

	dead := must(store.Acquire(ctx, reconcile.LeaseName, opts))
	must(reconcile.Begin(ctx, store, dead, "")) // its process dies here
	expire(db)

	lease := must(store.Acquire(ctx, reconcile.LeaseName, opts))
	run := must(reconcile.Begin(ctx, store, lease, "by hand"))
	fmt.Println("run:", run.ID(), "abandoned before it:", run.Abandoned())
	found := []reconcile.CheckReport{{Name: "files", Rows: 500}}
	check(run.Progress(ctx, found))
	found[0].Rows, found[0].Orphans, found[0].Done = 800, 1, true
	check(run.Complete(ctx, found, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO alerts VALUES ('1 orphan')`)
		return err
	}))

	failed := must(reconcile.Begin(ctx, store, lease, ""))
	check(failed.Fail(ctx, nil, "the disk was full"))

	for _, r := range must(reconcile.List(ctx, store, reconcile.Filter{})) {
		fmt.Printf("%d %s by %s: %d rows, %d orphans; %q\n", r.ID, r.State, r.Holder, r.Rows, r.Orphans, r.Reason)
	}
	fmt.Println("one:", must(reconcile.Get(ctx, store, run.ID())).State)
	// Output:
	// run: 2 abandoned before it: 1
	// 3 failed by host-a: 0 rows, 0 orphans; "the disk was full"
	// 2 completed by host-a by hand: 800 rows, 1 orphans; ""
	// 1 abandoned by host-a: 0 rows, 0 orphans; "its owner lost the lease; closed by fence 2"
	// one: completed
}
