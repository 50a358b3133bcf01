package lastword

import (
	"context"
	"errors"
	"strings"
)

// What stands here is for packages that guard the transactions of a driver's own interface, beside database/sql, such as adapter/pgx: they
// send the guard themselves, and leave the reading of SQL texts and the verdict on a refused token to the Store.

// GuardedWrite returns the statement that [Store.Exec] would send for query, which has so many placeholders: guard and write in
// one. The text of [Token.String] is one value more, the last; the one row of the result has the number of rows written, and
// one column to be ignored. A query that Exec refuses, and any on an engine without such a statement, is [ErrInvalid].
func (s *Store) GuardedWrite(query string, placeholders int) (string, error) {
	if err := validateWrite(query); err != nil {
		return "", err
	}
	form := s.statements["GuardedWrite"]
	if form.Empty() {
		return "", invalidf("on %s guard and write are not one statement: use Tx", s.dialect.Name)
	}
	return strings.NewReplacer("{statement}", strings.TrimRight(query, "; \t\r\n"), "{token}", s.dialect.Placeholder(placeholders+1)).Replace(form.Text), nil
}

// Admit returns an error that matches [ErrInvalid] when query has a statement that would end a guarded transaction. It only reads the
// text.
func (s *Store) Admit(query string) error {
	for _, words := range append(sqlWords(query), sqlMisread(query)...) {
		if s.dialect.EndsTransaction(words) {
			return invalidf("%s would end the guarded transaction; return from the function instead", strings.Join(words[:min(2, len(words))], " "))
		}
	}
	return nil
}

// Refuse says why t is not in force, after operation was refused with it and the transaction has ended: it asks the database, counts and
// records the refusal, and returns a [RefusedError]. nil means that t is in force after all: a guard that found otherwise had
// an old snapshot and should be tried again in a new transaction. Any other error says that the database could not be asked.
func (s *Store) Refuse(ctx context.Context, t Token, operation string) error {
	if err := t.validate(); err != nil {
		return err
	}
	err := s.refusal(ctx, s.db, t, operation)
	if errors.Is(err, errLookAgain) {
		return nil
	}
	return s.refused(err)
}
