package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
	"github.com/lastword-go/lastword/app/internal/server"
)

// site is a server on a real database. Tests judge by hand, through the library's own calls.
type site struct {
	*httptest.Server
	t        *testing.T
	name     string // of the database
	store    *lastword.Store
	archive  *judge.Archive
	server   *server.Server
	client   *api.Client
	log      *syncBuffer
	woken    chan struct{}
	closeDB  func()
	problems []*problem.Package
}

type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func start(t *testing.T) *site {
	t.Helper()
	return startOn(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"))
}

func startOn(t *testing.T, name string) *site {
	t.Helper()
	s := &site{t: t, name: name, log: &syncBuffer{}, woken: make(chan struct{}, 100)}
	db, store, err := database.Open(t.Context(), name, &lastword.Options{Holder: "worker-2"})
	must(t, err)
	s.closeDB = func() { _ = db.Close() }
	t.Cleanup(s.closeDB)
	s.store = store
	s.archive, err = judge.OpenArchive(t.Context(), store)
	must(t, err)
	s.problems = []*problem.Package{{ID: "sum", Name: "Sum of <two>", Hash: "0123456789abcdef", Tests: make([]problem.Test, 2), Limits: problem.Limits{Time: time.Second, Memory: 64 << 20, Code: 128 << 10}}}
	languages := []judge.LanguageStatus{
		{Language: judge.Language{Name: "python", Title: "Python 3", Extensions: []string{".py"}}, Installed: "Python 3.13"},
		{Language: judge.Language{Name: "c", Title: "C", Extensions: []string{".c"}}, Missing: "/usr/bin/gcc is not installed: install it to judge C"},
	}
	s.server = server.New(server.Config{Store: store, Archive: s.archive, Judge: judge.New(s.problems, languages, nil), Problems: s.problems, Languages: languages,
		SandboxMode: "userns", Wake: func() { s.woken <- struct{}{} }, Log: slog.New(slog.NewTextHandler(s.log, nil)), Version: "v0.0.1"})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.server.Run(ctx) }()
	s.Server = httptest.NewServer(s.server.Handler())
	t.Cleanup(func() {
		stop()
		must(t, <-ran)
		s.Close()
	})
	s.client = &api.Client{Base: s.URL}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) submit() int64 {
	s.t.Helper()
	sent, err := s.client.Submit(s.t.Context(), api.SubmitRequest{Problem: "sum", Filename: "a.py", Source: "print(3)\n"})
	must(s.t, err)
	return sent.ID
}

func (s *site) claim() *lastword.Attempt {
	s.t.Helper()
	attempts, err := s.store.Claim(s.t.Context(), lastword.ClaimOptions{Kinds: []string{judge.TaskKind}})
	must(s.t, err)
	if len(attempts) != 1 {
		s.t.Fatalf("claimed %d", len(attempts))
	}
	return attempts[0]
}

func (s *site) record(a *lastword.Attempt, v judge.Verdict) error {
	return s.archive.Record(s.t.Context(), a, judge.Result{Verdict: v, Time: 1500 * time.Microsecond, Memory: 1 << 20, Message: "m", ProblemHash: "h",
		Tests: []judge.TestResult{{Name: "sample/1", Verdict: v, Time: time.Millisecond, Memory: 1 << 20}}})
}

// ask sends a request and returns the status, the headers and the body.
func (s *site) ask(method, path, body string, header ...string) (int, http.Header, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	must(s.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			request.Host = header[i+1]
		}
	}
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(s.t, err)
	return response.StatusCode, response.Header, string(text)
}

// refused checks that an answer is problem details of one line with the words wanted.
func (s *site) refused(status int, header http.Header, body string, wantStatus int, want string) {
	s.t.Helper()
	var e api.Error
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		s.t.Errorf("%d %s: %v", status, body, err)
		return
	}
	if status != wantStatus || e.Status != wantStatus || e.Title == "" || header.Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("status %d, %v, %+v; want %d", status, header["Content-Type"], e, wantStatus)
	}
	if !strings.Contains(e.Detail, want) || strings.Contains(e.Detail, "\n") || len(e.Detail) > 600 {
		s.t.Errorf("detail %q, want %q", e.Detail, want)
	}
}

func TestSubmit(t *testing.T) {
	s := start(t)
	status, header, body := s.ask("POST", "/v1/submissions", `{"problem":"sum","filename":"C:\\x\\../a\u0001\"><img onerror=x>.py","source":"print(1)\n"}`)
	if status != 201 || header.Get("Location") != "/v1/submissions/1" || !strings.Contains(body, `"id":1`) || !strings.Contains(body, `"generation":1`) {
		t.Fatal(status, header, body)
	}
	select {
	case <-s.woken:
	default:
		t.Error("nobody was woken")
	}
	got, err := s.client.Submission(t.Context(), 1)
	must(t, err)
	if got.Filename != "a\ufffd\"><img onerror=x>.py" || got.Source != "print(1)\n" || got.SourceBase64 != nil || got.Language != "python" || got.State != "pending" || got.Generation != 1 {
		t.Errorf("%+v", got)
	}
	bytes := []byte{'#', 0xff, 0, '\r', '\n'}
	sent, err := s.client.Submit(t.Context(), api.SubmitRequest{Problem: "sum", Language: "python", SourceBase64: bytes})
	must(t, err)
	got, err = s.client.Submission(t.Context(), sent.ID)
	must(t, err)
	if string(got.SourceBase64) != string(bytes) || got.Filename != "" {
		t.Errorf("%+v", got)
	}
}

