// Package database opens the database that a --db flag names, with the settings that lastword's promises need.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/postgres"
	"github.com/lastword-go/lastword/sqlite"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Default is where data is kept when nothing is said: a file in the working folder.
const Default = "sqlite:lastword.db"

const (
	connectTimeout = 10 * time.Second
	// Reads of the page and the workers' writes share the pool; a server has room for more.
	maxConnections = 16
)

// Open opens "sqlite:PATH" or "postgres://…", makes or updates lastword's tables, and returns the database with its store. Close
// the *sql.DB at the end. A fault is one line that names the database (without its password) and the mend.
func Open(ctx context.Context, name string, opts *lastword.Options) (*sql.DB, *lastword.Store, error) {
	driver, dsn, dialect, err := parse(name)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("database %s: %w", Redacted(name), err)
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := lastword.Migrate(ctx, db, dialect, opts); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("database %s: %w", Redacted(name), err), db.Close())
	}
	store, err := lastword.Open(ctx, db, dialect, opts)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("database %s: %w", Redacted(name), err), db.Close())
	}
	return db, store, nil
}

func parse(name string) (driver, dsn string, dialect lastword.Dialect, err error) {
	path, isSQLite := strings.CutPrefix(name, "sqlite:")
	switch {
	case isSQLite && path != "":
		// FULL: what was acknowledged survives a loss of power. Immediate: a transaction that reads before it writes would fail late.
		settings := "_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate"
		return "sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: settings}).String(), sqlite.Dialect(), nil
	case strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://"):
		return "pgx", name, postgres.Dialect(), nil
	}
	return "", "", lastword.Dialect{}, fmt.Errorf("database %q is not known: use sqlite:PATH or postgres://user@host/name", Redacted(name))
}

// Redacted returns the name of a database without its password.
func Redacted(name string) string {
	u, err := url.Parse(name)
	if err != nil || u.User == nil {
		if strings.Contains(name, "@") {
			return "(unreadable URL)"
		}
		return name
	}
	return u.Redacted()
}
