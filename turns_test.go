package lastword

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Of 500 who wait for one name, one has the turn; each leaves and the next enters; nothing is left behind.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		inside, most, done := 0, 0, make(chan struct{}, 500)
		for range 500 {
			go func() {
				_, leave := all.enter(t.Context(), "nightly")
				inside++ // the gate is what keeps this from being a race
				most = max(most, inside)
				time.Sleep(time.Millisecond)
				inside--
				leave()
				done <- struct{}{}
			}()
		}
		for range 500 {
			<-done
		}
		if most != 1 || len(all.byName) != 0 {
			t.Errorf("%d had the turn at once; %d names are left", most, len(all.byName))
		}
	})
}

func TestTurnsOfAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		_, leave := all.enter(t.Context(), "nightly")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, leaveEnded := all.enter(ctx, "nightly")
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("waited %v", waited)
		}
		leaveEnded()
		if len(all.byName["nightly"].gate) != 1 {
			t.Error("the one whose context ended took the turn of another")
		}
		leave()
	})
}

func TestReleaseWakesTheOneWhoAsks(t *testing.T) {
	var all turns
	all.release("nightly") // nobody waits: nothing to do
	turn, leave := all.enter(t.Context(), "nightly")
	defer leave()
	all.release("nightly")
	all.release("nightly")
	select {
	case <-turn.released:
	default:
		t.Error("the release was not told")
	}
	select {
	case <-turn.released:
		t.Error("one release was told twice")
	default:
	}
}
