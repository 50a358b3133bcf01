package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
)

// storeFlags choose lastword's tables in the database that --db names.
type storeFlags struct {
	Prefix string `env:"LASTWORD_PREFIX" placeholder:"PREFIX" help:"Prefix of the names of lastword's tables; with a dot at its end a schema of PostgreSQL (lastword_, ${env})."`
}

func (f *storeFlags) open(ctx context.Context, name string, opts lastword.Options) (*sql.DB, *lastword.Store, error) {
	opts.Prefix = f.Prefix
	return database.Open(ctx, name, &opts)
}

// givenDatabase is what a command that lastword starts finds in LASTWORD_DB: the database if one was named. The path of a file is made
// whole, because the command may change its folder.
func givenDatabase(name string) (value string, given bool) {
	path, isFile := strings.CutPrefix(name, "sqlite:")
	if os.Getenv("LASTWORD_DB") == "" && name == database.Default {
		return "", false
	}
	if whole, err := filepath.Abs(path); isFile && err == nil {
		name = "sqlite:" + whole
	}
	return name, true
}

// lost maps the two ways in which a token is not in force to the exit status for them.
func lost(err error) error {
	if errors.Is(err, lastword.ErrFenced) || errors.Is(err, lastword.ErrExpired) {
		return &exitError{status: exitLost, err: err}
	}
	return usage(err)
}

// usage maps what the library calls invalid to the exit status for wrong use.
func usage(err error) error {
	if errors.Is(err, lastword.ErrInvalid) {
		return &exitError{status: exitUsage, err: err}
	}
	return err
}

func wrongUse(format string, args ...any) error {
	return &exitError{status: exitUsage, err: fmt.Errorf(format, args...)}
}
