// Package mysql is lastword's dialect for MySQL 8.0.16 and MariaDB 10.6 and later, through github.com/go-sql-driver/mysql or a
// database/sql driver whose errors have a field Number. It is tested on MariaDB; for MySQL it rests on its manual and source.
//
// Sessions must begin with autocommit on, as they do by default, and speak utf8mb4. The settings clientFoundRows,
// interpolateParams, parseTime and time_zone may be anything. Tables are InnoDB; with binlog_format = STATEMENT the server
// refuses to write under READ COMMITTED, which is what the library's transactions are.
//
// What the library cannot set for one session: with innodb_flush_log_at_trx_commit other than 1 an acknowledged takeover
// can be lost in a crash, and its fence is handed out again. And who waits for a row waits for innodb_lock_wait_timeout, 50 s by
// default, before it is told; 5 to 10 s serve leases better. On MariaDB the server ends a guarded transaction that idles
// beyond the deadline of its context ([lastword.Lease.Tx] has one); MySQL cannot do that, and a process that stands still in
// one holds off a takeover until wait_timeout.
//
// Programs in other languages guard their writes by CALL lastword_guard('…'), first in the transaction; it raises SQLSTATE 45LW1 when the
// token is not in force, and 45LW2 when the text is no token.
//
// A cluster with several writers (Galera, group replication in multi-primary mode) is not supported: there a row lock holds on
// one node only, and the guard is a row lock.
package mysql

import (
	"database/sql"
	_ "embed"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/lastword-go/lastword"
)

//go:embed queries.sql
var queries string

//go:embed schema.sql
var schema string

// Dialect returns the dialect of MySQL and MariaDB. The text is the same for both: where only MariaDB knows something, it stands
// in a comment that only MariaDB reads.
func Dialect() lastword.Dialect {
	return lastword.Dialect{
		Name:            "mysql",
		Queries:         queries,
		Schema:          schema,
		Placeholder:     func(int) string { return "?" },
		Classify:        classify,
		Isolation:       sql.LevelReadCommitted,
		SchemaCommits:   true,
		EndsTransaction: endsTransaction,
		HidesEnd:        hidesEnd,
	}
}

// 1205 lock wait timeout, 1213 deadlock, 1020 changed since last read (MariaDB with innodb_snapshot_isolation), 3572 NOWAIT on
// MySQL (MariaDB says 1205), class 40 of SQLSTATE for what a cluster rolled back. 45LW1 is raised by lastword_guard. 1180 is
// an error in the middle of COMMIT; classes 08 and 70 tell of a connection or a statement that was ended, 2006 and 2013 are
// what clients in C say of one: after them nobody knows what became of a COMMIT.
func classify(err error) lastword.ErrorClass {
	number, state := serverError(err)
	switch {
	case state == "45LW1":
		return lastword.Fenced
	case number == 1205 || number == 1213 || number == 1020 || number == 3572 || strings.HasPrefix(state, "40"):
		return lastword.Contended
	case number == 0 || number == 1180 || number == 2006 || number == 2013 || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "70"):
		return lastword.Unanswered
	}
	return lastword.Answered
}

// serverError finds the server's error number and SQLSTATE in an error; 0 when the server gave none. The driver's *MySQLError has fields
// and no methods, and this module imports no driver: so it is known by its shape. Its text would say the same, but so
// could the text of any other error.
func serverError(err error) (number uint64, state string) {
	if err == nil {
		return 0, ""
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		if field := v.FieldByName("Number"); field.IsValid() && field.CanUint() {
			if s := v.FieldByName("SQLState"); s.IsValid() && s.Type() == reflect.TypeFor[[5]byte]() {
				for i := range s.Len() {
					state += string(rune(s.Index(i).Uint()))
				}
			}
			return field.Uint(), state
		}
	}
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, one := range several.Unwrap() {
			if number, state = serverError(one); number != 0 {
				return number, state
			}
		}
		return 0, ""
	}
	return serverError(errors.Unwrap(err))
}

// committing are the first words of statements that commit by the way, besides those that end a transaction by name.
var committing = []string{
	"ALTER", "ANALYZE", "CACHE", "CHANGE", "CHECK", "CLONE", "FLUSH", "GRANT", "IMPORT", "INSTALL", "LOAD", "LOCK", "OPTIMIZE", "PURGE",
	"RENAME", "REPAIR", "RESET", "RESTART", "REVOKE", "SHUTDOWN", "START", "STOP", "TRUNCATE", "UNINSTALL", "UNLOCK", "XA",
}

// hidesEnd is true of all but the statements of which it is known that neither they, nor a function or trigger of theirs, can
// commit. A semicolon, # or backslash can stand between quotes that the server sees elsewhere than we do.
func hidesEnd(query string) bool {
	query = strings.ToUpper(strings.TrimLeft(query, " \t\r\n("))
	harmless := func(word string) bool { return strings.HasPrefix(query, word) }
	return strings.ContainsAny(query, ";#\\") ||
		!slices.ContainsFunc([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SAVEPOINT", "RELEASE", "ROLLBACK TO", "SHOW", "EXPLAIN"}, harmless)
}

func endsTransaction(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "COMMIT", "END", "BEGIN":
		return true
	case "ROLLBACK":
		return !slices.Contains(words, "TO")
	case "CREATE", "DROP":
		return !slices.Contains(words[:min(4, len(words))], "TEMPORARY") // CREATE OR REPLACE TEMPORARY
	case "SET":
		if i := slices.Index(words, "FOR"); len(words) > 1 && words[1] == "STATEMENT" && i > 0 {
			return endsTransaction(words[i+1:])
		}
		return slices.Contains(words, "AUTOCOMMIT") || len(words) > 1 && slices.Contains([]string{"PASSWORD", "DEFAULT"}, words[1])
	}
	return slices.Contains(committing, words[0])
}
