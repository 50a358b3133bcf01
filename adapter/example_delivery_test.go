package adapter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

// topics is a Sink. A real one hands events to a message broker.
type topics []string

func (t *topics) Publish(_ context.Context, e lastword.Event) error {
	*t = append(*t, fmt.Sprintf("%s of task %d, kind %s, generation %d", e.Topic, e.TaskID, e.Kind, e.Generation))
	return nil
}

// waiting is a Source that says when there is nothing left to do.
type waiting func()

func (w waiting) Wait(context.Context) { w() }

// The relay publishes what was committed, at least once.
func Example_relay() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, _, remove := openExample()
	defer remove()
	must(store.Submit(ctx, nil, lastword.NewTask("resize", "cat.png")))
	check(must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"resize"}}))[0].Complete(ctx, "cat-small.png", nil))

	var published topics
	fmt.Println("relay:", store.Relay(ctx, &published, waiting(stop))) // in a service: Poll(time.Second)
	for _, line := range published {
		fmt.Println(line)
	}
	// Unordered output:
	// relay: <nil>
	// task.pending of task 1, kind resize, generation 1
	// task.succeeded of task 1, kind resize, generation 1
}

// Where submitters and workers share a process, Local wakes workers as soon as the relay has found a task.
func Example_local() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store, _, remove := openExample()
	defer remove()

	local := lastword.NewLocal()
	relay := make(chan error)
	go func() { relay <- store.Relay(ctx, local, lastword.Poll(20*time.Millisecond)) }()

	w := lastword.NewWorker(store, lastword.WorkerOptions{Grace: time.Minute, Source: local.Source(time.Second)})
	lastword.Handle(w, "greet", func(_ context.Context, _ *lastword.Attempt, name string) (any, error) {
		fmt.Println("hello", name)
		stop()
		return nil, nil
	})
	must(store.Submit(ctx, nil, lastword.NewTask("greet", "Ada")))
	fmt.Println("worker:", w.Run(ctx))
	fmt.Println("relay:", <-relay)
	// Output:
	// hello Ada
	// worker: <nil>
	// relay: <nil>
}

// A loop of one's own waits on a Source between two claims.
func Example_localWait() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	local := lastword.NewLocal()
	source := local.Source(time.Minute)

	go func() {
		ids := must(store.Submit(ctx, nil, lastword.NewTask("greet", "Ada")))
		local.Wake()
		// An event that came by a broker does the same.
		check(local.Publish(ctx, lastword.Event{Topic: lastword.TopicPending, Kind: "greet", TaskID: ids[0], Generation: 1}))
	}()

	for {
		claimed := must(store.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"greet"}}))
		if len(claimed) == 0 {
			source.Wait(ctx)
			continue
		}
		var name string
		check(claimed[0].Payload(&name))
		fmt.Println("hello", name)
		check(claimed[0].Complete(ctx, nil, nil))
		return
	}
	// Output:
	// hello Ada
}
