package lastword

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// keeping runs one keepAlive in fake time and notes what it does and when.
type keeping struct {
	*keepAlive
	start time.Time
	mu    sync.Mutex // a renewal that was left behind runs beside the next one
	asked []time.Duration
	lost  []error
	at    time.Duration // of the loss
}

// keep answers the n-th renewal with answer(n); each test ends at end.
func keep(t *testing.T, deadline bool, end time.Duration, answer func(ctx context.Context, n int) error) *keeping {
	t.Helper()
	k := &keeping{start: time.Now()}
	k.keepAlive = &keepAlive{
		ttl:      12 * time.Second,
		deadline: deadline,
		log:      slog.New(slog.DiscardHandler),
		renew: func(ctx context.Context) error {
			k.mu.Lock()
			k.asked = append(k.asked, time.Since(k.start))
			n := len(k.asked)
			k.mu.Unlock()
			return answer(ctx, n)
		},
		lost: func(cause error) {
			k.lost = append(k.lost, cause)
			k.at = time.Since(k.start)
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), end)
	defer cancel()
	k.run(ctx, k.start)
	k.mu.Lock() // what a renewal that was left behind has noted is seen from here
	defer k.mu.Unlock()
	return k
}

func (k *keeping) isLost(t *testing.T, at time.Duration) {
	t.Helper()
	if len(k.lost) != 1 {
		t.Fatalf("lost %d times: %v; renewals at %v", len(k.lost), k.lost, k.asked)
	}
	if !errors.Is(k.lost[0], ErrFenced) {
		t.Errorf("the cause %v does not match ErrFenced", k.lost[0])
	}
	if k.at != at {
		t.Errorf("lost after %v, want %v", k.at, at)
	}
}

const localDeadline = 12*time.Second - 12*time.Second/10

func TestKeepAliveRenewsAtAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, true, 61*time.Second, func(context.Context, int) error { return nil })
		if len(k.lost) != 0 || len(k.asked) != 15 {
			t.Fatalf("lost %v, %d renewals", k.lost, len(k.asked))
		}
		for i, at := range k.asked {
			if want := time.Duration(i+1) * 4 * time.Second; at != want {
				t.Errorf("renewal %d at %v, want %v", i, at, want)
			}
		}
	})
}

// A slow renewal counts from before it was sent: the server may have set the new end at any moment since.
func TestKeepAliveCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, true, time.Minute, func(ctx context.Context, n int) error {
			if n == 1 {
				time.Sleep(3 * time.Second)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if k.asked[1] != 8*time.Second {
			t.Errorf("second renewal at %v, want 8 s: a third after the first was sent", k.asked[1])
		}
		k.isLost(t, 4*time.Second+localDeadline)
	})
}

func TestKeepAliveOneFailureIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, true, time.Minute, func(_ context.Context, n int) error {
			if n%3 == 1 {
				return errors.New("network")
			}
			return nil
		})
		if len(k.lost) != 0 {
			t.Fatalf("lost: %v", k.lost)
		}
		if k.asked[1] != 5*time.Second {
			t.Errorf("tried again at %v, want 5 s: a twelfth of the TTL later", k.asked[1])
		}
	})
}

func TestKeepAliveAllFailuresAreALossAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep(t, true, time.Minute, func(context.Context, int) error { return errors.New("network") }).isLost(t, localDeadline)
	})
}

func TestKeepAliveBlockedIsALossOnlyAtTheDeadline(t *testing.T) {
	for name, block := range map[string]func(context.Context){
		"obeys its context": func(ctx context.Context) { <-ctx.Done() },
		"ignores it":        func(context.Context) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := keep(t, true, time.Minute, func(ctx context.Context, _ int) error { block(ctx); return ctx.Err() })
				k.isLost(t, localDeadline)
				if !errors.Is(k.lost[0], ErrExpired) {
					t.Errorf("the cause %v does not match ErrExpired", k.lost[0])
				}
				time.Sleep(2 * time.Hour) // lets the renewal that was left behind end
			})
		})
	}
}

func TestKeepAliveFencedIsALossAtOnce(t *testing.T) {
	for _, outcome := range []error{ErrFenced, ErrExpired} {
		synctest.Test(t, func(t *testing.T) {
			k := keep(t, true, time.Minute, func(context.Context, int) error { return &RefusedError{Outcome: outcome} })
			k.isLost(t, 4*time.Second) // also an expired lease: WithLease promises a cause that matches ErrFenced
			if !errors.Is(k.lost[0], outcome) {
				t.Errorf("%v: the cause is %v", outcome, k.lost[0])
			}
		})
	}
}

