package lastword

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// keepAlive renews one grant in time and says when it is lost. It knows no SQL, so that it runs in fake time under test.
type keepAlive struct {
	ttl   time.Duration
	renew func(context.Context) error
	lost  func(cause error) // called at most once
	// deadline: whether the local deadline is a loss. A lease's is: its successor may begin. A task's attempt is not over before
	// somebody reaps it.
	deadline bool
	log      *slog.Logger
	observe  func(Observation)
	// wall is the wall clock; nil is the machine's. It runs on while the machine sleeps, the monotonic clock does not.
	wall func() time.Time
}

// margin is what the local deadline stays short of the TTL, for the difference between two clocks over one TTL.
func (k *keepAlive) margin() time.Duration { return k.ttl / 10 }

// run returns when ctx ends or the grant is lost. granted is when the grant was asked for, on the local monotonic clock. One
// failed renewal is no loss, nor a lost reply, nor one that blocks; they are tried again until the deadline.
func (k *keepAlive) run(ctx context.Context, granted time.Time) {
	defer func() {
		if p := recover(); p != nil {
			k.lost(fmt.Errorf("lastword: %w: the renewal panicked: %v", ErrFenced, p))
		}
	}()
	next, deadline := granted.Add(k.ttl/3), granted.Add(k.ttl-k.margin())
	for {
		if !k.sleepUntil(ctx, next, granted) {
			return
		}
		if k.deadline && !time.Now().Before(deadline) {
			k.lost(errLocalDeadline(k.ttl))
			return
		}
		asked := time.Now()
		err := k.ask(ctx, deadline)
		if ctx.Err() == nil && k.observe != nil {
			k.observe(Observation{What: Renewal, Duration: time.Since(asked), Left: k.ttl - asked.Sub(granted), Err: err})
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			granted, next, deadline = asked, asked.Add(k.ttl/3), asked.Add(k.ttl-k.margin())
		case errors.Is(err, ErrFenced):
			k.lost(err)
			return
		case errors.Is(err, ErrExpired): // and not taken yet: no less lost
			k.lost(fmt.Errorf("lastword: %w: %w", ErrFenced, err))
			return
		default:
			k.log.LogAttrs(ctx, slog.LevelWarn, "renewal failed; it is tried again", slog.Any("error", err))
			next = time.Now().Add(k.ttl / 12)
			if k.deadline && next.After(deadline) {
				next = deadline
			}
		}
	}
}

// sleepUntil returns at next, or as soon as the wall clock says that a third of the TTL has passed since the grant: after the machine has
// slept, or after a step of the clock, asking costs one question. It returns false when ctx ends.
func (k *keepAlive) sleepUntil(ctx context.Context, next, granted time.Time) bool {
	for time.Until(next) > 0 {
		if k.wallNow().Sub(granted.Round(0)) >= k.ttl/3 && time.Since(granted) < k.ttl/3 {
			return true
		}
		slice := time.Now().Add(time.Second)
		if slice.After(next) {
			slice = next
		}
		if !sleepUntil(ctx, slice) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (k *keepAlive) wallNow() time.Time {
	if k.wall != nil {
		return k.wall()
	}
	return time.Now().Round(0)
}

// ask renews once. A renewal that blocks is left behind at the deadline.
func (k *keepAlive) ask(ctx context.Context, deadline time.Time) error {
	if !k.deadline {
		deadline = time.Now().Add(k.ttl / 3)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover()
			done <- o
		}()
		o.err = k.renew(ctx)
	}()
	select {
	case o := <-done:
		if o.panicked != nil {
			panic(o.panicked)
		}
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func errLocalDeadline(ttl time.Duration) error {
	return fmt.Errorf("lastword: %w: %w: no renewal succeeded in time for a TTL of %v", ErrFenced, ErrExpired, ttl)
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
