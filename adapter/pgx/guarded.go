package pgxlastword

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastword-go/lastword"
)

// What the server last said of the connection's transaction.
const (
	idle    byte = 'I' // there is none
	open    byte = 'T'
	inError byte = 'E'
	gone    byte = 0 // the connection is closed
)

// transaction is one guarded transaction of ours.
type transaction struct {
	store          *lastword.Store
	conn           *pgx.Conn
	tx             pgx.Tx
	xid            int64
	failure        error // the last error of a statement that the server did not give for one before it
	misuse         error // the first statement that was refused here
	rolledBackByFn bool
	stateThen      byte // before that rollback
}

func (t *transaction) state() byte {
	if t.conn.IsClosed() {
		return gone
	}
	return t.conn.PgConn().TxStatus()
}

// admit refuses what would end the transaction, and everything after it has ended.
func (t *transaction) admit(sql string) error {
	err := t.misuse
	switch {
	case err != nil || t.rolledBackByFn: // pgx refuses after the rollback
	case t.state() == idle:
		err = t.endedUnseen()
	default:
		err = t.store.Admit(sql)
	}
	t.misuse = err
	return err
}

const inFailedTransaction = "25P02"

// note remembers what aborted the transaction. Whether it is aborted in the end is for the server to say: a savepoint may have forgiven it.
func (t *transaction) note(err error) error {
	var answer *pgconn.PgError
	switch {
	case err == nil:
	case errors.As(err, &answer):
		if answer.Code != inFailedTransaction {
			t.failure = err
		}
	case t.failure == nil && t.conn.IsClosed():
		t.failure = err
	}
	return err
}

func (t *transaction) cause() error {
	if t.failure == nil {
		return errors.New("it is not known which")
	}
	return t.failure
}

// guardedTx is the pgx.Tx that the function of Tx gets: the transaction, or a savepoint in it. All methods are written out, so that
// one that pgx adds does not pass by here unseen.
type guardedTx struct {
	inner  pgx.Tx
	in     *transaction
	nested bool
}

func (g *guardedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := g.in.admit(""); err != nil {
		return nil, err
	}
	inner, err := g.inner.Begin(ctx)
	if g.in.note(err) != nil {
		return nil, err
	}
	return &guardedTx{inner: inner, in: g.in, nested: true}, nil
}

// Commit releases a savepoint. The transaction itself is committed by Tx.
func (g *guardedTx) Commit(ctx context.Context) error {
	if g.nested {
		if err := g.in.admit(""); err != nil {
			return err
		}
		return g.in.note(g.inner.Commit(ctx))
	}
	if g.in.rolledBackByFn {
		return pgx.ErrTxClosed
	}
	if g.in.misuse == nil {
		g.in.misuse = invalidf("Commit would end the guarded transaction; return from the function instead")
	}
	return g.in.misuse
}

func (g *guardedTx) Rollback(ctx context.Context) error {
	if state := g.in.state(); !g.nested && !g.in.rolledBackByFn && state != idle {
		g.in.rolledBackByFn, g.in.stateThen = true, state
	}
	return g.inner.Rollback(ctx)
}

func (g *guardedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := g.in.admit(""); err != nil {
		return 0, err
	}
	n, err := g.inner.CopyFrom(ctx, table, columns, source)
	return n, g.in.note(err)
}

func (g *guardedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, query := range b.QueuedQueries {
		if err := g.in.admit(query.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	return &guardedBatch{BatchResults: g.inner.SendBatch(ctx, b), in: g.in}
}

// LargeObjects are not watched; the server's word on the transaction is heard all the same.
func (g *guardedTx) LargeObjects() pgx.LargeObjects { return g.inner.LargeObjects() }

func (g *guardedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := g.in.admit(sql); err != nil {
		return nil, err
	}
	description, err := g.inner.Prepare(ctx, name, sql)
	return description, g.in.note(err)
}

func (g *guardedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := g.in.admit(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := g.inner.Exec(ctx, sql, args...)
	return tag, g.in.note(err)
}

func (g *guardedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := g.in.admit(sql); err != nil {
		return refusedRows(err), err
	}
	rows, err := g.inner.Query(ctx, sql, args...)
	return &guardedRows{Rows: rows, in: g.in}, g.in.note(err)
}

func (g *guardedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := g.in.admit(sql); err != nil {
		return refusedRow{err}
	}
	return &guardedRow{Row: g.inner.QueryRow(ctx, sql, args...), in: g.in}
}

func (g *guardedTx) Conn() *pgx.Conn { return g.inner.Conn() }

// guardedRows note the error that comes after the last row.
type guardedRows struct {
	pgx.Rows
	in *transaction
}

func (r *guardedRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		_ = r.in.note(r.Err())
	}
	return more
}

func (r *guardedRows) Close() {
	r.Rows.Close()
	_ = r.in.note(r.Err())
}

type guardedRow struct {
	pgx.Row
	in *transaction
}

func (r *guardedRow) Scan(dest ...any) error { return r.in.note(r.Row.Scan(dest...)) }

type guardedBatch struct {
	pgx.BatchResults
	in *transaction
}

func (b *guardedBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, b.in.note(err)
}

func (b *guardedBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	return &guardedRows{Rows: rows, in: b.in}, b.in.note(err)
}

func (b *guardedBatch) QueryRow() pgx.Row {
	return &guardedRow{Row: b.BatchResults.QueryRow(), in: b.in}
}

func (b *guardedBatch) Close() error { return b.in.note(b.BatchResults.Close()) }

// refusedRows are the rows of a statement that was not sent. Only pgx can make some; those of a failed batch are such.
func refusedRows(err error) pgx.Rows {
	rows, _ := pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	return rows
}

type refusedRow struct{ err error }

func (r refusedRow) Scan(...any) error { return r.err }
