package database

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/lastword-go/lastword"
)

// Connect prepares "sqlite:PATH" or "postgres://…" with the same settings as Open, and leaves the tables as they are: for commands that
// look at them or make them. Nothing has been asked of the database yet.
func Connect(name string) (*sql.DB, lastword.Dialect, error) {
	driver, dsn, dialect, err := parse(name)
	if err != nil {
		return nil, lastword.Dialect{}, err
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, lastword.Dialect{}, fmt.Errorf("database %s: %w", Redacted(name), err)
	}
	db.SetMaxOpenConns(maxConnections)
	return db, dialect, nil
}

// Missing reports whether the name is that of a file that is not there. Connecting would make it.
func Missing(name string) bool {
	path, isFile := strings.CutPrefix(name, "sqlite:")
	if !isFile {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
