package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Without a listener the database is not asked; with one, four times a second, and at once when there is a hint.
func TestHubLooksOnlyForListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		looked := func() int64 { synctest.Wait(); return count.Load() }
		h := newHub(func(context.Context) ([]api.Summary, error) { count.Add(1); return nil, nil }, quiet())
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = h.run(ctx) }()
		time.Sleep(time.Hour)
		h.look()
		synctest.Wait()
		if looked() != 0 {
			t.Fatalf("looked %d times for nobody", looked())
		}
		l := h.join()
		synctest.Wait()
		if looked() != 1 || (<-l.events).name != "snapshot" {
			t.Fatal(looked())
		}
		time.Sleep(10 * time.Second)
		if n := looked(); n < 30 || n > 42 {
			t.Errorf("looked %d times in 10 s", n)
		}
		h.look()
		synctest.Wait()
		time.Sleep(pollAtMost)
		before := looked()
		h.look()
		time.Sleep(2 * pollAtMost)
		if looked() <= before {
			t.Error("a hint was not followed")
		}
		h.leave(l)
		h.leave(l)
		time.Sleep(time.Second)
		before = looked()
		time.Sleep(time.Hour)
		if looked() != before {
			t.Errorf("looked %d times for nobody", looked()-before)
		}
		stop()
		synctest.Wait()
	})
}

// A listener that takes nothing is cut off; the others are told everything.
func TestHubDropsTheSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var generation atomic.Int64
		h := newHub(func(context.Context) ([]api.Summary, error) {
			return []api.Summary{{ID: 1, Generation: generation.Add(1)}}, nil
		}, quiet())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.run(ctx) }()
		slow, fast := h.join(), h.join()
		var got atomic.Int64
		go func() {
			for range fast.events {
				got.Add(1)
			}
		}()
		time.Sleep(2 * queued * pollEvery)
		if h.count() != 1 || got.Load() < queued+100 {
			t.Errorf("%d listeners, %d events", h.count(), got.Load())
		}
		taken := 0
		for range slow.events {
			taken++
		}
		if taken != queued {
			t.Errorf("the slow one had %d", taken)
		}
		stop()
		if err := <-done; err != nil || h.count() != 0 {
			t.Error(err, h.count())
		}
		synctest.Wait()
	})
}

// An outage is logged once, and what changed meanwhile is told after it.
func TestHubOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var fails atomic.Bool
		var generation atomic.Int64
		h := newHub(func(context.Context) ([]api.Summary, error) {
			if fails.Load() {
				return nil, errors.New("down")
			}
			return []api.Summary{{ID: 1, Generation: generation.Load()}}, nil
		}, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = h.run(ctx) }()
		l := h.join()
		<-l.events
		fails.Store(true)
		time.Sleep(time.Minute)
		generation.Store(7)
		fails.Store(false)
		if e := <-l.events; e.name != "submission" || !strings.Contains(string(e.data), `"generation":7`) {
			t.Errorf("%+v", e)
		}
		stop()
		synctest.Wait()
		if strings.Count(log.String(), "down") != 1 {
			t.Error(log.String())
		}
	})
}

func TestContendedAnswer(t *testing.T) {
	s := &Server{config: Config{Log: quiet()}}
	err := s.answer(lastword.ErrContended)
	var status huma.StatusError
	var headers huma.HeadersError
	if !errors.As(err, &status) || status.GetStatus() != 503 || !errors.As(err, &headers) || headers.GetHeaders().Get("Retry-After") != "1" {
		t.Error(err)
	}
}

func TestSentence(t *testing.T) {
	at := time.Now()
	task := lastword.Refusal{Kind: lastword.KindTask, Name: "41", Epoch: 1, Current: 2, Operation: "complete", Holder: "worker-2", Reason: "because", Last: at}
	opened := []lastword.GenerationInfo{{Generation: 1, Opened: at.Add(-time.Minute)}, {Generation: 2, Opened: at.Add(-14 * time.Second)}}
	for want, got := range map[string]string{
		"worker-2 tried to complete submission 41 as generation 1; generation 2 had begun 14 s before.": sentence(task, opened),
		"worker-2 tried to complete submission 41 as generation 1; because.":                            sentence(task, nil),
		"b tried to write under lease nightly with fence 7; c was granted fence 8 1s ago.": sentence(lastword.Refusal{Kind: lastword.KindLease, Name: "nightly", Epoch: 7, Current: 8,
			Operation: "guard", Holder: "b", Reason: "c was granted fence 8 1s ago"}, nil),
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
