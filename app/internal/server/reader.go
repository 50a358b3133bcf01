package server

import (
	"context"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
)

// The page reads through the same methods as the API.

// Submissions returns a page of the list.
func (s *Server) Submissions(ctx context.Context, before int64, limit int) (api.Page, error) {
	// One more tells whether there are older ones.
	list, err := s.archive.list(ctx, before, limit+1)
	if err != nil {
		return api.Page{}, err
	}
	page := api.Page{Submissions: list}
	if len(list) > limit {
		page.Submissions = list[:limit]
		page.Next = list[limit-1].ID
	}
	return page, nil
}

// Submission returns everything about one submission, or an error that matches lastword.ErrNotFound.
func (s *Server) Submission(ctx context.Context, id int64) (api.Submission, error) {
	return s.archive.submission(ctx, id)
}

// Refusals returns the newest refused writes.
func (s *Server) Refusals(ctx context.Context) ([]api.Refusal, error) {
	return s.archive.refusals(ctx, lastword.RefusalFilter{})
}

// Status returns the state of the server.
func (s *Server) Status(ctx context.Context) (api.Status, error) {
	refused := s.config.Store.RefusalCounts()
	status := api.Status{Version: s.config.Version, Database: s.config.Store.Dialect().Name, SandboxMode: s.config.SandboxMode, Holder: s.config.Store.Holder(),
		Problems: len(s.config.Problems), Refused: refused.Refused, Unrecorded: refused.Unrecorded, Listeners: s.hub.count()}
	for _, l := range s.config.Languages {
		if l.Missing == "" {
			status.Languages++
		}
	}
	var err error
	if status.Waiting, err = s.archive.count(ctx, lastword.Pending); err != nil {
		return api.Status{}, err
	}
	status.Running, err = s.archive.count(ctx, lastword.Running)
	return status, err
}

func (s *Server) problems() []api.Problem {
	out := []api.Problem{}
	for _, p := range s.config.Problems {
		out = append(out, api.Problem{ID: p.ID, Name: p.Name, Tests: len(p.Tests), TimeMs: p.Limits.Time.Milliseconds(), MemoryBytes: p.Limits.Memory, CodeBytes: p.Limits.Code,
			Hash: p.Hash, Warnings: p.Warnings})
	}
	return out
}

func (s *Server) languages() []api.Language {
	out := []api.Language{}
	for _, l := range s.config.Languages {
		out = append(out, api.Language{Name: l.Name, Title: l.Title, Extensions: l.Extensions, Installed: l.Installed, Missing: l.Missing})
	}
	return out
}