// The cause has to match ErrFenced whatever ended the lease: WithLease promises it.
func TestKeepAlivePanicIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep(t, true, time.Minute, func(context.Context, int) error { panic("boom") }).isLost(t, 4*time.Second)
	})
}

// A process that was stopped wakes up after the deadline: it must not go on as if nothing had happened, and need not ask.
func TestKeepAliveStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var lost error
		k := &keepAlive{
			ttl: 12 * time.Second, deadline: true, log: slog.New(slog.DiscardHandler),
			renew: func(context.Context) error { asked++; return nil },
			lost:  func(cause error) { lost = cause },
		}
		granted := time.Now()
		time.Sleep(20 * time.Second) // stopped between the grant and the first renewal
		k.run(t.Context(), granted)
		if asked != 0 || !errors.Is(lost, ErrFenced) {
			t.Errorf("asked %d times, lost: %v", asked, lost)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// Stopped inside of a renewal that says yes too late.
		keep(t, true, time.Minute, func(context.Context, int) error { time.Sleep(30 * time.Second); return nil }).isLost(t, localDeadline)
		time.Sleep(time.Minute)
	})
}

// An attempt is not over before somebody reaps it, so that time alone is no loss; a refused heartbeat is.
func TestKeepAliveWithoutDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, false, 10*time.Minute, func(ctx context.Context, n int) error {
			switch {
			case n < 20:
				return errors.New("network")
			case n < 30:
				<-ctx.Done()
				return ctx.Err()
			case n == 30:
				return &RefusedError{Outcome: ErrFenced}
			}
			return nil
		})
		if len(k.asked) != 30 {
			t.Errorf("%d heartbeats, want 30", len(k.asked))
		}
		k.isLost(t, k.asked[29])
	})
}

func TestKeepAliveEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, true, 6*time.Second, func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() })
		if len(k.lost) != 0 || time.Since(k.start) != 6*time.Second {
			t.Errorf("lost %v, ended after %v", k.lost, time.Since(k.start))
		}
	})
}

// The machine slept: the wall clock ran on, the monotonic clock did not. The renewal comes at the next look instead of a third of the TTL later.
func TestKeepAliveAsksAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		start := time.Now()
		var slept atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		k := &keepAlive{ttl: 12 * time.Second, deadline: true, log: slog.New(slog.DiscardHandler), lost: func(cause error) { t.Errorf("lost: %v", cause) },
			wall: func() time.Time { return time.Now().Round(0).Add(time.Duration(slept.Load())) },
			renew: func(context.Context) error {
				asked = append(asked, time.Since(start))
				slept.Store(0)
				return nil
			},
		}
		time.AfterFunc(1500*time.Millisecond, func() { slept.Store(int64(time.Hour)) })
		k.run(ctx, start)
		if len(asked) != 1 || asked[0] != 2*time.Second {
			t.Errorf("renewals at %v, want one at 2s", asked)
		}
	})
}

// A clock that is set back neither ends the grant nor puts its renewal off.
func TestKeepAliveWithTheClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		k := &keepAlive{ttl: 12 * time.Second, deadline: true, log: slog.New(slog.DiscardHandler), lost: func(cause error) { t.Errorf("lost: %v", cause) },
			wall: func() time.Time { return time.Now().Round(0).Add(-time.Hour) },
			renew: func(context.Context) error {
				asked = append(asked, time.Since(start))
				return nil
			},
		}
		k.run(ctx, start)
		if len(asked) != 2 || asked[0] != 4*time.Second || asked[1] != 8*time.Second {
			t.Errorf("renewals at %v, want 4s and 8s", asked)
		}
	})
}

// What is told to the observer: each renewal with what was left, and how it went.
func TestKeepAliveIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []Observation
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		failing := errors.New("no connection")
		k := &keepAlive{ttl: 12 * time.Second, deadline: true, log: slog.New(slog.DiscardHandler), lost: func(cause error) { t.Errorf("lost: %v", cause) },
			observe: func(o Observation) { seen = append(seen, o) },
			renew: func(context.Context) error {
				time.Sleep(10 * time.Millisecond)
				if len(seen) == 1 {
					return failing
				}
				return nil
			},
		}
		k.run(ctx, time.Now())
		if len(seen) != 2 || seen[0].What != Renewal || seen[0].Err != nil || seen[0].Left != 8*time.Second || seen[0].Duration != 10*time.Millisecond || !errors.Is(seen[1].Err, failing) {
			t.Errorf("observed %+v", seen)
		}
	})
}
