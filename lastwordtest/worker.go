package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastword-go/lastword"
)

func workerPromises() []promise {
	return []promise{
		{"a handler's result completes, its error and its panic fail", workerOutcomes},
		{"a handler may complete with effects itself", workerSettles},
		{"a loss cancels the handler with cause ErrFenced, and drops its result", workerLoss},
		{"shutdown gives back what is held", workerShutdown},
		{"a grace lets handlers end", workerGrace},
		{"it heartbeats", workerHeartbeats},
		{"no handlers and bad kinds are refused", workerRefuses},
	}
}

// work runs a worker until stop is called; stop returns when Run has.
func (w *world) work(opts lastword.WorkerOptions, register func(*lastword.Worker)) (stop func()) {
	w.Helper()
	if opts.Source == nil {
		opts.Source = lastword.Poll(5 * time.Millisecond)
	}
	worker := lastword.NewWorker(w.store, opts)
	register(worker)
	ctx, cancel := context.WithCancel(w.ctx)
	running := async(func() error { return worker.Run(ctx) })
	return func() {
		w.Helper()
		cancel()
		w.must(running.wait(w), "worker")
	}
}

func (w *world) becomes(id int64, is func(lastword.TaskInfo) bool) lastword.TaskInfo {
	w.Helper()
	var task lastword.TaskInfo
	w.eventually("the task gets there", func() bool { task = w.task(id); return is(task) })
	return task
}

func workerOutcomes(w *world) {
	kind := w.kind()
	stop := w.work(lastword.WorkerOptions{}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(_ context.Context, a *lastword.Attempt, how string) (map[string]string, error) {
			switch how {
			case "error":
				return nil, errors.New("bad luck")
			case "permanent":
				return nil, lastword.Permanent(errors.New("never"))
			case "panic":
				panic("boom")
			}
			return map[string]string{"how": how}, nil
		})
	})
	defer stop()
	for how, want := range map[string]struct {
		state lastword.State
		text  string
	}{
		"good": {lastword.Succeeded, `{"how":"good"}`}, "error": {lastword.Failed, "bad luck"}, "permanent": {lastword.Failed, "never"}, "panic": {lastword.Failed, "boom"},
	} {
		attempts := 1
		if how == "permanent" {
			attempts = 5 // and yet it fails at once
		}
		id := w.submitTask(lastword.Task{Kind: kind, Payload: how, MaxAttempts: attempts})
		task := w.becomes(id, func(t lastword.TaskInfo) bool { return t.State.Terminal() })
		if task.State != want.state || !strings.Contains(task.Result+task.Error, want.text) || task.Attempt != 1 {
			w.Errorf("%s: %+v", how, task)
		}
		w.cell()
	}
	id := w.submitTask(lastword.Task{Kind: kind, Payload: 7}) // no string
	if task := w.becomes(id, func(t lastword.TaskInfo) bool { return t.State.Terminal() }); task.State != lastword.Failed || task.Failures != 1 {
		w.Errorf("a payload that cannot be decoded: %+v", task)
	}
	id = w.submitTask(lastword.Task{Kind: kind, Payload: "error"})
	if task := w.becomes(id, func(t lastword.TaskInfo) bool { return t.Failures > 0 }); task.State.Terminal() {
		w.Errorf("the first of five failures: %+v", task)
	}
	w.must(w.store.Cancel(w.ctx, nil, id, 1, "", ""), "cancel")
}

func workerSettles(w *world) {
	kind := w.kind()
	n := w.next() * 10
	stop := w.work(lastword.WorkerOptions{}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(ctx context.Context, a *lastword.Attempt, _ any) (string, error) {
			return "not this", a.Complete(ctx, "this", func(ctx context.Context, tx *sql.Tx) error { return w.insert(ctx, tx, n) })
		})
	})
	defer stop()
	task := w.becomes(w.submit(kind, nil), func(t lastword.TaskInfo) bool { return t.State.Terminal() })
	if task.State != lastword.Succeeded || task.Result != `"this"` || w.written(n) != 1 {
		w.Errorf("%+v, %d rows", task, w.written(n))
	}
	w.cell()
}

