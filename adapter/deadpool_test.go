package adapter

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
)

// A pool full of connections that the server has killed is no contention: each failed BEGIN takes one out, and the write gets through.
func TestDeadPool(t *testing.T) {
	db, store := openPostgres(t, nil)
	const connections = 20
	db.SetMaxIdleConns(connections)
	lease, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	var taken []*sql.Conn
	for range connections {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		if err := conn.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		taken, pids = append(taken, conn), append(pids, pid)
	}
	killer, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if _, err := killer.ExecContext(t.Context(), `SELECT pg_terminate_backend($1, 10000)`, pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := killer.Close(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range taken {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	runs := 0
	err = store.Tx(t.Context(), lease.Token(), nil, func(context.Context, *sql.Tx) error {
		runs++
		return nil
	})
	if err != nil || runs != 1 {
		t.Errorf("the function ran %d times: %v", runs, err)
	}
}
