package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/judge"
)

const (
	maxBody    = 1 << 20
	retryAfter = "1" // seconds, when the database was contended
)

// answer turns an error into problem details with one line that names the thing and the mend. What is our own fault goes to the log
// and not to the client.
func (s *Server) answer(err error) error {
	var input *judge.InputError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &input):
		return huma.Error422UnprocessableEntity(input.Text)
	case errors.Is(err, lastword.ErrNotFound):
		return huma.Error404NotFound(plain(err) + ": GET /v1/submissions lists what there is")
	case errors.Is(err, lastword.ErrConflict):
		return huma.Error409Conflict(plain(err) + ": look at it and try again")
	case errors.Is(err, lastword.ErrContended):
		busy := huma.Error503ServiceUnavailable("the database is busy and nothing was changed: try again in a second")
		return huma.ErrorWithHeaders(busy, http.Header{"Retry-After": {retryAfter}})
	}
	s.config.Log.Error("request failed", "error", err)
	return huma.Error500InternalServerError("the server failed: its log says why")
}

func plain(err error) string { return strings.ReplaceAll(err.Error(), "lastword: ", "") }

// oneLine makes what huma itself refuses read like our own refusals: the detail says all, and values are not sent back, since they
// may be as large as the request.
func oneLine(_ huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	said := *model
	switch {
	case model.Status == http.StatusRequestEntityTooLarge:
		said.Detail = fmt.Sprintf("the request has more than %d bytes: send less", maxBody)
	case len(model.Errors) > 0:
		var faults []string
		for _, fault := range model.Errors {
			if fault == nil {
				continue
			}
			text := fault.Message
			if fault.Location != "" {
				text = fault.Location + ": " + text
			}
			faults = append(faults, text)
		}
		said.Detail = strings.Join(faults, "; ") + " (/openapi.json describes the request)"
	}
	said.Detail = strings.Join(strings.Fields(said.Detail), " ")
	said.Errors = nil
	return &said, nil
}

// writeProblem answers outside of huma.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail})
}

// notAnEndpoint answers for paths below /v1/ that are none, and for methods that a path does not have.
func notAnEndpoint(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "/v1/" {
				w.Header().Set("Allow", method)
				writeProblem(w, http.StatusMethodNotAllowed, fmt.Sprintf("%.20s is not a method of %.200s: use %s", r.Method, r.URL.Path, method))
				return
			}
		}
		writeProblem(w, http.StatusNotFound, fmt.Sprintf("there is no %.200s: /openapi.json lists what there is", r.URL.Path))
	}
}
