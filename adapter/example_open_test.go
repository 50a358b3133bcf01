package adapter_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/sqlite"
)

// openExample makes a database with the library's tables and those of the example. Call remove at the end.
func openExample(tables ...string) (store *lastword.Store, db *sql.DB, remove func()) {
	ctx := context.Background()
	folder := must(os.MkdirTemp("", "lastword"))
	db = must(sql.Open("sqlite", "file:"+filepath.Join(folder, "example.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_txlock=immediate"))
	for _, statement := range tables {
		must(db.ExecContext(ctx, statement))
	}
	check(lastword.Migrate(ctx, db, sqlite.Dialect(), nil))
	store = must(lastword.Open(ctx, db, sqlite.Dialect(), &lastword.Options{Holder: "host-a"}))
	return store, db, func() {
		check(db.Close())
		check(os.RemoveAll(folder))
	}
}

// expire ends all leases and attempts now, as if their holders had stopped for longer than they last.
func expire(db *sql.DB) {
	must(db.Exec(`UPDATE lastword_leases SET leased_until = 0 WHERE leased_until IS NOT NULL`))
	must(db.Exec(`UPDATE lastword_tasks SET leased_until = 0 WHERE leased_until IS NOT NULL`))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
