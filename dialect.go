package lastword

import "database/sql"

// Dialect is what the library knows of one engine. The packages postgres, mysql and sqlite have one each; the logic that runs the
// statements exists once.
//
// To add an engine: write its schema.sql and its queries.sql with the same sections in the same order, its placeholder and its
// error classes, then run the conformance tests on a real server.
type Dialect struct {
	Name        string
	Queries     string                 // the text of queries.sql, read by ParseStatements
	Schema      string                 // the text of schema.sql: "-- version: N" sections, statements ended by ";" and an empty line
	Placeholder func(n int) string     // the n-th placeholder, counted from 1
	Classify    func(error) ErrorClass // what an error of the driver says
	Isolation   sql.IsolationLevel     // of transactions that the caller gave no options for

	// SchemaCommits: each statement of Schema commits by itself, whatever transaction it stands in. Each must then do no harm when it
	// is run again.
	SchemaCommits bool

	// SingleWriter: only one transaction can write at a time, and waiters are not served in order. The library then queues its
	// own writers in the process.
	SingleWriter bool

	// EndsTransaction reports whether a statement, given as its words in upper case, ends a transaction or commits it by the way.
	// Such statements are refused inside a guarded transaction.
	EndsTransaction func(words []string) bool

	// HidesEnd reports whether a statement may end a transaction in a way that its text does not show, such as a CALL. The section
	// TxMark then runs before it, and TxMarked after it, which fails where the transaction has ended. nil: none can.
	HidesEnd func(query string) bool
}

// ErrorClass is what an error of a driver says about the statement that gave it.
type ErrorClass int

const (
	// Unanswered: it is not known that the server answered; a COMMIT may have happened.
	Unanswered ErrorClass = iota
	// Answered: the server said no, and the statement did nothing.
	Answered
	// Contended: the server gave up on a lock or found a conflict, and did nothing. Trying again in a new transaction is sound.
	Contended
	// Fenced: lastword_guard raised.
	Fenced
)

func (c ErrorClass) String() string {
	return [...]string{"unanswered", "answered", "contended", "fenced"}[c]
}
