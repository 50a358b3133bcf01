package adapter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

func Example_leases() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	must(store.Acquire(ctx, "indexer", lastword.LeaseOptions{TTL: time.Minute, Label: "blue"}))
	nightly := must(store.Acquire(ctx, "nightly", lastword.LeaseOptions{TTL: time.Hour}))
	must(nightly.Release(ctx)) // the row and its fence stay

	for _, l := range must(store.Leases(ctx, "", 0)) { // "" begins; the last name seen goes on
		fmt.Printf("%s: fence %d, live %t, TTL %s, holder %s\n", l.Name, l.Fence, l.Live, l.TTL, l.Holder)
	}
	// Output:
	// indexer: fence 1, live true, TTL 1m0s, holder host-a blue
	// nightly: fence 1, live false, TTL 1h0m0s, holder host-a
}

func Example_tasks() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	must(store.Submit(ctx, nil,
		lastword.NewTask("resize", "cat.png"),
		lastword.Task{Kind: "resize", Payload: "dog.png", Priority: 9},
		lastword.NewTask("mail", "ada")))
	must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"resize"}})) // the higher priority first

	for _, t := range must(store.Tasks(ctx, lastword.TaskFilter{Kind: "resize"})) {
		fmt.Println("newest first:", t.ID, t.Payload, t.State)
	}
	for _, t := range must(store.TasksAfter(ctx, 1, lastword.TaskFilter{})) {
		fmt.Println("all after the first:", t.ID, t.Kind, t.State)
	}
	task := must(store.Task(ctx, 2))
	fmt.Println("one:", task.Kind, task.State, "held by", task.Holder)
	// Output:
	// newest first: 2 "dog.png" running
	// newest first: 1 "cat.png" pending
	// all after the first: 2 resize running
	// all after the first: 3 mail pending
	// one: resize running held by host-a
}

// What happened to a task: who opened its generations, and how its attempts ended.
func Example_history() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	id := must(store.Submit(ctx, nil, lastword.NewTask("judge", "plan A")))[0]
	claim := lastword.ClaimOptions{Kinds: []string{"judge"}, Label: "worker 3"}
	must(store.Claim(ctx, claim))
	must(store.Rerun(ctx, nil, id, 1, lastword.RerunOptions{Actor: "ada", Reason: "new evidence"}))
	check(must(store.Claim(ctx, claim))[0].Complete(ctx, "not guilty", nil))

	for _, g := range must(store.Generations(ctx, id)) {
		fmt.Printf("generation %d: %s by %s: %q\n", g.Generation, g.Cause, g.Actor, g.Reason)
	}
	for _, a := range must(store.Attempts(ctx, id)) {
		fmt.Printf("generation %d, attempt %d of %s: %s, result %q\n", a.Generation, a.Number, a.Holder, a.Outcome, a.Result)
	}
	// Output:
	// generation 1: submit by host-a: ""
	// generation 2: rerun by ada: "new evidence"
	// generation 1, attempt 1 of host-a worker 3: revoked, result ""
	// generation 2, attempt 1 of host-a worker 3: succeeded, result "\"not guilty\""
}

// Refused writes are counted and recorded: the proof that the guard was needed.
func Example_refusals() {
	ctx := context.Background()
	store, _, remove := openExample(`CREATE TABLE payroll (total INTEGER NOT NULL)`)
	defer remove()
	lease := must(store.Acquire(ctx, "payroll", lastword.LeaseOptions{TTL: 30 * time.Second}))
	must(lease.Release(ctx))
	for range 3 {
		_, err := lease.Exec(ctx, `INSERT INTO payroll VALUES (1)`)
		fmt.Println("refused:", err != nil)
	}

	fmt.Printf("%+v\n", store.RefusalCounts())
	check(store.FlushRefusals(ctx)) // by itself within a second; call it before the process ends
	for _, r := range must(store.Refusals(ctx, lastword.RefusalFilter{Kind: lastword.KindLease, Name: "payroll"})) {
		fmt.Printf("%s %s@%d of %s: %s, %d times: %s\n", r.Kind, r.Name, r.Epoch, r.Holder, r.Outcome, r.Count, r.Reason)
	}
	// Output:
	// refused: true
	// refused: true
	// refused: true
	// {Refused:3 Unrecorded:0}
	// lease payroll@1 of host-a: fenced, 3 times: the lease was released; fence 1 is over
}
