package lastword

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// pinned is one connection of the caller's pool for the length of one transaction of ours. It stands between *sql.Tx and the driver
// to hold what no *sql.Tx can: after any error only a rollback is let through, and no statement may end the transaction by
// itself. Without it, an error that the caller swallows leaves some engines in autocommit, and the next statement on the same
// *sql.Tx is committed on its own, unguarded.
type pinned struct {
	conn    driver.Conn
	admits  func(query string) error // refuses what would end the transaction
	hides   func(query string) bool  // nil: no statement does
	mark    string                   // sets a mark that ends with the transaction
	marked  string                   // fails where the mark has ended
	suspect bool                     // the mark is set, and a statement has run that may have ended the transaction
	taken   bool
	failure error // the first error of a statement
	ended   error // a statement has ended the transaction, or may have
	broken  bool  // the connection must not go back to the pool
}

var errPinned = errors.New("lastword: the connection of this transaction is gone")

// Connect implements driver.Connector: the one connection, once.
func (p *pinned) Connect(context.Context) (driver.Conn, error) {
	if p.taken {
		return nil, errPinned
	}
	p.taken = true
	return p, nil
}

func (p *pinned) Driver() driver.Driver { return pinnedDriver{} }

type pinnedDriver struct{}

func (pinnedDriver) Open(string) (driver.Conn, error) { return nil, errPinned }

// Close does nothing: the pool of the caller owns the connection.
func (p *pinned) Close() error { return nil }

func (p *pinned) Begin() (driver.Tx, error) { return nil, errPinned }

func (p *pinned) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	beginner, ok := p.conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("lastword: the driver's connections have no BeginTx")
	}
	return beginner.BeginTx(ctx, opts)
}

// tell sends a statement that is about the session, outside of the transaction; "" is none.
func (p *pinned) tell(ctx context.Context, query string) error {
	if query == "" {
		return nil
	}
	execer, ok := p.conn.(driver.ExecerContext)
	if !ok {
		return errors.New("lastword: the driver's connections have no ExecContext")
	}
	_, err := execer.ExecContext(ctx, query, nil)
	return err
}

// runs admits a statement that is about to run, and sets the mark where it may end the transaction unseen.
func (p *pinned) runs(ctx context.Context, query string) error {
	if err := p.admit(ctx, query); err != nil {
		return err
	}
	if p.hides == nil || !p.hides(query) {
		return nil
	}
	if err := p.tell(ctx, p.mark); err != nil {
		return p.note(err)
	}
	p.suspect = true
	return nil
}

// stillBegun looks for the mark before anything else happens: later, an error that rolls back could have taken it as well.
func (p *pinned) stillBegun(ctx context.Context) error {
	if !p.suspect {
		return nil
	}
	p.suspect = false
	if err := p.tell(ctx, p.marked); err != nil {
		p.ended = fmt.Errorf("lastword: %w: a statement has ended the transaction; what ran before that is committed, what ran after it is rolled back: %w", ErrUnknown, err)
	}
	return p.note(p.ended)
}

// admit refuses what must not run any more, and what must never run here.
func (p *pinned) admit(ctx context.Context, query string) error {
	if p.failure != nil {
		return fmt.Errorf("lastword: after an error in a guarded transaction only a rollback is allowed: %w", p.failure)
	}
	if err := p.stillBegun(ctx); err != nil {
		return err
	}
	return p.note(p.admits(query))
}

func (p *pinned) note(err error) error {
	if err != nil && p.failure == nil && !errors.Is(err, driver.ErrSkip) {
		p.failure = err
	}
	return err
}

func (p *pinned) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	execer, ok := p.conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := p.runs(ctx, query); err != nil {
		return nil, err
	}
	result, err := execer.ExecContext(ctx, query, args)
	return result, p.note(err)
}

func (p *pinned) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	queryer, ok := p.conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := p.runs(ctx, query); err != nil {
		return nil, err
	}
	rows, err := queryer.QueryContext(ctx, query, args)
	if p.note(err) != nil {
		return nil, err
	}
	return &pinnedRows{Rows: rows, pinned: p}, nil
}

func (p *pinned) Prepare(query string) (driver.Stmt, error) {
	return p.PrepareContext(context.Background(), query)
}

func (p *pinned) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := p.admit(ctx, query); err != nil {
		return nil, err
	}
	var stmt driver.Stmt
	var err error
	if preparer, ok := p.conn.(driver.ConnPrepareContext); ok {
		stmt, err = preparer.PrepareContext(ctx, query)
	} else {
		stmt, err = p.conn.Prepare(query)
	}
	if p.note(err) != nil {
		return nil, err
	}
	return &pinnedStmt{Stmt: stmt, pinned: p, query: query}, nil
}

// CheckNamedValue lets the driver convert its own argument types; ErrSkip asks database/sql to do it.
func (p *pinned) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := p.conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type pinnedStmt struct {
	driver.Stmt
	pinned *pinned
	query  string
}

func (s *pinnedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.pinned.runs(ctx, s.query); err != nil {
		return nil, err
	}
	execer, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, s.pinned.note(errors.New("lastword: the driver's statements have no ExecContext"))
	}
	result, err := execer.ExecContext(ctx, args)
	return result, s.pinned.note(err)
}

func (s *pinnedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.pinned.runs(ctx, s.query); err != nil {
		return nil, err
	}
	queryer, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, s.pinned.note(errors.New("lastword: the driver's statements have no QueryContext"))
	}
	rows, err := queryer.QueryContext(ctx, args)
	if s.pinned.note(err) != nil {
		return nil, err
	}
	return &pinnedRows{Rows: rows, pinned: s.pinned}, nil
}

func (s *pinnedStmt) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return s.pinned.CheckNamedValue(v)
}

// pinnedRows notes errors that come with the rows. What a driver's rows do not offer is answered as database/sql answers it.
type pinnedRows struct {
	driver.Rows
	pinned *pinned
}

func (r *pinnedRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if !errors.Is(err, io.EOF) {
		_ = r.pinned.note(err)
	}
	return err
}

func (r *pinnedRows) HasNextResultSet() bool {
	sets, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && sets.HasNextResultSet()
}

func (r *pinnedRows) NextResultSet() error {
	sets, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	err := sets.NextResultSet()
	if !errors.Is(err, io.EOF) {
		_ = r.pinned.note(err)
	}
	return err
}

func (r *pinnedRows) ColumnTypeScanType(i int) reflect.Type {
	if rows, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return rows.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *pinnedRows) ColumnTypeDatabaseTypeName(i int) string {
	if rows, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return rows.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *pinnedRows) ColumnTypeLength(i int) (int64, bool) {
	if rows, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return rows.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *pinnedRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if rows, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return rows.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *pinnedRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if rows, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return rows.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
