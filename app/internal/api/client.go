package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	maxAnswer      = 16 << 20
)

// Client talks to one server. It is safe for use by several goroutines.
type Client struct {
	Base string       // "http://127.0.0.1:8080"
	HTTP *http.Client // nil is one of our own; a Timeout in it would also end the stream that Wait listens to
}

// Error is a refusal by the server, as RFC 9457 problem details.
type Error struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"` // one line that names the thing and the mend
}

func (e *Error) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("the server answered %d %s", e.Status, e.Title)
}

// NoServerError says that nobody answers at the address.
type NoServerError struct {
	Base string
	Err  error
}

func (e *NoServerError) Error() string {
	return fmt.Sprintf("no server at %s: start one with lastword serve, or name one with --server", e.Base)
}

// Unwrap returns the network's error.
func (e *NoServerError) Unwrap() error { return e.Err }

// Submit stores a program and returns its id. It is judged from then on; [Client.Wait] waits for the verdict.
func (c *Client) Submit(ctx context.Context, submission SubmitRequest) (Submitted, error) {
	return call[Submitted](ctx, c, http.MethodPost, "/v1/submissions", submission)
}

// Submission returns everything about one submission.
func (c *Client) Submission(ctx context.Context, id int64) (Submission, error) {
	return call[Submission](ctx, c, http.MethodGet, submissionPath(id), nil)
}

// List returns submissions, the newest first: those with an id below before (0 begins at the newest), at most limit (0 is 100).
func (c *Client) List(ctx context.Context, before int64, limit int) (Page, error) {
	query := url.Values{}
	if before > 0 {
		query.Set("before", strconv.FormatInt(before, 10))
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return call[Page](ctx, c, http.MethodGet, "/v1/submissions?"+query.Encode(), nil)
}

// Rejudge opens the next generation. generation is the one that was seen; 0 takes whatever it is now.
func (c *Client) Rejudge(ctx context.Context, id, generation int64, reason string) (Rejudged, error) {
	return call[Rejudged](ctx, c, http.MethodPost, submissionPath(id)+"/rejudge", RejudgeRequest{Generation: generation, Reason: reason})
}

// Status returns the state of the server.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

func submissionPath(id int64) string { return "/v1/submissions/" + strconv.FormatInt(id, 10) }

func call[Answer any](ctx context.Context, c *Client, method, path string, body any) (answer Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.send(ctx, method, path, "application/json", body)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("%s%s does not answer as a lastword server does: %w", c.base(), path, err)
	}
	return answer, nil
}

// send returns a response with a status below 300, or an error: *Error where the server refused, *NoServerError where there is none.
func (c *Client) send(ctx context.Context, method, path, accept string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base()+path, content)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", c.Base, err)
	}
	request.Header.Set("Accept", accept)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, &NoServerError{Base: c.base(), Err: err}
	}
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusal(response)
}

func (c *Client) base() string { return strings.TrimRight(c.Base, "/") }

// refusal reads problem details. Where the answer is something else, the status line must do.
func refusal(response *http.Response) *Error {
	e := &Error{}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") {
		if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(e); err != nil {
			e = &Error{}
		}
	}
	e.Status = response.StatusCode
	if e.Title == "" {
		e.Title = http.StatusText(response.StatusCode)
	}
	return e
}
