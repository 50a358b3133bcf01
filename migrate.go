package lastword

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// Migrate makes the library's tables, or brings older ones up to this version, in one transaction. Running it again, or in several
// processes at once, is harmless. A newer schema is a [SchemaError]; any other error means that nothing was changed.
func Migrate(ctx context.Context, db *sql.DB, dialect Dialect, opts *Options) error {
	s, err := newStore(db, dialect, opts)
	if err != nil {
		return err
	}
	versions, err := schemaVersions(dialect.Schema)
	if err != nil {
		return err
	}
	prefix := defaultPrefix
	if opts != nil && opts.Prefix != "" {
		prefix = opts.Prefix
	}
	return s.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.exec(ctx, tx, "MigrateLock", nil); err != nil {
			return fmt.Errorf("lastword: migrate: lock: %w", err)
		}
		have, err := s.schemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		if have > len(versions) {
			return &SchemaError{Have: have, Want: len(versions)}
		}
		for i, version := range versions[have:] {
			for _, statement := range version {
				if _, err := tx.ExecContext(ctx, withPrefix(statement, prefix)); err != nil {
					return fmt.Errorf("lastword: migrate to version %d: %w", have+i+1, err)
				}
			}
			if err := s.exec(ctx, tx, "SchemaRecord", Args{"version": have + i + 1}); err != nil {
				return fmt.Errorf("lastword: migrate: record version %d: %w", have+i+1, err)
			}
		}
		return nil
	})
}

func (s *Store) schemaVersion(ctx context.Context, q querier) (int, error) {
	var tables, version int
	if _, err := s.one(ctx, q, "SchemaExists", nil, &tables); err != nil {
		return 0, fmt.Errorf("lastword: look for the tables: %w", err)
	}
	if tables == 0 {
		return 0, nil
	}
	if _, err := s.one(ctx, q, "SchemaVersion", nil, &version); err != nil {
		return 0, fmt.Errorf("lastword: read the schema's version: %w", err)
	}
	return version, nil
}

// schemaVersions cuts a schema.sql into its versions, and each into statements.
func schemaVersions(schema string) ([][]string, error) {
	var versions [][]string
	for i, section := range strings.Split(schema, "\n-- version: ")[1:] {
		number, body, _ := strings.Cut(section, "\n")
		if strings.TrimSpace(number) != strconv.Itoa(i+1) {
			return nil, fmt.Errorf("lastword: schema.sql has version %q where %d is next", number, i+1)
		}
		var statements []string
		for _, statement := range strings.Split(body, ";\n\n") {
			if strings.TrimSpace(statement) != "" {
				statements = append(statements, strings.TrimSpace(statement))
			}
		}
		versions = append(versions, statements)
	}
	return versions, nil
}
