package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNoServer(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	_, err := (&Client{Base: gone.URL}).Status(t.Context())
	var none *NoServerError
	if !errors.As(err, &none) || err.Error() != "no server at "+gone.URL+": start one with lastword serve, or name one with --server" {
		t.Error(err)
	}
	if _, err := (&Client{Base: gone.URL}).Wait(t.Context(), 1, 0); !errors.As(err, &none) {
		t.Error(err)
	}
}

// Something else that listens there is told apart from a lastword server.
func TestAnotherServer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/status" {
			_, _ = io.WriteString(w, "<html>hello")
			return
		}
		http.Error(w, "<html>gone", http.StatusGone)
	}))
	defer other.Close()
	c := &Client{Base: other.URL}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer as a lastword server does") {
		t.Error(err)
	}
	var refused *Error
	if _, err := c.Submission(t.Context(), 1); !errors.As(err, &refused) || refused.Status != http.StatusGone || err.Error() != "the server answered 410 Gone" {
		t.Error(err)
	}
	if _, err := (&Client{Base: "::"}).Status(t.Context()); err == nil || !strings.Contains(err.Error(), `server "::"`) {
		t.Error(err)
	}
}

func TestReadEvents(t *testing.T) {
	text := "retry: 1000\n\n: heartbeat\n\nid: 1\nevent: snapshot\ndata: {\"submissions\":[{\"id\":1},\ndata: {\"id\":2}]}\n\nevent: submission\n: in between\ndata: {\"id\":3}\n\nevent: other\ndata: x\n\ndata: cut o"
	var got []int64
	readEvents(&http.Response{Body: io.NopCloser(strings.NewReader(text))}, func(name, data string) {
		for _, s := range summaries(name, data) {
			got = append(got, s.ID)
		}
	})
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Error(got)
	}
}