func TestSubmitRefused(t *testing.T) {
	s := start(t)
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"no problem":       {`{"problem":"nope","language":"python","source":"x"}`, 422, `there is no problem "nope": known are sum`},
		"problem missing":  {`{"language":"python","source":"x"}`, 422, "problem"},
		"no language":      {`{"problem":"sum","filename":"a.xyz","source":"x"}`, 422, `the language of "a.xyz" is not known`},
		"unknown language": {`{"problem":"sum","language":"cobol","source":"x"}`, 422, `there is no language "cobol"`},
		"not installed":    {`{"problem":"sum","filename":"a.c","source":"x"}`, 422, "/usr/bin/gcc is not installed: install it"},
		"empty":            {`{"problem":"sum","language":"python","source":""}`, 422, "the source is empty"},
		"both":             {`{"problem":"sum","language":"python","source":"x","source_base64":"eA=="}`, 422, "send one of them"},
		"not base64":       {`{"problem":"sum","language":"python","source_base64":"%%"}`, 422, "source_base64"},
		"wrong type":       {`{"problem":7,"language":"python","source":"x"}`, 422, "body.problem: expected string (/openapi.json"},
		"unknown field":    {`{"problem":"sum","languag":"python","source":"x"}`, 422, "languag"},
		"not JSON":         {`{"problem":`, 400, "/openapi.json"},
		"no body":          {``, 400, "body"},
		"large source":     {`{"problem":"sum","language":"python","source":"` + strings.Repeat("x", 200<<10) + `"}`, 422, "at most 131072"},
		"large request":    {`{"problem":"sum","language":"python","source":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "more than 1048576 bytes: send less"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			status, header, body := s.ask("POST", "/v1/submissions", c.body)
			s.refused(status, header, body, c.status, c.want)
		})
	}
	if page, err := s.client.List(t.Context(), 0, 0); err != nil || len(page.Submissions) != 0 {
		t.Error(page, err)
	}
}

func TestRejudgeAndRefusal(t *testing.T) { rejudgeAndRefusal(t, start(t)) }

func rejudgeAndRefusal(t *testing.T, s *site) {
	id := s.submit()
	stale := s.claim()
	must(t, stale.Progress(t.Context(), "compiling"))
	got, err := s.client.Submission(t.Context(), id)
	must(t, err)
	if got.State != "running" || got.Progress != "compiling" || got.Verdict != nil || len(got.Attempts) != 1 || got.Attempts[0].EndedAt != nil || len(got.Attempts[0].ID) != 6 {
		t.Errorf("%+v", got)
	}
	again, err := s.client.Rejudge(t.Context(), id, 1, "new tests")
	must(t, err)
	if again != (api.Rejudged{ID: id, Before: 1, Now: 2}) {
		t.Error(again)
	}
	status, header, body := s.ask("POST", "/v1/submissions/1/rejudge", `{"generation":1}`)
	s.refused(status, header, body, 409, "generation 2, not at generation 1: look at it")
	status, header, body = s.ask("POST", "/v1/submissions/99/rejudge", `{}`)
	s.refused(status, header, body, 404, "submission 99: not found")
	if err := s.record(stale, judge.Accepted); err == nil {
		t.Error("the stale attempt recorded")
	}
	must(t, s.store.FlushRefusals(t.Context()))
	must(t, s.record(s.claim(), judge.WrongAnswer))
	got, err = s.client.Submission(t.Context(), id)
	must(t, err)
	if got.Generation != 2 || got.Verdict == nil || got.Verdict.Verdict != "WA" || got.Verdict.TimeMs != 1 || len(got.Verdicts) != 1 || len(got.Verdicts[0].Tests) != 1 || len(got.Generations) != 2 {
		t.Errorf("%+v", got)
	}
	if g := got.Generations[1]; g.Cause != "rerun" || g.Reason != "new tests" || g.Actor != "http 127.0.0.1" {
		t.Errorf("%+v", g)
	}
	if len(got.Refusals) != 1 || *got.Refused != (api.Refused{Generation: 1, Current: 2, Count: 1}) {
		t.Fatalf("%+v", got.Refusals)
	}
	if r := got.Refusals[0]; !strings.HasPrefix(r.Sentence, "worker-2 tried to write to submission 1 as generation 1; generation 2 had begun ") || !strings.HasSuffix(r.Sentence, " before.") {
		t.Error(r.Sentence)
	}
	page, err := s.client.List(t.Context(), 0, 0)
	must(t, err)
	if len(page.Submissions) != 1 || page.Submissions[0].Refused == nil {
		t.Errorf("%+v", page)
	}
	if _, _, body := s.ask("GET", "/v1/submissions/1", ""); !strings.Contains(body, `Z"`) || strings.Contains(body, "+00:00") {
		t.Error("times are not UTC:", body)
	}
}

