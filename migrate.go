package lastword

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
)

// Migrate makes the library's tables, or brings older ones up to this version, in one transaction. Running it again, or in several
// processes at once, is harmless. A newer schema is a [SchemaError]; any other error means that nothing was changed.
//
// Except on MySQL and MariaDB, where DDL commits by itself: an error, or the end of the process, may leave some of a version's tables
// behind. Its number is recorded after its last statement only, so [Open] refuses what is not whole, and Migrate mends it when
// it runs again. The user that migrates needs the right to make procedures there (CREATE ROUTINE and ALTER ROUTINE).
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
	if err := s.sessionFault(ctx); err != nil {
		return err
	}
	if dialect.SchemaCommits {
		return s.migrateBySession(ctx, versions, prefix)
	}
	return s.transact(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.exec(ctx, tx, "MigrateLock", nil); err != nil {
			return fmt.Errorf("lastword: migrate: lock: %w", err)
		}
		return s.migrate(ctx, tx, versions, prefix)
	})
}

// migrateBySession holds the lock by a session, where a transaction would not last beyond the first statement.
func (s *Store) migrateBySession(ctx context.Context, versions [][]string, prefix string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("lastword: migrate: %w", err)
	}
	defer conn.Close()
	var locked, ignored sql.NullInt64
	if _, err := s.one(ctx, conn, "MigrateLock", nil, &locked); err != nil {
		return fmt.Errorf("lastword: migrate: lock: %w", err)
	}
	if locked.Int64 != 1 {
		return fmt.Errorf("lastword: migrate: another process has been migrating for a minute: %w", ErrContended)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, err := s.one(ctx, conn, "MigrateUnlock", nil, &ignored); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the lock ends with its session
		}
	}()
	return s.migrate(ctx, conn, versions, prefix)
}

func (s *Store) migrate(ctx context.Context, q querier, versions [][]string, prefix string) error {
	have, err := s.schemaVersion(ctx, q)
	if err != nil {
		return err
	}
	if have > len(versions) {
		return &SchemaError{Have: have, Want: len(versions)}
	}
	for i, version := range versions[have:] {
		for _, statement := range version {
			if _, err := q.ExecContext(ctx, withPrefix(statement, prefix)); err != nil {
				return fmt.Errorf("lastword: migrate to version %d: %s: %w", have+i+1, mend(withPrefix(statement, prefix)), err)
			}
		}
		if err := s.exec(ctx, q, "SchemaRecord", Args{"version": have + i + 1}); err != nil {
			return fmt.Errorf("lastword: migrate: record version %d: %w", have+i+1, err)
		}
	}
	return nil
}

// mend names a statement that failed by its first line that is no comment, and what is most often missing.
func mend(statement string) string {
	for line := range strings.Lines(statement) {
		if strings.HasPrefix(line, "--") {
			continue
		}
		line = strings.TrimRight(line, " (\n")
		if strings.Contains(line, " PROCEDURE ") {
			line += " (it needs the rights CREATE ROUTINE and ALTER ROUTINE; run Migrate again when they are granted)"
		}
		return line
	}
	return ""
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
