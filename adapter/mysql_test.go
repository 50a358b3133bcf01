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
	"github.com/lastword-go/lastword/mysql"
)

// openMySQL opens a fresh database with settings of the DSN.
func openMySQL(t *testing.T, settings ...string) (*sql.DB, *lastword.Store) {
	t.Helper()
	db := sql.OpenDB(mysqlConnector(t, newMySQL(t), settings...))
	t.Cleanup(func() { _ = db.Close() })
	if err := lastword.Migrate(t.Context(), db, mysql.Dialect(), nil); err != nil {
		t.Fatal(err)
	}
	s, err := lastword.Open(t.Context(), db, mysql.Dialect(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

func mysqlExec(t *testing.T, db execer, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Each statement of a migration commits by itself: one that ended anywhere is mended by the next.
func TestMySQLMigrateGoesOn(t *testing.T) {
	t.Parallel()
	whole := mysql.Dialect()
	statements := strings.SplitAfter(whole.Schema, ";\n\n")
	for n := 1; n < len(statements); n++ {
		db := sql.OpenDB(mysqlConnector(t, newMySQL(t)))
		defer db.Close()
		broken := whole
		broken.Schema = strings.Join(statements[:n], "") + "-- Why.\nBROKEN STATEMENT (\n\tx);\n\n"
		err := lastword.Migrate(t.Context(), db, broken, nil)
		if err == nil || !strings.Contains(err.Error(), "version 1: BROKEN STATEMENT: Error 1064") {
			t.Fatalf("after %d statements: %v", n, err)
		}
		var schema *lastword.SchemaError
		if _, err = lastword.Open(t.Context(), db, whole, nil); !errors.As(err, &schema) || schema.Have != 0 {
			t.Errorf("open after %d statements: %v", n, err)
		}
		if err = lastword.Migrate(t.Context(), db, whole, nil); err != nil {
			t.Errorf("again after %d statements: %v", n, err)
		}
		if _, err = lastword.Open(t.Context(), db, whole, nil); err != nil {
			t.Errorf("open at last: %v", err)
		}
	}
}

// A user that may not make procedures is told which statement it was; with the right, the same call goes on.
func TestMySQLMigrateWithoutRoutines(t *testing.T) {
	t.Parallel()
	dsn := newMySQL(t)
	config, err := driverofmysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	root := sql.OpenDB(mysqlConnector(t, dsn))
	defer root.Close()
	user := strings.ToLower(config.DBName[len(config.DBName)-12:])
	mysqlExec(t, root, `CREATE USER `+user+`@'%'`)
	defer func() { _, _ = root.ExecContext(context.Background(), `DROP USER `+user+`@'%'`) }()
	mysqlExec(t, root, `GRANT CREATE, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON `+config.DBName+`.* TO `+user+`@'%'`)
	config.User, config.Passwd = user, ""
	connector, err := driverofmysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = lastword.Migrate(t.Context(), db, mysql.Dialect(), nil)
	if err == nil || !strings.Contains(err.Error(), "PROCEDURE") || !strings.Contains(err.Error(), "CREATE ROUTINE") {
		t.Errorf("without the right: %v", err)
	}
	mysqlExec(t, root, `GRANT CREATE ROUTINE, ALTER ROUTINE ON `+config.DBName+`.* TO `+user+`@'%'`)
	_ = db.Close() // rights are read when a session begins
	db = sql.OpenDB(connector)
	defer db.Close()
	if err = lastword.Migrate(t.Context(), db, mysql.Dialect(), nil); err != nil {
		t.Errorf("with the right: %v", err)
	}
}

// What waited for the lease's row until after its end is too late: a guard does not pass, and a renewal does not revive.
func TestMySQLWaitedTooLong(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", "time_zone"} {
		for what, use := range map[string]func(ctx context.Context, s *lastword.Store, l *lastword.Lease) error{
			"guard": func(ctx context.Context, s *lastword.Store, l *lastword.Lease) error {
				return s.Tx(ctx, l.Token(), nil, func(context.Context, *sql.Tx) error { return nil })
			},
			"procedure": func(ctx context.Context, s *lastword.Store, l *lastword.Lease) error {
				_, err := s.DB().ExecContext(ctx, `CALL lastword_guard(?)`, l.Token().String())
				if err != nil && s.Dialect().Classify(err) == lastword.Fenced {
					return lastword.ErrExpired
				}
				return err
			},
			"renew": func(ctx context.Context, _ *lastword.Store, l *lastword.Lease) error {
				_, err := l.Renew(ctx)
				return err
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				db, s := openMySQL(t, mysqlSettings[name])
				l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if err := mysqlWaits(t, db, func() error { return use(t.Context(), s, l) }); !errors.Is(err, lastword.ErrExpired) {
					t.Error(err)
				}
			})
		}
	}
}

// mysqlWaits holds the lease's row until its lease has ended, and returns what use says, which has to wait for it.
func mysqlWaits(t *testing.T, db *sql.DB, use func() error) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	mysqlExec(t, tx, `SELECT 1 FROM lastword_leases FOR UPDATE`)
	done := make(chan error, 1)
	go func() { done <- use() }()
	waited := false
	for over := false; !over; time.Sleep(5 * time.Millisecond) { // until the clock has moved on
		n, err := mysqlWaiting(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		waited = waited || n > 0
		if err := tx.QueryRowContext(t.Context(), `SELECT leased_until < UTC_TIMESTAMP(3) FROM lastword_leases`).Scan(&over); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(); err != nil || !waited {
		t.Fatalf("it waited: %v, rollback: %v", waited, err)
	}
	return <-done
}

// A prefix with a dot is another database, which has to be there.
func TestMySQLOtherDatabase(t *testing.T) {
	t.Parallel()
	other, err := driverofmysql.ParseDSN(newMySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(mysqlConnector(t, newMySQL(t)))
	defer db.Close()
	opts := &lastword.Options{Prefix: other.DBName + "."}
	for range 2 {
		if err := lastword.Migrate(t.Context(), db, mysql.Dialect(), opts); err != nil {
			t.Fatal(err)
		}
	}
	s, err := lastword.Open(t.Context(), db, mysql.Dialect(), opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "job", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	mysqlExec(t, db, `CREATE TABLE r (id int)`)
	if n, err := l.Exec(t.Context(), `INSERT INTO r VALUES (1)`); n != 1 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := s.Submit(t.Context(), nil, lastword.Task{Kind: "kind", Key: "k"}); err != nil {
		t.Error(err)
	}
	if claimed, err := s.Claim(t.Context(), lastword.ClaimOptions{Kinds: []string{"kind"}}); len(claimed) != 1 || err != nil {
		t.Errorf("%v, %v", claimed, err)
	}
	mysqlExec(t, db, `CALL `+other.DBName+`.guard(?)`, l.Token().String())
}

// Keys are bytes: spaces at the end and case count, and nothing is too odd.
func TestMySQLKeysAreBytes(t *testing.T) {
	t.Parallel()
	_, s := openMySQL(t)
	keys := []string{"k", "k ", "K", "k\x00", "ü", "u", " ", "  ", strings.Repeat("k", 255), "🙂"}
	for round, want := range []error{nil, lastword.ErrConflict} {
		for _, key := range keys {
			_, err := s.Submit(t.Context(), nil, lastword.Task{Kind: "kind", Key: key})
			if !errors.Is(err, want) {
				t.Errorf("round %d, key %q: %v", round, key, err)
			}
		}
	}
	tasks, err := s.TasksAfter(t.Context(), 0, lastword.TaskFilter{})
	if err != nil || len(tasks) != len(keys) {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	for i, task := range tasks {
		if task.Key != keys[i] {
			t.Errorf("key %q was stored as %q", keys[i], task.Key)
		}
	}
}

// The longest claim there is, and one of kinds that differ in case only.
func TestMySQLClaims(t *testing.T) {
	t.Parallel()
	_, s := openMySQL(t)
	tasks := make([]lastword.Task, 1000)
	for i := range tasks {
		tasks[i] = lastword.Task{Kind: []string{"kind", "Kind"}[i%2], Priority: i % 3}
	}
	if _, err := s.Submit(t.Context(), nil, tasks...); err != nil {
		t.Fatal(err)
	}
	for kinds, want := range map[string]int{"KIND": 0, "Kind": 500, "kind,absent": 500} {
		claimed, err := s.Claim(t.Context(), lastword.ClaimOptions{Kinds: strings.Split(kinds, ","), Limit: 1000})
		nonces := map[string]bool{}
		for _, a := range claimed {
			nonces[a.Token().Nonce] = true
			if !strings.HasPrefix(kinds, a.Kind()) {
				t.Fatalf("%s: got a task of kind %s", kinds, a.Kind())
			}
		}
		if err != nil || len(claimed) != want || len(nonces) != want {
			t.Errorf("%s: %d claimed with %d nonces, %v", kinds, len(claimed), len(nonces), err)
		}
		if want > 0 {
			if history, err := s.Attempts(t.Context(), claimed[want-1].ID()); err != nil || len(history) != 1 {
				t.Errorf("%s: history %v, %v", kinds, history, err)
			}
		}
	}
}

func TestMySQLGuardProcedure(t *testing.T) {
	t.Parallel()
	db, s := openMySQL(t)
	l, err := s.Acquire(t.Context(), "a/b.c:d-e_f", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := s.Submit(t.Context(), nil, lastword.NewTask("kind", 1))
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), lastword.ClaimOptions{Kinds: []string{"kind"}})
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	lease, attempt := l.Token(), claimed[0].Token()
	for token, state := range map[string]string{
		lease.String(): "", attempt.String(): "",
		strings.ToLower(lease.String()): "45LW1", strings.ToUpper(lease.Name) + lease.String(): "45LW2",
		lease.String() + "x": "45LW1", lease.String() + " ": "45LW2", attempt.String() + "x": "45LW1",
		fmt.Sprintf("lease/%s@2.%s", lease.Name, lease.Nonce): "45LW1", fmt.Sprintf("task/%d@2.%s", ids[0], attempt.Nonce): "45LW1",
		fmt.Sprintf("task/x@1.%s", attempt.Nonce): "45LW2", "": "45LW2", "lease": "45LW2", "lease/x": "45LW2", "row/x@1.y": "45LW2", "lease/x@01.y": "45LW2", "lease/x@9999999999999999999.y": "45LW1", "lease/x@99999999999999999999.y": "45LW2",
	} {
		_, err := db.ExecContext(t.Context(), `CALL lastword_guard(?)`, token)
		var answer *driverofmysql.MySQLError
		switch {
		case state == "" && err != nil, state != "" && !errors.As(err, &answer), answer != nil && string(answer.SQLState[:]) != state:
			t.Errorf("%q: %v, want SQLSTATE %q", token, err, state)
		case answer != nil && (strings.Contains(err.Error(), lease.Nonce[:7]) || strings.Contains(err.Error(), attempt.Nonce[:7])):
			t.Errorf("the error shows the nonce: %v", err)
		}
		if state == "45LW1" && s.Dialect().Classify(err) != lastword.Fenced {
			t.Errorf("%q is not taken for fenced: %v", token, err)
		}
	}
}
