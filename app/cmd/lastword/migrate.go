package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
)

type migrateCommand struct {
	storeFlags
	Plan  bool `xor:"what" help:"Only say which version the tables have and which one they would get."`
	Print bool `xor:"what" help:"Print the SQL, for other migration tools. The database is not asked."`
	From  int  `default:"0" placeholder:"N" help:"With --print: leave out the versions up to N."`
}

type migration struct {
	Engine  string `json:"engine"`
	Have    int    `json:"have"` // 0: no tables
	Want    int    `json:"want"`
	Applied bool   `json:"applied"`
}

// Run makes or updates the tables, or says what that would do.
func (m *migrateCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, dialect, err := database.Connect(c.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	opts := &lastword.Options{Prefix: m.Prefix}
	if m.Print {
		// The library judges the prefix before it asks the database, which it does not get to.
		asked, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := lastword.Open(asked, db, dialect, opts); errors.Is(err, lastword.ErrInvalid) {
			return usage(err)
		}
		return m.print(p.stdout, dialect)
	}
	found, err := m.look(ctx, db, dialect, c.DB, opts)
	if err == nil && !m.Plan && found.Have < found.Want {
		err = lastword.Migrate(ctx, db, dialect, opts)
		found.Applied = true
	}
	if err != nil {
		return usage(fmt.Errorf("database %s: %w", database.Redacted(c.DB), err))
	}
	if c.JSON {
		err = printJSON(p.stdout, found)
	} else {
		_, err = fmt.Fprintf(p.stdout, "database %s (%s): %s\n", database.Redacted(c.DB), found.Engine, found)
	}
	if err == nil && found.Have > found.Want {
		return &lastword.SchemaError{Have: found.Have, Want: found.Want}
	}
	return err
}

// look finds out which version the tables have.
func (m *migrateCommand) look(ctx context.Context, db *sql.DB, dialect lastword.Dialect, name string, opts *lastword.Options) (migration, error) {
	found := migration{Engine: dialect.Name, Want: strings.Count(dialect.Schema, "\n"+versionMark)}
	if m.Plan && database.Missing(name) { // looking must not make it
		return found, nil
	}
	_, err := lastword.Open(ctx, db, dialect, opts)
	var schema *lastword.SchemaError
	if errors.As(err, &schema) {
		found.Have = schema.Have
		return found, nil
	}
	found.Have = found.Want
	return found, err
}

func (m migration) String() string {
	have := fmt.Sprintf("tables of version %d", m.Have)
	if m.Have == 0 {
		have = "no tables"
	}
	switch {
	case m.Have == m.Want:
		return have + ", nothing to do"
	case m.Have > m.Want:
		return fmt.Sprintf("%s, which this program (version %d) does not know", have, m.Want)
	case m.Applied:
		return fmt.Sprintf("%s before, version %d now", have, m.Want)
	}
	return fmt.Sprintf("%s, would be brought to version %d (run it without --plan)", have, m.Want)
}

const versionMark = "-- version: "

// print gives the statements that Migrate would run, each version with the row that records it.
func (m *migrateCommand) print(out io.Writer, dialect lastword.Dialect) error {
	versions := strings.Split(dialect.Schema, "\n"+versionMark)[1:]
	if m.From < 0 || m.From > len(versions) {
		return wrongUse("--from %d: versions are 0 to %d", m.From, len(versions))
	}
	for i, text := range versions[m.From:] {
		number, body, _ := strings.Cut(text, "\n")
		body, err := withPrefix(strings.TrimSpace(body), m.Prefix, dialect)
		if err != nil {
			return usage(err)
		}
		record, err := withPrefix(fmt.Sprintf("INSERT INTO lastword_schema (version) VALUES (%d);", m.From+i+1), m.Prefix, dialect)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "-- lastword on %s, version %s. Run each version in one transaction.\n\n%s\n\n%s\n\n", dialect.Name, number, body, record); err != nil {
			return err
		}
	}
	return nil
}

// withPrefix leaves it to the library to say where the prefix stands. Comments are lost on the way.
func withPrefix(text, prefix string, dialect lastword.Dialect) (string, error) {
	if prefix == "" {
		return text, nil
	}
	statements, err := lastword.ParseStatements("-- name: Text\n"+text, prefix, dialect.Placeholder)
	return statements["Text"].Text, err
}
