package pgxlastword

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword-go/lastword"
)

// Exec runs one guarded INSERT, UPDATE or DELETE and returns how many rows it changed; 0 means that nothing matched, while token was in
// force. Guard and write are one statement and one round trip: the guard raises, and the write is undone with it.
//
// A text that cannot be guarded in one statement is refused with [lastword.ErrInvalid]: several statements, one that is not an INSERT,
// UPDATE or DELETE, or one with a RETURNING of its own. Use [Tx] for those. args may begin with pgx's options and be named
// (pgx.NamedArgs, pgx.StrictNamedArgs). Errors are those of Tx; a lost reply is a *[UnknownError] that cannot be resolved.
func Exec(ctx context.Context, s *lastword.Store, db DB, token lastword.Token, sql string, args ...any) (rows int64, err error) {
	if err := check(s, db == nil, token); err != nil {
		return 0, err
	}
	sql, options, values, err := unname(ctx, sql, args)
	if err != nil {
		return 0, err
	}
	text, err := s.GuardedWrite(sql, len(values))
	if err != nil {
		return 0, err
	}
	all := slices.Concat(options, values, []any{secret{token.String()}})
	err = retry(ctx, db, func() (again bool, err error) {
		rows, again, err = execOnce(ctx, s, db, text, all)
		if errors.Is(err, errNotInForce) {
			return refuse(ctx, s, token, "exec")
		}
		return again, err
	})
	return rows, err
}

// unname takes pgx's options off the arguments, and turns named ones into numbered ones: the token is one more.
func unname(ctx context.Context, sql string, args []any) (text string, options, values []any, err error) {
	for n, arg := range args {
		switch arg := arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			continue
		case pgx.NamedArgs:
			text, values, err = arg.RewriteQuery(ctx, nil, sql, args[n+1:])
		case pgx.StrictNamedArgs:
			text, values, err = arg.RewriteQuery(ctx, nil, sql, args[n+1:])
		case pgx.QueryRewriter:
			err = errors.New("a QueryRewriter of another kind")
		default:
			return sql, args[:n], args[n:], nil
		}
		if err != nil {
			return "", nil, nil, invalidf("arguments: %w", err)
		}
		return text, args[:n], values, nil
	}
	return sql, args, nil, nil
}

// execOnce sends the statement, which commits by itself.
func execOnce(ctx context.Context, s *lastword.Store, db DB, text string, args []any) (rows int64, again bool, _ error) {
	conn, release, err := acquire(ctx, db)
	if err != nil {
		return 0, false, err
	}
	defer release()
	err = conn.QueryRow(ctx, text, args...).Scan(&rows, nil)
	if err == nil {
		return rows, false, nil
	}
	switch class := classify(s, err); {
	case class == lastword.Contended:
		return 0, true, err
	case class == lastword.Fenced:
		return 0, false, errNotInForce
	case class == lastword.Answered, !serverSays(err) && !conn.IsClosed(): // else: a value that cannot be encoded, a context that was over
		return 0, false, failed("exec", err)
	case pgconn.SafeToRetry(err) && ctx.Err() == nil:
		return 0, true, fmt.Errorf("lastword: %w: %w: %w", lastword.ErrFailed, errNotBegun, err)
	}
	return 0, false, &UnknownError{Err: err, lost: "the reply to a guarded statement"}
}
