package lastword

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// WorkerOptions set up a [Worker]. The zero value is ready for use.
type WorkerOptions struct {
	Slots  int           // tasks at a time; 0 is 4
	Queue  string        // "" is "default"
	Lease  time.Duration // how long a task may go without a heartbeat before it is reaped; heartbeats come every third; 0 is 30 s
	Grace  time.Duration // how long handlers may go on after Run's context ends, before they are cancelled; 0 cancels them at once
	Source Source        // what to wait on for work; nil polls every 500 ms
	Label  string        // added to the holder that others see
}

// Worker claims tasks, runs their handlers, and writes what they return. Register handlers with [Handle], then call Run once.
type Worker struct {
	store    *Store
	opts     WorkerOptions
	handlers map[string]func(ctx context.Context, a *Attempt) (any, error)
	freed    chan struct{}
}

// NewWorker returns a Worker without handlers.
func NewWorker(s *Store, opts WorkerOptions) *Worker {
	if opts.Slots <= 0 {
		opts.Slots = 4
	}
	if opts.Lease == 0 {
		opts.Lease = defaultTaskLease
	}
	if opts.Source == nil {
		opts.Source = Poll(500 * time.Millisecond)
	}
	return &Worker{store: s, opts: opts, handlers: map[string]func(context.Context, *Attempt) (any, error){}, freed: make(chan struct{}, 1)}
}

// Handle registers the handler of one kind; the worker claims only kinds that have one. The payload is decoded into In, and what the handler
// returns completes the task with its JSON, unless the handler has ended the attempt itself (with effects, by [Attempt.Complete]).
// An error fails the attempt (see [Permanent] and [RetryAfter]); a panic does too. ctx is cancelled with a cause that matches
// [ErrFenced] when the attempt is not in force any more: then whatever the handler returns is dropped. Call Handle before Run; a
// second handler for one kind is a fault in the program, and panics.
func Handle[In, Out any](w *Worker, kind string, handler func(ctx context.Context, a *Attempt, in In) (Out, error)) {
	if w.handlers[kind] != nil {
		panic(fmt.Sprintf("lastword: kind %q has two handlers", kind))
	}
	w.handlers[kind] = func(ctx context.Context, a *Attempt) (any, error) {
		var in In
		if err := a.Payload(&in); err != nil {
			return nil, Permanent(err)
		}
		return handler(ctx, a, in)
	}
}

// Run works until ctx ends. It returns nil when every attempt has ended or been given back; given-back tasks are free at once.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return invalidf("the worker has no handlers")
	}
	kinds := make([]string, 0, len(w.handlers))
	for kind := range w.handlers {
		if err := validateName(kind); err != nil {
			return fmt.Errorf("handler kind: %w", err)
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	// Handlers outlive ctx by the grace, heartbeats outlive handlers.
	hard, stopHandlers := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopHandlers(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, w.opts.Slots)
	for ctx.Err() == nil {
		claimed := w.claim(ctx, kinds, w.opts.Slots-len(slots))
		for _, a := range claimed {
			slots <- struct{}{}
			running.Go(func() {
				defer func() {
					<-slots
					w.signalFreed()
				}()
				w.work(ctx, hard, a)
			})
		}
		w.waitForWork(ctx, len(claimed) > 0, len(slots) == w.opts.Slots)
	}
	if w.opts.Grace > 0 {
		timer := time.AfterFunc(w.opts.Grace, func() { stopHandlers(errStopping) })
		defer timer.Stop()
	} else {
		stopHandlers(errStopping)
	}
	running.Wait()
	return nil
}

var errStopping = errors.New("lastword: the worker is stopping")

func (w *Worker) claim(ctx context.Context, kinds []string, free int) []*Attempt {
	if free <= 0 {
		return nil
	}
	claimed, err := w.store.Claim(ctx, ClaimOptions{Kinds: kinds, Queue: w.opts.Queue, Limit: free, Lease: w.opts.Lease, Label: w.opts.Label})
	if err != nil && ctx.Err() == nil {
		w.store.log.LogAttrs(ctx, slog.LevelError, "claim", slog.Any("error", err))
	}
	return claimed
}

// waitForWork returns when claiming again makes sense: a slot is free, and there was work a moment ago or the source says so.
func (w *Worker) waitForWork(ctx context.Context, found, full bool) {
	switch {
	case full:
		select {
		case <-w.freed:
		case <-ctx.Done():
		}
	case !found:
		w.opts.Source.Wait(ctx)
	}
}

func (w *Worker) signalFreed() {
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// work runs one attempt to its end: handled, lost or given back.
func (w *Worker) work(ctx, hard context.Context, a *Attempt) {
	handlerCtx, cancel := context.WithCancelCause(hard)
	defer cancel(nil)
	beatCtx, stopBeating := context.WithCancel(context.WithoutCancel(hard))
	var beating sync.WaitGroup
	keep := &keepAlive{
		ttl:     a.lease,
		log:     w.store.log,
		observe: w.store.observeAs(KindTask, a.kind),
		lost: func(cause error) {
			cancel(cause)
			w.store.observe(Observation{What: Lost, Kind: KindTask, Name: a.kind, Err: cause})
		},
		renew: func(ctx context.Context) error {
			_, err := a.Extend(ctx)
			return err
		},
	}
	beating.Go(func() { keep.run(beatCtx, a.claimed) })
	result, err := w.handle(handlerCtx, a)
	stopBeating()
	beating.Wait()
	if a.settled.Load() {
		return
	}
	w.settle(ctx, handlerCtx, a, result, err)
}

// settle writes what became of an attempt.
func (w *Worker) settle(ctx, handlerCtx context.Context, a *Attempt, result any, err error) {
	// The handler's context may be over; what it returned still counts while the attempt is in force.
	writeCtx, cancel := context.WithTimeout(context.WithoutCancel(handlerCtx), a.lease/3)
	defer cancel()
	cause := context.Cause(handlerCtx)
	switch {
	case errors.Is(cause, ErrFenced) || errors.Is(err, ErrFenced):
		w.log(ctx, a, slog.LevelInfo, "attempt lost; its result is dropped", cause)
		return
	case err == nil:
		err = a.Complete(writeCtx, result, nil)
	case errors.Is(cause, errStopping):
		err = a.Return(writeCtx)
	default:
		err = a.Fail(writeCtx, err)
	}
	if err != nil {
		w.log(ctx, a, slog.LevelWarn, "attempt's end was not written", err)
	}
}

func (w *Worker) log(ctx context.Context, a *Attempt, level slog.Level, message string, err error) {
	w.store.log.LogAttrs(ctx, level, message, slog.Int64("task", a.id), slog.Int64("generation", a.generation), slog.Any("error", err))
}

func (w *Worker) handle(ctx context.Context, a *Attempt) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, fmt.Errorf("lastword: the handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return w.handlers[a.kind](ctx, a)
}
