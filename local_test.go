package lastword

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLocalWakesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := NewLocal()
		start := time.Now()
		var waiters sync.WaitGroup
		for range 3 {
			source := local.Source(time.Hour)
			waiters.Go(func() { source.Wait(t.Context()) })
		}
		synctest.Wait()
		if err := local.Publish(t.Context(), Event{}); err != nil {
			t.Error(err)
		}
		waiters.Wait()
		if time.Since(start) != 0 {
			t.Errorf("they woke after %v", time.Since(start))
		}
	})
}

// A wake between two waits is not lost, and counts once.
func TestLocalRemembersAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := NewLocal()
		source := local.Source(time.Hour)
		local.Wake()
		local.Wake()
		start := time.Now()
		source.Wait(t.Context())
		if time.Since(start) != 0 {
			t.Errorf("the wake was lost: it took %v", time.Since(start))
		}
		source.Wait(t.Context())
		if time.Since(start) < 45*time.Minute {
			t.Errorf("one wake woke twice, after %v", time.Since(start))
		}
	})
}

func TestSourcesPoll(t *testing.T) {
	for name, source := range map[string]func() Source{"poll": func() Source { return Poll(time.Second) }, "local": func() Source { return NewLocal().Source(time.Second) }} {
		synctest.Test(t, func(t *testing.T) {
			s, start := source(), time.Now()
			s.Wait(t.Context())
			if waited := time.Since(start); waited < 750*time.Millisecond || waited > 1250*time.Millisecond {
				t.Errorf("%s: waited %v, want a second, a quarter more or less", name, waited)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			start = time.Now()
			s.Wait(ctx)
			if waited := time.Since(start); waited != time.Millisecond {
				t.Errorf("%s: waited %v past the end of its context", name, waited)
			}
		})
	}
}
