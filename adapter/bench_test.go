package adapter_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/sqlite"
	_ "modernc.org/sqlite"
)

// BenchmarkWrite compares one UPDATE on SQLite (WAL, synchronous OFF so that the disk does not hide the cost): bare, in a plain
// transaction, and guarded. The difference between the last two is the guard's statement and the thin driver.
func BenchmarkWrite(b *testing.B) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bench.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if err := lastword.Migrate(ctx, db, sqlite.Dialect(), nil); err != nil {
		b.Fatal(err)
	}
	store, err := lastword.Open(ctx, db, sqlite.Dialect(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE r (id INTEGER PRIMARY KEY, v INTEGER); INSERT INTO r VALUES (1, 0)`); err != nil {
		b.Fatal(err)
	}
	lease, err := store.Acquire(ctx, "bench", lastword.LeaseOptions{TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	const update = `UPDATE r SET v = v + 1 WHERE id = 1`
	write := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, update)
		return err
	}
	for name, run := range map[string]func() error{
		"bare": func() error {
			_, err := db.ExecContext(ctx, update)
			return err
		},
		"transaction": func() error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := write(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		},
		"InTx":    func() error { return store.InTx(ctx, nil, write) },
		"guarded": func() error { return store.Tx(ctx, lease.Token(), nil, write) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