func workerLoss(w *world) {
	kind := w.kind()
	began, causes := make(chan struct{}, 1), make(chan error, 1)
	stop := w.work(lastword.WorkerOptions{Lease: time.Second, Slots: 1}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(ctx context.Context, a *lastword.Attempt, _ any) (string, error) {
			if a.Generation() > 1 {
				return "second", nil
			}
			began <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "first", nil
		})
	})
	defer stop()
	id := w.submit(kind, nil)
	<-began
	_, err := w.storeB.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{})
	w.must(err, "rerun")
	w.want(<-causes, lastword.ErrFenced, "the cause of the handler's context")
	task := w.becomes(id, func(t lastword.TaskInfo) bool { return t.State.Terminal() })
	if task.Result != `"second"` || task.Generation != 2 {
		w.Errorf("the lost attempt's result was kept: %+v", task)
	}
	w.cell()
}

func workerShutdown(w *world) {
	kind := w.kind()
	began := make(chan struct{}, 1)
	stop := w.work(lastword.WorkerOptions{}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(ctx context.Context, _ *lastword.Attempt, _ any) (string, error) {
			began <- struct{}{}
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), lastword.ErrFenced) {
				w.Error("a shutdown is no loss")
			}
			return "", ctx.Err()
		})
	})
	id := w.submit(kind, nil)
	<-began
	stop()
	task := w.task(id)
	if task.State != lastword.Pending || task.Failures != 0 || task.Generation != 1 {
		w.Errorf("after a shutdown: %+v", task)
	}
	w.claim(w.storeB, kind) // at once
	w.cell()
}

func workerGrace(w *world) {
	kind := w.kind()
	began, finish := make(chan struct{}, 1), make(chan struct{})
	stop := w.work(lastword.WorkerOptions{Grace: 30 * time.Second}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(ctx context.Context, _ *lastword.Attempt, _ any) (string, error) {
			began <- struct{}{}
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-finish:
				return "finished", nil
			}
		})
	})
	id := w.submit(kind, nil)
	<-began
	stopped := async(func() error { stop(); return nil })
	select {
	case <-stopped.done:
		w.Error("the worker did not wait for its handler")
	case <-time.After(30 * time.Millisecond):
	}
	close(finish)
	w.must(stopped.wait(w), "stop")
	if task := w.task(id); task.State != lastword.Succeeded {
		w.Errorf("within the grace: %+v", task)
	}
	w.cell()
	// A handler that outlasts the grace is cancelled, and its task given back.
	stop = w.work(lastword.WorkerOptions{Grace: 20 * time.Millisecond}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(ctx context.Context, _ *lastword.Attempt, _ any) (string, error) {
			began <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		})
	})
	id = w.submit(kind, nil)
	<-began
	stop()
	if task := w.task(id); task.State != lastword.Pending || task.Failures != 0 {
		w.Errorf("past the grace: %+v", task)
	}
	w.cell()
}

func workerHeartbeats(w *world) {
	kind := w.kind()
	var id atomic.Int64
	stop := w.work(lastword.WorkerOptions{Lease: time.Second}, func(worker *lastword.Worker) {
		lastword.Handle(worker, kind, func(ctx context.Context, a *lastword.Attempt, _ any) (string, error) {
			id.Store(a.ID())
			seen := map[time.Time]bool{}
			for len(seen) < 4 && ctx.Err() == nil {
				task, err := w.store.Task(ctx, a.ID())
				if err != nil {
					return "", err
				}
				seen[task.Until] = true
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return "alive", ctx.Err()
		})
	})
	defer stop()
	task := w.submit(kind, nil)
	w.becomes(task, func(t lastword.TaskInfo) bool { return t.State == lastword.Succeeded })
	w.cell()
}

func workerRefuses(w *world) {
	worker := lastword.NewWorker(w.store, lastword.WorkerOptions{})
	w.want(worker.Run(w.ctx), lastword.ErrInvalid, "no handlers")
	lastword.Handle(worker, "a b", func(context.Context, *lastword.Attempt, any) (any, error) { return nil, nil })
	w.want(worker.Run(w.ctx), lastword.ErrInvalid, "a bad kind")
	w.cell()
}
