package main

import (
	"context"
	"fmt"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/reconcile"
)

type reconcileCommand struct {
	Run reconcileRunCommand `cmd:"" help:"Run the comparison once, now. Exit status 75 when another process runs it."`
	Ls  reconcileLsCommand  `cmd:"" help:"List runs, the newest first."`
}

type reconcileRunCommand struct {
	TTL time.Duration `default:"30s" help:"How long the lease lives without a renewal (${default})."`
}

// Run compares once and prints what was found.
func (r *reconcileRunCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, archive, err := openJudge(ctx, c.DB, slog.New(slog.NewTextHandler(p.stderr, nil)))
	if err != nil {
		return err
	}
	defer db.Close()
	report, err := reconcile.Run(ctx, store, reconcile.Options{TTL: r.TTL}, archive.Checks()...)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(p.stdout, report); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(p.stdout, "run %d, fence %d: %s, %d rows, %d orphans\n", report.RunID, report.Fence, report.State, report.Rows, report.Orphans)
		for _, check := range report.Checks {
			fmt.Fprintf(p.stdout, "  %-28s %8d rows %6d orphans  %v\n", check.Name, check.Rows, check.Orphans, check.Sample)
		}
	}
	if report.Held != nil {
		return report.Held
	}
	return nil
}

type reconcileLsCommand struct {
	Limit int `default:"20" help:"At most so many (${default})."`
}

// Run lists runs.
func (r *reconcileLsCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, err := database.Open(ctx, c.DB, &lastword.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	runs, err := reconcile.List(ctx, store, reconcile.Filter{Limit: r.Limit})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p.stdout, runs)
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tFENCE\tSTATE\tSTARTED\tROWS\tORPHANS\tHOLDER\tREASON")
	for _, run := range runs {
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\n", run.ID, run.Fence, run.State, run.Started.Format(time.RFC3339), run.Rows, run.Orphans, run.Holder, run.Reason)
	}
	return table.Flush()
}
