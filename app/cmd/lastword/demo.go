package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/demo"
)

type demoCommand struct {
	Lease time.Duration `default:"1.5s" help:"How long a lease lives without a renewal (${default})."`
}

// Run plays the demo on a database of its own: a SQLite file in a temporary folder, or a schema on the PostgreSQL that --db names. Both are
// gone afterwards.
func (d *demoCommand) Run(ctx context.Context, p *program, c *commands) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which the demo starts again: %w", err)
	}
	name, remove, err := demoDatabase(ctx, c.DB)
	if err != nil {
		return err
	}
	defer remove()
	db, store, err := database.Open(ctx, name, &lastword.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	fmt.Fprintf(p.stdout, "Two stories on real processes, with leases of %v, on %s.\n", d.Lease, store.Dialect().Name)
	return demo.Run(ctx, db, store, demo.Options{Executable: executable, Database: name, Lease: d.Lease, Out: p.stdout})
}

func demoDatabase(ctx context.Context, name string) (demoName string, remove func(), err error) {
	if !strings.HasPrefix(name, "postgres") {
		dir, err := os.MkdirTemp("", "lastword-demo-")
		if err != nil {
			return "", nil, err
		}
		return "sqlite:" + filepath.Join(dir, "demo.db"), func() { _ = os.RemoveAll(dir) }, nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", nil, errors.New("the database's URL cannot be read: postgres://user@host/name is the form")
	}
	db, err := sql.Open("pgx", name)
	if err != nil {
		return "", nil, fmt.Errorf("database %s: %w", database.Redacted(name), err)
	}
	schema := fmt.Sprintf("lastword_demo_%d", os.Getpid())
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		return "", nil, errors.Join(fmt.Errorf("make a schema for the demo on %s: %w", database.Redacted(name), err), db.Close())
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String(), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = db.ExecContext(ctx, "DROP SCHEMA "+schema+" CASCADE")
		_ = db.Close()
	}, nil
}

type demoProcessCommand struct {
	Role     string        `arg:"" enum:"reconciler,judge"`
	Name     string        `required:""`
	Lease    time.Duration `required:""`
	Guarded  bool
	Problems string
}

// Run is one process of the demo.
func (d *demoProcessCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, err := database.Open(ctx, c.DB, &lastword.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if d.Role == "judge" {
		err = demo.Judge(ctx, store, d.Name, d.Lease, d.Guarded, d.Problems, p.stdin, p.stdout)
	} else {
		err = demo.Reconciler(ctx, store, d.Name, d.Lease, d.Guarded, p.stdin, p.stdout)
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, store.FlushRefusals(flush))
}
