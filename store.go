package lastword

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

const defaultPrefix = "lastword_"

// Options of a [Store]. A nil *Options is ready for use.
type Options struct {
	// Prefix of the names of our tables, indexes and functions; "" is "lastword_". With a dot at its end it is a schema of
	// PostgreSQL or a database of MySQL, which must be there: "jobs." Letters, digits and _ only, no digit first, and besides the dot.
	Prefix string
	// Holder says who this process is, for people who ask who holds a lease. "" is host and process id.
	Holder string
	// Log gets what nobody is there to be told by an error; nil discards it.
	Log *slog.Logger
	// Observer is told what happens; nil is nobody.
	Observer Observer
}

// Store is the library on one database. It is safe for use by several goroutines. The *sql.DB stays the caller's: the Store never closes it.
type Store struct {
	db         *sql.DB
	dialect    Dialect
	statements Statements
	holder     string
	log        *slog.Logger
	writer     chan struct{} // nil where the engine has more than one writer
	refusals   refusalLog
	observer   Observer
	turns      turns
}

// Open prepares a Store on a database whose tables [Migrate] has made. It returns a [SchemaError] when they are missing, older
// or newer.
func Open(ctx context.Context, db *sql.DB, dialect Dialect, opts *Options) (*Store, error) {
	s, err := newStore(db, dialect, opts)
	if err != nil {
		return nil, err
	}
	if err := s.sessionFault(ctx); err != nil {
		return nil, err
	}
	have, err := s.schemaVersion(ctx, db)
	if err != nil {
		return nil, err
	}
	versions, err := schemaVersions(dialect.Schema)
	if err != nil {
		return nil, err
	}
	if want := len(versions); have != want {
		return nil, &SchemaError{Have: have, Want: want}
	}
	return s, nil
}

// sessionFault asks whether the sessions of this database are such that the library cannot work with them.
func (s *Store) sessionFault(ctx context.Context) error {
	if s.statement("SessionFault").Empty() {
		return nil
	}
	var fault string
	found, err := s.one(ctx, s.db, "SessionFault", nil, &fault)
	if err != nil {
		return fmt.Errorf("lastword: ask for the session's settings: %w", err)
	}
	if found {
		return invalidf("%s, as this *sql.DB opens them", fault)
	}
	return nil
}

func newStore(db *sql.DB, dialect Dialect, opts *Options) (*Store, error) {
	if db == nil {
		return nil, invalidf("the *sql.DB is nil")
	}
	if opts == nil {
		opts = &Options{}
	}
	if err := validatePrefix(opts.Prefix); err != nil {
		return nil, err
	}
	statements, err := ParseStatements(dialect.Queries, opts.Prefix, dialect.Placeholder)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, dialect: dialect, statements: statements, holder: opts.Holder, log: opts.Log, observer: opts.Observer}
	if s.holder == "" {
		host, _ := os.Hostname()
		s.holder = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if dialect.SingleWriter {
		s.writer = make(chan struct{}, 1)
	}
	s.refusals.store = s
	return s, nil
}

// validatePrefix admits what stands in SQL without quotes.
func validatePrefix(prefix string) error {
	name, _ := strings.CutSuffix(prefix, ".")
	for i, c := range []byte(name) {
		if !isWordByte(c) || i == 0 && '0' <= c && c <= '9' {
			return invalidf("prefix %q: letters, digits and _ are allowed, no digit first, and a dot at the end", prefix)
		}
	}
	if prefix == "." {
		return invalidf("prefix %q names no schema", prefix)
	}
	return nil
}

// DB returns the caller's database.
func (s *Store) DB() *sql.DB { return s.db }

// Dialect returns the dialect that the Store was opened with.
func (s *Store) Dialect() Dialect { return s.dialect }

// Holder returns who this process is, as others see it.
func (s *Store) Holder() string { return s.holder }

// Bind returns one statement of the dialect's queries.sql with its values, for packages that build on the library's own tables. Of a
// section of several it is the first: see [Store.QueryRow]. It panics when there is no such section or a value is missing.
func (s *Store) Bind(name string, args Args) (query string, values []any) {
	statement := s.statement(name)
	return statement.Text, statement.Bind(args)
}

func (s *Store) statement(name string) Statement {
	statement, ok := s.statements[name]
	if !ok {
		panic(fmt.Sprintf("lastword: dialect %s has no statement %q", s.dialect.Name, name))
	}
	return statement
}

// querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// QueryRow runs one section of the dialect's queries.sql, each of its statements, and scans its row into dest; no row is found = false. It is
// for packages that build on the library's own tables. q is a *sql.DB, *sql.Conn or *sql.Tx; a section of several statements
// needs the last. It panics as [Store.Bind] does.
func (s *Store) QueryRow(ctx context.Context, q querier, name string, args Args, dest ...any) (found bool, err error) {
	return s.one(ctx, q, name, args, dest...)
}

// one runs a section that returns at most one row. Zero rows is found = false, no error.
func (s *Store) one(ctx context.Context, q querier, name string, args Args, dest ...any) (found bool, err error) {
	statement := s.statement(name)
	returns := statement.Then == nil || statement.last().isSelect()
	for ; ; statement = *statement.Then {
		values := statement.Bind(args)
		if statement.isSelect() || statement.Then == nil && returns {
			err = q.QueryRowContext(ctx, statement.Text, values...).Scan(dest...)
		} else {
			_, err = q.ExecContext(ctx, statement.Text, values...)
		}
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		if err != nil || statement.Then == nil {
			return err == nil, err
		}
	}
}

func (s *Store) exec(ctx context.Context, q querier, name string, args Args) error {
	query, values := s.Bind(name, args)
	if query == "" {
		return nil
	}
	_, err := q.ExecContext(ctx, query, values...)
	return err
}

// all runs a section and calls scan for each row of its last statement; those before it return none.
func (s *Store) all(ctx context.Context, q querier, name string, args Args, scan func(scan func(dest ...any) error) error) error {
	statement := s.statement(name)
	for ; statement.Then != nil; statement = *statement.Then {
		if _, err := q.ExecContext(ctx, statement.Text, statement.Bind(args)...); err != nil {
			return err
		}
	}
	rows, err := q.QueryContext(ctx, statement.Text, statement.Bind(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
