package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
)

func schemaPromises() []schemaPromise {
	return []schemaPromise{
		{"missing and newer tables are told apart", schemaErrors},
		{"four processes migrate at once", migrateAtOnce},
		{"a prefix keeps two sets of tables apart", prefixes},
		{"a schema is a prefix too", schemaPrefix},
		{"a bad prefix is refused", badPrefix},
	}
}

func schemaErrors(t *testing.T, open func(t *testing.T) *Engine) {
	e := open(t)
	db := openDB(t, e.Connector)
	expect := func(what string, err error, have int) {
		t.Helper()
		var schema *lastword.SchemaError
		if !errors.As(err, &schema) || schema.Have != have || schema.Want < 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := lastword.Open(t.Context(), db, e.Dialect, nil)
	expect("no tables", err, 0)
	for range 2 { // again is harmless
		if err := lastword.Migrate(t.Context(), db, e.Dialect, nil); err != nil {
			t.Fatalf("migrate: %v", err)
		}
	}
	s, err := lastword.Open(t.Context(), db, e.Dialect, nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	query, values := s.Bind("SchemaRecord", lastword.Args{"version": 99})
	if _, err := db.ExecContext(t.Context(), query, values...); err != nil {
		t.Fatal(err)
	}
	_, err = lastword.Open(t.Context(), db, e.Dialect, nil)
	expect("newer tables", err, 99)
	expect("migrating newer tables", lastword.Migrate(t.Context(), db, e.Dialect, nil), 99)
}

func migrateAtOnce(t *testing.T, open func(t *testing.T) *Engine) {
	e := open(t)
	var group sync.WaitGroup
	start := make(chan struct{})
	for range 4 {
		db := openDB(t, e.Connector)
		if err := db.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			<-start
			if err := lastword.Migrate(t.Context(), db, e.Dialect, nil); err != nil {
				t.Errorf("migrate: %v", err)
			}
			if _, err := lastword.Open(t.Context(), db, e.Dialect, nil); err != nil {
				t.Errorf("open: %v", err)
			}
		})
	}
	close(start)
	group.Wait()
}

// tour uses every table once.
func tour(t *testing.T, e *Engine, opts *lastword.Options) {
	t.Helper()
	ctx, db := t.Context(), openDB(t, e.Connector)
	if err := lastword.Migrate(ctx, db, e.Dialect, opts); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	s, err := lastword.Open(ctx, db, e.Dialect, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	l, err := s.Acquire(ctx, "tour", lastword.LeaseOptions{TTL: time.Minute})
	do("acquire", err)
	if l.Token().Epoch != 1 {
		t.Errorf("the first fence is %d", l.Token().Epoch)
	}
	_, err = l.Renew(ctx)
	do("renew", err)
	_, err = s.Exec(ctx, l.Token(), `DELETE FROM lwt_tour WHERE id = 1`)
	do("exec", err)
	do("tx", l.Tx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }))
	ids, err := s.Submit(ctx, nil, lastword.Task{Kind: "tour", Key: "k"})
	do("submit", err)
	claimed, err := s.Claim(ctx, lastword.ClaimOptions{Kinds: []string{"tour"}})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claim: %v, %v", claimed, err)
	}
	_, err = claimed[0].Extend(ctx)
	do("extend", err)
	_, err = claimed[0].Exec(ctx, `DELETE FROM lwt_tour WHERE id = 1`)
	do("exec of an attempt", err)
	do("complete", claimed[0].Complete(ctx, "r", nil))
	_, err = s.Rerun(ctx, nil, ids[0], 1, lastword.RerunOptions{})
	do("rerun", err)
	do("cancel", s.Cancel(ctx, nil, ids[0], 2, "", ""))
	_, err = s.Reap(ctx, 10)
	do("reap", err)
	_, err = l.Release(ctx)
	do("release", err)
	for range 2 { // the second time updates the row
		if _, err = l.Exec(ctx, `DELETE FROM lwt_tour WHERE id = 1`); !errors.Is(err, lastword.ErrFenced) {
			t.Errorf("exec after the release: %v", err)
		}
		do("flush", s.FlushRefusals(ctx))
	}
	refusals, err := s.Refusals(ctx, lastword.RefusalFilter{})
	if err != nil || len(refusals) != 1 || refusals[0].Count != 2 {
		t.Errorf("refusals %+v, %v", refusals, err)
	}
}

func prefixes(t *testing.T, open func(t *testing.T) *Engine) {
	e := open(t)
	db := openDB(t, e.Connector)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE lwt_tour (id bigint PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []*lastword.Options{{Prefix: "acme_"}, nil, {Prefix: "other_"}} {
		tour(t, e, opts)
	}
}

func schemaPrefix(t *testing.T, open func(t *testing.T) *Engine) {
	e := open(t)
	db := openDB(t, e.Connector)
	opts := &lastword.Options{Prefix: "jobs."}
	if err := lastword.Migrate(t.Context(), db, e.Dialect, opts); err == nil {
		t.Error("migrating into a schema that is not there is no error")
	}
	if e.CreateSchema == "" {
		return
	}
	for _, query := range []string{e.CreateSchema, `CREATE TABLE lwt_tour (id bigint PRIMARY KEY)`} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	tour(t, e, opts)
	tour(t, e, nil) // beside it
}

func badPrefix(t *testing.T, open func(t *testing.T) *Engine) {
	e := open(t)
	db := openDB(t, e.Connector)
	for _, prefix := range []string{"a b", `x"`, "x; DROP TABLE y;.", ".", "a.b.", strings.Repeat("é", 2)} {
		for what, err := range map[string]error{
			"migrate": lastword.Migrate(t.Context(), db, e.Dialect, &lastword.Options{Prefix: prefix}),
			"open": func() error {
				_, err := lastword.Open(t.Context(), db, e.Dialect, &lastword.Options{Prefix: prefix})
				return err
			}(),
		} {
			if !errors.Is(err, lastword.ErrInvalid) {
				t.Error(fmt.Sprintf("%s with prefix %q: ", what, prefix), err)
			}
		}
	}
}
