// Package sqlite is lastword's dialect for SQLite 3.42 and later, through a database/sql driver whose errors have a method
// Code() int (modernc.org/sqlite has). Open the database with a busy timeout, journal_mode WAL and synchronous FULL: with
// NORMAL an acknowledged takeover can be lost when the machine loses power.
package sqlite

import (
	_ "embed"
	"errors"
	"slices"

	"github.com/lastword-go/lastword"
)

//go:embed queries.sql
var queries string

//go:embed schema.sql
var schema string

// Dialect returns the dialect of SQLite.
func Dialect() lastword.Dialect {
	return lastword.Dialect{
		Name:            "sqlite",
		Queries:         queries,
		Schema:          schema,
		Placeholder:     func(int) string { return "?" },
		Classify:        classify,
		SingleWriter:    true,
		EndsTransaction: endsTransaction,
	}
}

// The low byte is the primary code: 5 busy (517 is busy with an old snapshot), 6 locked. 10 is an I/O error: what it left of a
// COMMIT is not known.
func classify(err error) lastword.ErrorClass {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return lastword.Unanswered
	}
	switch coded.Code() & 0xff {
	case 5, 6:
		return lastword.Contended
	case 10:
		return lastword.Unanswered
	}
	return lastword.Answered
}

// ATTACH and PRAGMA are refused by SQLite itself inside a transaction, or change nothing of it.
func endsTransaction(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "COMMIT", "END", "BEGIN":
		return true
	case "ROLLBACK":
		return !slices.Contains(words, "TO")
	}
	return false
}