func TestLists(t *testing.T) {
	s := start(t)
	for range 5 {
		s.submit()
	}
	page, err := s.client.List(t.Context(), 0, 2)
	must(t, err)
	if len(page.Submissions) != 2 || page.Submissions[0].ID != 5 || page.Next != 4 {
		t.Errorf("%+v", page)
	}
	page, err = s.client.List(t.Context(), page.Next, 3)
	must(t, err)
	if len(page.Submissions) != 3 || page.Submissions[0].ID != 3 || page.Next != 0 {
		t.Errorf("%+v", page)
	}
	lease, err := s.store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute})
	must(t, err)
	for path, want := range map[string]string{
		"/v1/problems":            `"id":"sum","name":"Sum of <two>","tests":2,"time_ms":1000,"memory_bytes":67108864`,
		"/v1/languages":           `"missing":"/usr/bin/gcc is not installed`,
		"/v1/leases":              `"name":"nightly","fence":1,"holder":"worker-2`,
		"/v1/leases?after=zz":     `"leases":[]`,
		"/v1/refusals":            `"refusals":[]`,
		"/v1/status":              `"sandbox_mode":"userns"`,
		"/healthz":                "ok\n",
		"/openapi.json":           `"/v1/events"`,
		"/v1/submissions?limit=1": `"next":5`,
	} {
		status, _, body := s.ask("GET", path, "")
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if strings.Contains(body, lease.Token().Nonce) {
			t.Errorf("%s shows a nonce", path)
		}
	}
	state, err := s.client.Status(t.Context())
	must(t, err)
	if state.Waiting != 5 || state.Running != 0 || state.Languages != 1 || state.Database != "sqlite" || state.Version != "v0.0.1" {
		t.Errorf("%+v", state)
	}
}

func TestNotFound(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/v1/submissions/9", 404, "submission 9: not found: GET /v1/submissions lists"},
		{"GET", "/v1/submissions/x", 422, "path.id"},
		{"GET", "/v1/submissions/0", 422, "path.id"},
		{"GET", "/v1/submissions?limit=9999", 422, "query.limit"},
		{"GET", "/v1/nope", 404, "there is no /v1/nope: /openapi.json lists"},
		{"DELETE", "/v1/submissions/9", 405, "use GET"},
		{"GET", "/v1/submissions/9/rejudge", 405, "use POST"},
	} {
		status, header, body := s.ask(c.method, c.path, "")
		s.refused(status, header, body, c.status, c.want)
	}
}

func TestOurFailureStaysInTheLog(t *testing.T) {
	s := start(t)
	s.closeDB()
	status, header, body := s.ask("GET", "/v1/submissions/1", "")
	s.refused(status, header, body, 500, "the server failed: its log says why")
	if strings.Contains(body, "sql") || strings.Count(s.log.String(), "request failed") != 1 || !strings.Contains(s.log.String(), "database is closed") {
		t.Error(body, s.log.String())
	}
	status, header, body = s.ask("GET", "/healthz", "")
	s.refused(status, header, body, 503, "the database does not answer")
	if status, _, body := s.ask("GET", "/", ""); status != 500 || !strings.Contains(body, "The server failed") {
		t.Error(status, body)
	}
}

func TestProtected(t *testing.T) {
	s := start(t)
	post := `{"problem":"sum","language":"python","source":"x"}`
	for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Origin", "null"}} {
		status, got, body := s.ask("POST", "/v1/submissions", post, header...)
		s.refused(status, got, body, 403, "another origin")
	}
	if status, _, body := s.ask("POST", "/v1/submissions", post, "Origin", s.URL, "Sec-Fetch-Site", "same-origin"); status != 201 {
		t.Error(status, body)
	}
	for _, host := range []string{"evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example"} {
		status, header, body := s.ask("GET", "/v1/submissions", "", "Host", host)
		s.refused(status, header, body, 421, "does not answer to the host")
	}
	for _, host := range []string{"localhost:8080", "LOCALHOST", "127.0.0.1", "[::1]:80", "x.localhost"} {
		if status, _, _ := s.ask("GET", "/v1/submissions", "", "Host", host); status != 200 {
			t.Error(host, status)
		}
	}
	_, header, _ := s.ask("GET", "/", "")
	for name, want := range map[string]string{"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if !strings.Contains(header.Get(name), want) {
			t.Errorf("%s: %q", name, header.Get(name))
		}
	}
	if policy := header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Error(policy)
	}
}
