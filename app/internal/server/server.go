// Package server is the HTTP side of lastword serve: the JSON API under /v1 with its event stream, and the page.
package server

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
	"github.com/lastword-go/lastword/app/internal/web"
)

// Config is what a Server stands on. Store, Archive and Judge are required.
type Config struct {
	Store       *lastword.Store
	Archive     *judge.Archive
	Judge       *judge.Judge
	Problems    []*problem.Package
	Languages   []judge.LanguageStatus
	SandboxMode string
	Wake        func() // called after a submission or a rejudge has committed; nil is nothing
	Log         *slog.Logger
	Version     string
	// Hosts are names, besides those of loopback, that requests over a loopback address may be for: the public name of a proxy on
	// this machine.
	Hosts []string
}

// Server answers requests. Its Run must go on as long as its Handler is in use: without it, nobody on /v1/events hears anything.
type Server struct {
	config  Config
	archive archive
	hub     *hub
	handler http.Handler
}

// New returns a Server.
func New(config Config) *Server {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Wake == nil {
		config.Wake = func() {}
	}
	s := &Server{config: config, archive: archive{store: config.Store, submissions: config.Archive}}
	s.hub = newHub(s.archive.newest, config.Log)
	s.handler = s.routes()
	return s
}

// Handler returns the handler of everything: API, events and page.
func (s *Server) Handler() http.Handler { return s.handler }

// Run watches for changes, also those that other processes make, and tells everybody who listens on /v1/events. It asks the
// database only while somebody does. It returns nil when ctx ends.
func (s *Server) Run(ctx context.Context) error { return s.hub.run(ctx) }

// Publish implements lastword.Sink: an event means that there is something to look at now. It never fails.
func (s *Server) Publish(context.Context, lastword.Event) error {
	s.hub.look()
	return nil
}

func (s *Server) changed() {
	s.config.Wake()
	s.hub.look()
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	s.registerAPI(mux)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("/v1/", notAnEndpoint(mux))
	mux.Handle("/", web.New(web.Config{Reader: s, Problems: s.problems(), Languages: s.languages(), Log: s.config.Log}))
	return s.protect(mux)
}

// health answers as soon as the database does.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if err := s.config.Store.DB().PingContext(r.Context()); err != nil {
		s.config.Log.Warn("health: the database does not answer", "error", err)
		writeProblem(w, http.StatusServiceUnavailable, "the database does not answer: the server's log says why")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
