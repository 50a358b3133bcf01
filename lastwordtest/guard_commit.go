package lastwordtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/lastword-go/lastword"
)

// breakable is a connector whose transactions can lose the reply of COMMIT, or have it answered with an error.
type breakable struct {
	driver.Connector
	commits atomic.Int64
	// lose: commit, then say that the connection died. refuse: roll back and answer.
	lose, refuse atomic.Bool
	answer       error
}

func (b *breakable) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := b.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &breakableConn{Conn: conn, b: b}, nil
}

// breakableConn passes everything through; the drivers have all of these.
type breakableConn struct {
	driver.Conn
	b *breakable
}

func (c *breakableConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &breakableTx{Tx: tx, b: c.b}, nil
}

func (c *breakableConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *breakableConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *breakableConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type breakableTx struct {
	driver.Tx
	b *breakable
}

func (t *breakableTx) Commit() error {
	t.b.commits.Add(1)
	switch {
	case t.b.refuse.Load():
		_ = t.Rollback()
		return t.b.answer
	case t.b.lose.Load():
		return errors.Join(errors.New("connection reset by peer"), t.Tx.Commit())
	}
	return t.Tx.Commit()
}

func lostCommit(w *world) {
	b := &breakable{Connector: w.engine.Connector}
	s := w.open(openDB(w.T, b), "breakable")
	name, id := w.name(), w.next()*10
	l := w.acquire(s, name)
	kind := w.kind()
	w.submit(kind, "x")
	a := w.claim(s, kind)
	before := b.commits.Load()
	b.lose.Store(true)
	runs := 0
	err := l.Tx(w.ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		runs++
		return w.insert(ctx, tx, id)
	})
	w.want(err, lastword.ErrUnknown, "a lost reply")
	if commits := b.commits.Load() - before; runs != 1 || commits != 1 {
		w.Errorf("%d runs, %d commits: an unknown outcome is not tried again", runs, commits)
	}
	if w.written(id) != 1 {
		w.Error("the test's connector has not committed")
	}
	// A task's result whose reply was lost is found again: completing once more is a success.
	w.want(a.Complete(w.ctx, "done", nil), lastword.ErrUnknown, "complete with a lost reply")
	b.lose.Store(false)
	w.want(a.Complete(w.ctx, "done", nil), nil, "complete again with the same result")
	w.want(a.Complete(w.ctx, "other", nil), lastword.ErrFenced, "complete again with another result")
	w.cell()
}

func failedCommit(w *world) {
	b := &breakable{Connector: w.engine.Connector}
	s := w.open(openDB(w.T, b), "breakable")
	name, id := w.name(), w.next()*10
	l := w.acquire(s, name)
	_, b.answer = w.db.ExecContext(w.ctx, `NONSENSE`) // an answer of the server, in the driver's own words
	b.refuse.Store(true)
	runs := 0
	err := l.Tx(w.ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		runs++
		return w.insert(ctx, tx, id)
	})
	w.want(err, lastword.ErrFailed, "a refused COMMIT")
	if errors.Is(err, lastword.ErrUnknown) || runs != 1 || w.written(id) != 0 {
		w.Errorf("%v after %d runs, %d rows were committed", err, runs, w.written(id))
	}
	w.cell()
}
