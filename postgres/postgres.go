// Package postgres is lastword's dialect for PostgreSQL 12 and later, through any database/sql driver whose errors have a method
// SQLState() string (pgx and lib/pq do).
package postgres

import (
	"database/sql"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/lastword-go/lastword"
)

//go:embed queries.sql
var queries string

//go:embed schema.sql
var schema string

// Dialect returns the dialect of PostgreSQL.
func Dialect() lastword.Dialect {
	return lastword.Dialect{
		Name:            "postgres",
		Queries:         queries,
		Schema:          schema,
		Placeholder:     func(n int) string { return "$" + strconv.Itoa(n) },
		Classify:        classify,
		Isolation:       sql.LevelReadCommitted,
		EndsTransaction: endsTransaction,
	}
}

// 40001 serialization failure, 40P01 deadlock, 55P03 lock not available; LW001 is raised by lastword_guard. Class 08 and 57P0x
// tell of a connection that went away: after them nobody knows what became of a COMMIT.
func classify(err error) lastword.ErrorClass {
	var state interface{ SQLState() string }
	if !errors.As(err, &state) {
		// pgx says this without an SQLSTATE when the server answered COMMIT with ROLLBACK.
		if err.Error() == "commit unexpectedly resulted in rollback" {
			return lastword.Answered
		}
		return lastword.Unanswered
	}
	switch code := state.SQLState(); {
	case code == "LW001":
		return lastword.Fenced
	case code == "40001" || code == "40P01" || code == "55P03":
		return lastword.Contended
	case code == "" || code == "40003" || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P0"):
		return lastword.Unanswered
	}
	return lastword.Answered
}

// DDL is transactional on PostgreSQL and may stand in a guarded transaction.
func endsTransaction(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "COMMIT", "END", "ABORT", "BEGIN", "START":
		return true
	case "ROLLBACK":
		return !slices.Contains(words, "TO")
	case "PREPARE":
		return len(words) > 1 && words[1] == "TRANSACTION"
	}
	return false
}
