package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
	"github.com/lastword-go/lastword/app/internal/sandbox"
)

type judgeOptions struct {
	Problems        string `default:"problems" placeholder:"DIR" help:"Folder of problem packages (${default})."`
	Sandbox         string `enum:",cgroup,userns,none" default:"" help:"Sandbox mode: cgroup, userns or none; the strongest that works is the default."`
	UnsafeNoSandbox bool   `help:"Run submissions without a sandbox where there is none. They can then do whatever this user can."`
}

// openJudge opens the database that --db names, with the judge's archive on it. Close the *sql.DB at the end.
func openJudge(ctx context.Context, name string, log *slog.Logger) (*sql.DB, *lastword.Store, *judge.Archive, error) {
	db, store, err := database.Open(ctx, name, &lastword.Options{Log: log})
	if err != nil {
		return nil, nil, nil, err
	}
	archive, err := judge.OpenArchive(ctx, store)
	if err != nil {
		return nil, nil, nil, errors.Join(err, db.Close())
	}
	return db, store, archive, nil
}

// judgeParts are what judging needs on this machine.
type judgeParts struct {
	box       *sandbox.Sandbox
	sandbox   string // one line: the mode, and why not a stronger one
	languages []judge.LanguageStatus
	problems  []*problem.Package
	judge     *judge.Judge
}

func (o *judgeOptions) open(ctx context.Context, log *slog.Logger) (*judgeParts, error) {
	problems, err := problem.OpenAll(o.Problems)
	if len(problems) == 0 {
		return nil, fmt.Errorf("no problem package in %q (--problems DIR names the folder): %w", o.Problems, orNone(err))
	}
	if err != nil {
		log.Error("problem packages left out", "error", err)
	}
	parts, err := o.openSandbox(ctx, log)
	if err != nil {
		return nil, err
	}
	parts.problems = problems
	parts.judge = judge.New(problems, parts.languages, parts.box)
	return parts, nil
}

func (o *judgeOptions) openSandbox(ctx context.Context, log *slog.Logger) (*judgeParts, error) {
	mode, said := sandbox.Mode(o.Sandbox), "sandbox mode "+o.Sandbox
	if mode == "" {
		report := sandbox.Detect(ctx)
		mode, said = report.Mode, report.String()
	}
	box, err := sandbox.New(ctx, &sandbox.Options{Mode: mode, AllowUnsafe: o.UnsafeNoSandbox, Log: log})
	if errors.Is(err, sandbox.ErrUnsafe) {
		return nil, fmt.Errorf("%w; --unsafe-no-sandbox runs programs that you trust without one", err)
	}
	if err != nil {
		return nil, err
	}
	return &judgeParts{box: box, sandbox: said, languages: judge.ProbeLanguages(ctx)}, nil
}

func orNone(err error) error {
	if err == nil {
		return errors.New("the folder has none")
	}
	return err
}

func (p *judgeParts) languageNames() string {
	var names []string
	for _, language := range p.languages {
		if language.Missing == "" {
			names = append(names, language.Name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}
