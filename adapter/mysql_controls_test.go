package adapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	driverofmysql "github.com/go-sql-driver/mysql"

	"github.com/lastword-go/lastword"
)

// The controls of controls_test.go for InnoDB: what is unsafe there, and has to be seen to be so.

func TestControlsUnsafeFormsMySQL(t *testing.T) {
	t.Parallel()
	c := newControl(t, mysqlEngine(t, ""))
	const valid = `SELECT 1 FROM lastword_leases l WHERE l.name = 'job' AND l.fence = ? AND l.leased_until > UTC_TIMESTAMP(3)`
	exists := `UPDATE r SET v = 'STALE' WHERE id = 1 AND EXISTS (` + valid + `)`
	for _, unsafe := range []struct {
		form, query string
		level       sql.IsolationLevel
	}{
		{"UPDATE WHERE EXISTS", exists, sql.LevelReadCommitted}, // above, InnoDB locks what a write reads
		{"check, then UPDATE", "", sql.LevelReadCommitted},
		{"check, then UPDATE", "", sql.LevelRepeatableRead},
	} {
		for _, x := range []string{"X1", "X2"} {
			t.Run(fmt.Sprintf("%s %v %s", unsafe.form, unsafe.level, x), func(t *testing.T) {
				c := *c
				c.T = t
				var fence int64
				c.must(c.b.QueryRowContext(c.ctx, `SELECT fence FROM lastword_leases`).Scan(&fence))
				c.exec(c.b, `UPDATE r SET v = 'before'`)
				c.unsafe(unsafe.level, x, unsafe.query, valid, fence)
			})
		}
	}
}

// leased_until has to be computed in a statement after the lock.
func TestControlsBornExpiredMySQL(t *testing.T) {
	t.Parallel()
	c := newControl(t, mysqlEngine(t, ""))
	c.exec(c.b, `CREATE TABLE mark AS SELECT UTC_TIMESTAMP(3) AS at`)
	c.exec(c.b, `UPDATE lastword_leases SET leased_until = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND`)
	tx, err := c.a.BeginTx(c.ctx, nil)
	c.must(err)
	defer tx.Rollback()
	c.exec(tx, `SELECT 1 FROM lastword_leases WHERE name = 'job' LOCK IN SHARE MODE`) // as a guard that began in time
	done := make(chan error, 1)
	go func() {
		_, err := c.b.ExecContext(c.ctx, `UPDATE lastword_leases SET fence = fence + 1, owner = 'B', leased_until = UTC_TIMESTAMP(3) + INTERVAL 10 SECOND WHERE name = 'job' AND leased_until <= UTC_TIMESTAMP(3)`)
		done <- err
	}()
	for c.waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * time.Millisecond)                    // the clock counts milliseconds
	c.exec(tx, `UPDATE mark SET at = UTC_TIMESTAMP(3)`) // B waits still
	c.must(tx.Commit())
	c.must(<-done)
	var short bool
	c.must(c.b.QueryRowContext(c.ctx, `SELECT fence = 2 AND leased_until < at + INTERVAL 10 SECOND FROM lastword_leases, mark`).Scan(&short))
	if !short {
		t.Error("a takeover in one statement had its whole TTL: the control has lost its sight")
	}
}

// ending is what ends A's transaction without A's doing, and what Store.Tx makes of it.
type ending struct {
	name string
	end  func(c *control, tx *sql.Tx) error // what A's function sees, and swallows
	seen error
	tx   error // what Tx says
}

func endings() []ending {
	return []ending{
		{"deadlock", (*control).deadlock, nil, nil}, // Tx runs the function again
		{"DDL", func(c *control, tx *sql.Tx) error {
			_, err := tx.ExecContext(c.ctx, `CREATE TABLE another (id int)`)
			return err
		}, lastword.ErrInvalid, lastword.ErrInvalid},
		{"DDL in a comment", func(c *control, tx *sql.Tx) error {
			_, err := tx.ExecContext(c.ctx, `/*!40000 TRUNCATE other */`)
			return err
		}, lastword.ErrInvalid, lastword.ErrInvalid},
		{"CALL", func(c *control, tx *sql.Tx) error {
			_, err := tx.ExecContext(c.ctx, `CALL commits()`)
			return err
		}, nil, lastword.ErrUnknown},
		{"EXECUTE", func(c *control, tx *sql.Tx) error {
			if _, err := tx.ExecContext(c.ctx, `PREPARE p FROM 'ALTER TABLE other ADD COLUMN c int'`); err != nil {
				return err
			}
			_, err := tx.ExecContext(c.ctx, `EXECUTE p`)
			return err
		}, nil, lastword.ErrUnknown},
	}
}

// deadlock brings A's transaction into one, of which A is the victim: it has written less than the other.
func (c *control) deadlock(tx *sql.Tx) error {
	other, err := c.b.BeginTx(c.ctx, nil)
	c.must(err)
	defer other.Rollback()
	c.exec(tx, `SELECT id FROM r WHERE id = 2 FOR UPDATE`)
	c.exec(other, `UPDATE other SET v = v + 1`)
	c.exec(other, `UPDATE r SET v = v WHERE id = 3`)
	c.exec(other, `SELECT id FROM r WHERE id = 3 FOR UPDATE`)
	done := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(c.ctx, `SELECT id FROM r WHERE id = 2 FOR UPDATE`)
		done <- err
	}()
	for c.waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err = tx.ExecContext(c.ctx, `SELECT id FROM r WHERE id = 3 FOR UPDATE`)
	c.must(<-done)
	var answer *driverofmysql.MySQLError
	if !errors.As(err, &answer) || answer.Number != 1213 {
		c.Fatalf("no deadlock: %v", err)
	}
	return err
}

