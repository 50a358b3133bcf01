package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastword-go/lastword"
)

// Of two processes that want to run the same job, one is told who runs it.
func Example_leaseHeld() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	opts := lastword.LeaseOptions{TTL: 30 * time.Second, Label: "nightly build"}

	err := store.WithLease(ctx, "nightly", opts, func(ctx context.Context, _ *lastword.Lease) error {
		err := store.WithLease(ctx, "nightly", opts, func(context.Context, *lastword.Lease) error {
			fmt.Println("this is never called")
			return nil
		})
		var held *lastword.HeldError
		if errors.As(err, &held) {
			fmt.Printf("%s is held by %s with fence %d\n", held.Name, held.Holder, held.Fence)
		}
		return nil
	})
	fmt.Println("the first:", err)

	err = store.WithLease(ctx, "nightly", opts, func(_ context.Context, l *lastword.Lease) error {
		fmt.Println("afterwards it is free; fence:", l.Token().Epoch)
		return nil
	})
	fmt.Println("the second:", err)
	// Output:
	// nightly is held by host-a nightly build with fence 1
	// the first: <nil>
	// afterwards it is free; fence: 2
	// the second: <nil>
}

// A lease without a function around it: the caller renews it, and releases it.
func Example_acquire() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()

	lease := must(store.Acquire(ctx, "indexer", lastword.LeaseOptions{TTL: 30 * time.Second}))
	fmt.Println("fence:", lease.Token().Epoch)
	_, err := store.Acquire(ctx, "indexer", lastword.LeaseOptions{TTL: 30 * time.Second})
	fmt.Println("held:", errors.Is(err, lastword.ErrHeld))

	until := must(lease.Renew(ctx)) // every third of the TTL
	fmt.Println("renewed:", !until.Before(lease.Until()))
	fmt.Println("still held:", must(lease.Held(ctx))) // advice; only a guard protects a write
	fmt.Println("released:", must(lease.Release(ctx)))
	fmt.Println("released again:", must(lease.Release(ctx)))
	fmt.Println("still held:", must(lease.Held(ctx)))
	// Output:
	// fence: 1
	// held: true
	// renewed: true
	// still held: true
	// released: true
	// released again: false
	// still held: false
}

// With its token, another process can renew a lease, ask for it and release it.
func Example_leaseByToken() {
	ctx := context.Background()
	store, db, remove := openExample()
	defer remove()
	token := must(store.Acquire(ctx, "indexer", lastword.LeaseOptions{TTL: 30 * time.Second})).Token()

	fmt.Println("held:", must(store.Held(ctx, token)))
	fmt.Println("renewed:", must(store.Renew(ctx, token)).After(time.Time{}))
	expire(db)
	_, err := store.Renew(ctx, token)
	fmt.Println("an expired lease is not revived:", errors.Is(err, lastword.ErrExpired))
	fmt.Println("released:", must(store.Release(ctx, token)))
	// Output:
	// held: true
	// renewed: true
	// an expired lease is not revived: true
	// released: true
}

// Wait lets a process stand by. It takes over when the lease is free.
func Example_leaseWait() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	primary := must(store.Acquire(ctx, "leader", lastword.LeaseOptions{TTL: 30 * time.Second}))

	standby := make(chan *lastword.Lease)
	go func() {
		standby <- must(store.Acquire(ctx, "leader", lastword.LeaseOptions{TTL: 30 * time.Second, Wait: time.Minute}))
	}()
	must(primary.Release(ctx))
	fmt.Println("fence of the standby:", (<-standby).Token().Epoch)
	// Output:
	// fence of the standby: 2
}

// A job that has lost its lease is told by its context, and WithLease says so even if the job does not.
func Example_leaseLost() {
	ctx := context.Background()
	store, db, remove := openExample()
	defer remove()

	opts := lastword.LeaseOptions{TTL: 2 * time.Second}
	err := store.WithLease(ctx, "nightly", opts, func(ctx context.Context, _ *lastword.Lease) error {
		expire(db)
		must(store.Acquire(ctx, "nightly", opts)) // another process takes over
		<-ctx.Done()                              // the next renewal finds it
		fmt.Println("the job is told:", errors.Is(context.Cause(ctx), lastword.ErrFenced))
		return nil
	})
	fmt.Println("the caller is told:", errors.Is(err, lastword.ErrFenced))
	// Output:
	// the job is told: true
	// the caller is told: true
}

// An operator takes a lease away: whatever its holder still writes is refused.
func Example_revoke() {
	ctx := context.Background()
	store, _, remove := openExample()
	defer remove()
	lease := must(store.Acquire(ctx, "nightly", lastword.LeaseOptions{TTL: time.Minute}))
	fmt.Println("in force:", must(store.Revoke(ctx, "nightly")))
	_, err := lease.Renew(ctx)
	fmt.Println(errors.Is(err, lastword.ErrFenced))
	// Output:
	// in force: 2
	// true
}
