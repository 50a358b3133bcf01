package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
)

// patience is for what must happen; nothing waits so long when it does.
const patience = 20 * time.Second

// stream is a client on /v1/events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	last  string // id
}

func (s *site) listen() *stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/v1/events", nil)
	must(s.t, err)
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		s.t.Fatal(got)
	}
	return &stream{t: s.t, lines: bufio.NewScanner(response.Body)}
}

// next returns the next event.
func (s *stream) next() (name, data string) {
	s.t.Helper()
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch {
		case field == "event":
			name = value
		case field == "data":
			data = value
		case field == "id":
			if value == s.last || len(value) < len(s.last) {
				s.t.Errorf("id %s after %s", value, s.last)
			}
			s.last = value
		case field == "" && name != "":
			return name, data
		}
	}
	s.t.Fatal("the stream ended: ", s.lines.Err())
	return "", ""
}

// until reads submission events until one satisfies the condition.
func (s *stream) until(what string, is func(api.Summary) bool) api.Summary {
	s.t.Helper()
	for {
		name, data := s.next()
		var got api.Summary
		if name != "submission" {
			s.t.Fatalf("a %s while waiting for %s", name, what)
		}
		must(s.t, json.Unmarshal([]byte(data), &got))
		if is(got) {
			return got
		}
	}
}

func TestEvents(t *testing.T) { eventsTold(t, start(t)) }

func eventsTold(t *testing.T, s *site) {
	first := s.submit()
	l := s.listen()
	name, data := l.next()
	var snapshot api.Snapshot
	must(t, json.Unmarshal([]byte(data), &snapshot))
	if name != "snapshot" || len(snapshot.Submissions) != 1 || snapshot.Submissions[0].ID != first || time.Since(snapshot.Now) > time.Minute {
		t.Fatal(name, data)
	}
	stale := s.claim()
	l.until("running", func(g api.Summary) bool { return g.State == "running" && g.Progress == "" })
	for _, step := range []string{"compiling", "test 1 of 2"} {
		must(t, stale.Progress(t.Context(), step))
		must(t, s.server.Publish(t.Context(), lastword.Event{}))
		l.until(step, func(g api.Summary) bool { return g.Progress == step })
	}
	_, err := s.client.Rejudge(t.Context(), first, 1, "")
	must(t, err)
	l.until("generation 2", func(g api.Summary) bool { return g.Generation == 2 && g.State == "pending" && g.Verdict == nil })
	if err := s.record(stale, judge.Accepted); !errors.Is(err, lastword.ErrFenced) {
		t.Fatal(err)
	}
	must(t, s.store.FlushRefusals(t.Context()))
	l.until("the refusal", func(g api.Summary) bool {
		return g.Refused != nil && g.Refused.Generation == 1 && g.Refused.Current == 2
	})
	must(t, s.record(s.claim(), judge.WrongAnswer))
	got := l.until("the verdict", func(g api.Summary) bool { return g.Verdict != nil })
	if got.Verdict.Verdict != "WA" || got.Verdict.Generation != 2 || got.Verdict.Tests != nil {
		t.Errorf("%+v", got)
	}
	// Whoever comes again gets what stands now.
	_, data = s.listen().next()
	if !strings.Contains(data, `"verdict":"WA"`) {
		t.Error(data)
	}
}

// Another process on the same database tells this one nothing: it must be seen all the same.
func TestEventsOfAnotherProcess(t *testing.T) {
	s := start(t)
	l := s.listen()
	l.next()
	db, store, err := database.Open(t.Context(), s.name, nil)
	must(t, err)
	defer db.Close()
	archive, err := judge.OpenArchive(t.Context(), store)
	must(t, err)
	id, err := archive.Submit(t.Context(), judge.Submission{Problem: "sum", Language: "python", Filename: "x.py", Source: []byte("x")})
	must(t, err)
	l.until("the submission", func(g api.Summary) bool { return g.ID == id && g.State == "pending" })
	attempts, err := store.Claim(t.Context(), lastword.ClaimOptions{Kinds: []string{judge.TaskKind}})
	must(t, err)
	must(t, archive.Record(t.Context(), attempts[0], judge.Result{Verdict: judge.Accepted}))
	l.until("the verdict", func(g api.Summary) bool { return g.Verdict != nil && g.Verdict.Verdict == "AC" })
}

// Waiting ends with the verdict, tells the steps, and outlives a server that goes away and comes back.
func TestWait(t *testing.T) {
	s := start(t)
	id := s.submit()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	serve := func(l net.Listener) *http.Server {
		h := &http.Server{Handler: s.server.Handler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = h.Serve(l) }()
		return h
	}
	before := serve(listener)
	client := &api.Client{Base: "http://" + listener.Addr().String() + "/"}
	seen := make(chan api.Summary, 100)
	ended := make(chan error, 1)
	var got api.Submission
	go func() {
		var err error
		got, err = client.Watch(t.Context(), id, 0, func(g api.Summary) { seen <- g })
		ended <- err
	}()
	wait := func(what string, is func(api.Summary) bool) {
		t.Helper()
		deadline := time.After(patience)
		for {
			select {
			case g := <-seen:
				if is(g) {
					return
				}
			case err := <-ended:
				t.Fatal("ended before ", what, err)
			case <-deadline:
				t.Fatal("did not see ", what)
			}
		}
	}
	wait("queued", func(g api.Summary) bool { return g.State == "pending" })
	attempt := s.claim()
	must(t, attempt.Progress(t.Context(), "compiling"))
	wait("compiling", func(g api.Summary) bool { return g.Progress == "compiling" })
	must(t, before.Close())
	must(t, attempt.Progress(t.Context(), "test 1 of 2"))
	listener, err = net.Listen("tcp", listener.Addr().String())
	must(t, err)
	after := serve(listener)
	defer after.Close()
	wait("test 1 of 2", func(g api.Summary) bool { return g.Progress == "test 1 of 2" })
	must(t, s.record(attempt, judge.Accepted))
	must(t, <-ended)
	if got.Verdict == nil || got.Verdict.Verdict != "AC" || len(got.Verdict.Tests)+len(got.Verdicts[0].Tests) == 0 {
		t.Errorf("%+v", got)
	}
	_, err = client.Rejudge(t.Context(), id, 1, "")
	must(t, err)
	// Generation 1 is over, so that there is nothing to wait for.
	got, err = client.Wait(t.Context(), id, 1)
	if err != nil || got.Generation != 2 {
		t.Error(got, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Wait(short, id, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	var refused *api.Error
	if _, err := client.Wait(t.Context(), 99, 0); !errors.As(err, &refused) || refused.Status != 404 {
		t.Error(err)
	}
}