func newEndingControl(t *testing.T) *control {
	t.Helper()
	c := newControl(t, mysqlEngine(t, ""))
	for _, query := range []string{
		`INSERT INTO r VALUES (2, 'before'), (3, 'before')`, `CREATE TABLE other (v int NOT NULL)`, `INSERT INTO other VALUES (1), (2), (3), (4), (5), (6), (7), (8)`,
		`CREATE PROCEDURE commits() BEGIN INSERT INTO other VALUES (9); COMMIT; END`,
	} {
		c.exec(c.b, query)
	}
	return c
}

// What ends a transaction leaves a session of MySQL in autocommit: the next statement on the same *sql.Tx stands by itself, unguarded.
func TestControlsEndedTransactionMySQL(t *testing.T) {
	t.Parallel()
	for _, e := range endings() {
		t.Run(e.name+" raw", func(t *testing.T) {
			t.Parallel()
			c := newEndingControl(t)
			tx, err := c.a.BeginTx(c.ctx, nil)
			c.must(err)
			defer tx.Rollback()
			c.must(c.store.Guard(c.ctx, tx, c.token))
			_ = e.end(c, tx)
			overtook, _ := c.takeOver() // the lock is gone
			c.exec(tx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
			c.isStale(e.name, overtook) // before any COMMIT
		})
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s Store.Tx, taken over %v", e.name, taken), func(t *testing.T) {
				t.Parallel()
				c := newEndingControl(t)
				c.endInTx(e, taken)
			})
		}
	}
}

func (c *control) endInTx(e ending, taken bool) {
	c.Helper()
	runs := 0
	var seen, next error
	var takeover chan error
	overtook := true
	err := c.store.Tx(c.ctx, c.token, nil, func(ctx context.Context, tx *sql.Tx) error {
		if runs++; runs > 1 {
			return nil
		}
		c.exec(tx, `UPDATE r SET v = 'first' WHERE id = 2`)
		seen = e.end(c, tx)
		if taken {
			overtook, takeover = c.takeOver()
		}
		_, next = tx.ExecContext(ctx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
		return nil // swallowed
	})
	if e.seen != nil && !errors.Is(seen, e.seen) || next == nil || e.tx != nil && !errors.Is(next, e.tx) {
		c.Errorf("the function saw %v, then %v", seen, next)
	}
	want := e.tx
	if e.name == "deadlock" && taken { // A is rolled back and tries again, too late
		want = lastword.ErrFenced
	}
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		c.Errorf("Tx says %v, want %v", err, want)
	}
	if c.value() != "before" {
		c.Errorf("the row says %s", c.value())
	}
	if !overtook { // it was still guarded
		c.must(<-takeover)
	}
	var first string
	c.must(c.b.QueryRowContext(c.ctx, `SELECT v FROM r WHERE id = 2`).Scan(&first))
	if committed := first == "first"; committed != errors.Is(err, lastword.ErrUnknown) {
		c.Errorf("what ran before the end was committed: %v, Tx says %v", committed, err)
	}
}

// In one text of several statements, a guard that only returns no row does not stop what stands behind it. lastword_guard raises.
func TestControlsPipelineMySQL(t *testing.T) {
	t.Parallel()
	c := newControl(t, mysqlEngine(t, "multiStatements=true&interpolateParams=true"))
	c.takeOver()
	for guard, raises := range map[string]bool{
		`SELECT 1 FROM lastword_leases WHERE CONCAT('lease/', name, '@', fence, '.', owner) = ? LOCK IN SHARE MODE`: false,
		`CALL lastword_guard(?)`: true,
	} {
		c.exec(c.b, `UPDATE r SET v = 'before'`)
		_, err := c.a.ExecContext(c.ctx, `BEGIN; `+guard+`; UPDATE r SET v = 'STALE' WHERE id = 1; COMMIT`, c.token.String())
		if !raises {
			c.must(err)
			c.isStale("pipelined guard that returns no row", true)
			continue
		}
		var refused *driverofmysql.MySQLError
		if !errors.As(err, &refused) || string(refused.SQLState[:]) != "45LW1" || c.value() != "before" {
			t.Errorf("lastword_guard in a pipeline: %v, the row says %s", err, c.value())
		}
		if refused != nil && strings.Contains(refused.Error(), c.token.Nonce[:7]) {
			t.Errorf("the error shows the nonce: %v", refused)
		}
	}
}

// A rollback to a savepoint gives back the locks that were taken after it, the guard's as well.
func TestControlsSavepointMySQL(t *testing.T) {
	t.Parallel()
	c := newControl(t, mysqlEngine(t, ""))
	tx, err := c.a.BeginTx(c.ctx, nil)
	c.must(err)
	defer tx.Rollback()
	c.exec(tx, `SAVEPOINT s`)
	c.must(c.store.Guard(c.ctx, tx, c.token))
	c.exec(tx, `ROLLBACK TO s`)
	overtook, _ := c.takeOver()
	c.exec(tx, `UPDATE r SET v = 'STALE' WHERE id = 1`)
	c.must(tx.Commit())
	c.isStale("guard inside of a savepoint", overtook)
}
