package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
	"github.com/lastword-go/lastword/app/internal/judge"
)

// bodyTime is for the whole request; it must leave room for a database that has to be waited for.
const bodyTime = 30 * time.Second

func (s *Server) registerAPI(mux *http.ServeMux) {
	config := huma.DefaultConfig("Lastword", s.config.Version)
	config.Info.Description = "A judge whose verdicts cannot be overwritten by a stale worker. Errors are RFC 9457 problem details; `detail` is one line that names the thing and the mend."
	config.DocsPath, config.SchemasPath = "", "" // the pages that huma brings load scripts from elsewhere
	config.CreateHooks = nil                     // no links to schemas in the answers
	config.Transformers = []huma.Transformer{oneLine}
	a := humago.New(mux, config)
	a.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		ctx.SetHeader("Cache-Control", "no-store")
		next(huma.WithValue(ctx, senderKey{}, ctx.RemoteAddr()))
	})
	post := func(op huma.Operation) huma.Operation {
		op.Method, op.MaxBodyBytes, op.BodyReadTimeout = http.MethodPost, maxBody, bodyTime
		return op
	}
	huma.Register(a, post(huma.Operation{OperationID: "submit", Path: "/v1/submissions", Summary: "Submit a program", DefaultStatus: http.StatusCreated,
		Description: "The program is `source`, or `source_base64` where it is not UTF-8 text. Left out, the language is that of the filename's ending."}), s.submit)
	huma.Register(a, post(huma.Operation{OperationID: "rejudge", Path: "/v1/submissions/{id}/rejudge", Summary: "Judge a submission again",
		Description: "Opens the next generation and, in the same transaction, fences the attempt that runs: whatever it still writes is refused."}), s.rejudge)
	huma.Register(a, huma.Operation{OperationID: "list", Method: http.MethodGet, Path: "/v1/submissions", Summary: "List submissions, the newest first"}, s.list)
	huma.Register(a, huma.Operation{OperationID: "submission", Method: http.MethodGet, Path: "/v1/submissions/{id}", Summary: "Everything about one submission"}, s.submission)
	s.registerLists(a)
	describeEvents(a.OpenAPI())
}

type senderKey struct{}

// actor says, for the history, who asked over HTTP.
func actor(ctx context.Context) string {
	address, _ := ctx.Value(senderKey{}).(string)
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return strings.TrimSpace("http " + address)
}

type body[T any] struct{ Body T }

func answered[T any](s *Server, value T, err error) (*body[T], error) {
	if err != nil {
		return nil, s.answer(err)
	}
	return &body[T]{value}, nil
}

type submitted struct {
	Location string `header:"Location"`
	Body     api.Submitted
}

func (s *Server) submit(ctx context.Context, in *body[api.SubmitRequest]) (*submitted, error) {
	request := in.Body
	source := request.SourceBase64
	switch {
	case len(source) > 0 && request.Source != "":
		return nil, huma.Error422UnprocessableEntity("source and source_base64 are both given: send one of them")
	case len(source) == 0:
		source = []byte(request.Source)
	}
	// Some clients send a whole path. Only the name is anybody's business.
	filename := path.Base(strings.ReplaceAll(request.Filename, `\`, "/"))
	if filename == "." || filename == "/" {
		filename = ""
	}
	if request.Language == "" {
		request.Language = judge.LanguageOf(filename)
	}
	submission := judge.Submission{Problem: request.Problem, Language: request.Language, Filename: filename, Source: source}
	if err := s.config.Judge.Check(submission); err != nil {
		return nil, s.answer(err)
	}
	id, err := s.config.Archive.Submit(ctx, submission)
	if err != nil {
		return nil, s.answer(err)
	}
	s.changed()
	url := fmt.Sprintf("/v1/submissions/%d", id)
	return &submitted{Location: url, Body: api.Submitted{ID: id, Generation: 1, URL: url}}, nil
}

type byID struct {
	ID int64 `path:"id" minimum:"1" doc:"Id of the submission"`
}

type rejudge struct {
	ID   int64 `path:"id" minimum:"1" doc:"Id of the submission"`
	Body api.RejudgeRequest
}

func (s *Server) rejudge(ctx context.Context, in *rejudge) (*body[api.Rejudged], error) {
	next, err := s.config.Archive.Rejudge(ctx, in.ID, in.Body.Generation, actor(ctx), in.Body.Reason)
	if err != nil {
		return nil, s.answer(err)
	}
	s.changed()
	return &body[api.Rejudged]{api.Rejudged{ID: in.ID, Before: next - 1, Now: next}}, nil // a rerun raises the generation by one
}

type page struct {
	Before int64 `query:"before" minimum:"0" doc:"Only submissions with an id below; 0 begins at the newest"`
	Limit  int   `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

func (s *Server) list(ctx context.Context, in *page) (*body[api.Page], error) {
	page, err := s.Submissions(ctx, in.Before, in.Limit)
	return answered(s, page, err)
}

func (s *Server) submission(ctx context.Context, in *byID) (*body[api.Submission], error) {
	submission, err := s.Submission(ctx, in.ID)
	return answered(s, submission, err)
}

type leases struct {
	After string `query:"after" doc:"Only leases whose names come after"`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

type refusals struct {
	Kind  lastword.Kind `query:"kind" enum:"lease,task" doc:"Only these"`
	Name  string        `query:"name" doc:"Only those of the lease or submission"`
	Limit int           `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (s *Server) registerLists(a huma.API) {
	get := func(id, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary}
	}
	huma.Register(a, get("problems", "/v1/problems", "List problems"), func(context.Context, *struct{}) (*body[api.Problems], error) {
		return &body[api.Problems]{api.Problems{Problems: s.problems()}}, nil
	})
	huma.Register(a, get("languages", "/v1/languages", "List languages"), func(context.Context, *struct{}) (*body[api.Languages], error) {
		return &body[api.Languages]{api.Languages{Languages: s.languages()}}, nil
	})
	huma.Register(a, get("leases", "/v1/leases", "List leases by name"), func(ctx context.Context, in *leases) (*body[api.Leases], error) {
		leases, err := s.archive.leases(ctx, in.After, in.Limit)
		return answered(s, leases, err)
	})
	huma.Register(a, get("refusals", "/v1/refusals", "List refused writes, the newest first"), func(ctx context.Context, in *refusals) (*body[api.Refusals], error) {
		refusals, err := s.archive.refusals(ctx, lastword.RefusalFilter{Kind: in.Kind, Name: in.Name, Limit: in.Limit})
		return answered(s, api.Refusals{Refusals: refusals}, err)
	})
	huma.Register(a, get("status", "/v1/status", "The state of the server"), func(ctx context.Context, _ *struct{}) (*body[api.Status], error) {
		status, err := s.Status(ctx)
		return answered(s, status, err)
	})
}

// describeEvents adds the stream to the OpenAPI document; huma does not serve it.
func describeEvents(document *huma.OpenAPI) {
	schema := &huma.Schema{Type: huma.TypeString}
	document.AddOperation(&huma.Operation{OperationID: "events", Method: http.MethodGet, Path: "/v1/events", Summary: "Changes as server-sent events",
		Description: "First a `snapshot` event with the server's clock (`now`) and the newest 100 submissions as in the list; then a `submission` event with one of them " +
			"whenever it has changed, whoever changed it. Each has an id. A comment comes every 15 s. Whoever reads too slowly is cut off: connect again and get a new snapshot.",
		Responses: map[string]*huma.Response{"200": {Description: "The stream", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: schema}}}}})
}
