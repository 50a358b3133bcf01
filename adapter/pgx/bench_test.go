package pgxlastword_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pgxlastword "github.com/lastword-go/lastword/adapter/pgx"
)

// BenchmarkTx compares a guarded transaction of one write with the same unguarded pgx transaction, at 1 and 8 connections, each on a row
// of its own. The two take turns in short rounds, so that what else happens on the machine hits both; the figures are
// medians of the rounds. ratio is guarded throughput by unguarded.
func BenchmarkTx(b *testing.B) {
	for name, connections := range map[string]int{"1": 1, "8": 8} {
		for durable, setting := range map[string]string{"durable": "on", "asynchronous": "off"} { // off: the disk does not hide the cost
			b.Run("connections="+name+"/"+durable, func(b *testing.B) { benchmark(b, connections, setting) })
		}
	}
}

func benchmark(b *testing.B, connections int, durable string) {
	w := newWorld(b, func(c *pgxpool.Config) {
		c.MaxConns = int32(connections)
		c.ConnConfig.RuntimeParams["synchronous_commit"] = durable
	})
	w.exec(`INSERT INTO r SELECT generate_series(100, 100 + $1::int)`, connections)
	token := w.lease("l", time.Hour).Token()
	const update = `UPDATE r SET v = v + 1 WHERE id = $1`
	run := map[string]func(row int) error{
		"guarded": func(row int) error {
			return w.tx(token, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, update, row); return err })
		},
		"unguarded": func(row int) error {
			return pgx.BeginTxFunc(w.ctx, w.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { _, err := tx.Exec(w.ctx, update, row); return err })
		},
		"exec": func(row int) error {
			_, err := pgxlastword.Exec(w.ctx, w.store, w.pool, token, update, row)
			return err
		},
		"bare": func(row int) error { _, err := w.pool.Exec(w.ctx, update, row); return err },
	}
	order := []string{"guarded", "unguarded", "exec", "bare"}
	each := map[string][]float64{}
	const round = 40 // of each connection
	for n := 0; b.Loop(); n++ {
		for _, name := range order {
			began := time.Now()
			var group sync.WaitGroup
			for worker := range connections {
				group.Go(func() {
					for range round {
						if err := run[name](100 + worker); err != nil {
							b.Error(err)
						}
					}
				})
			}
			group.Wait()
			if n > 0 { // the first round warms the connections
				each[name] = append(each[name], float64(time.Since(began).Microseconds())/float64(round))
			}
		}
		slices.Reverse(order)
	}
	median := func(name string) float64 {
		slices.Sort(each[name])
		if len(each[name]) == 0 {
			return 1
		}
		return each[name][len(each[name])/2]
	}
	b.ReportMetric(median("guarded"), "guarded-µs")
	b.ReportMetric(median("unguarded"), "unguarded-µs")
	b.ReportMetric(median("unguarded")/median("guarded"), "ratio")
	b.ReportMetric(median("bare")/median("exec"), "exec-ratio")
	b.ReportMetric(0, "ns/op")
}
