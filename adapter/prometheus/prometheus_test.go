package prometheuslastword_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	_ "modernc.org/sqlite"

	"github.com/lastword-go/lastword"
	prometheuslastword "github.com/lastword-go/lastword/adapter/prometheus"
	"github.com/lastword-go/lastword/sqlite"
)

// A lease that is acquired, asked for by another, expired, refused and released, as a scrape shows it.
func TestMetricsOfALease(t *testing.T) {
	observer := prometheuslastword.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(observer)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := lastword.Migrate(t.Context(), db, sqlite.Dialect(), nil); err != nil {
		t.Fatal(err)
	}
	store, err := lastword.Open(t.Context(), db, sqlite.Dialect(), &lastword.Options{Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	first, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute}); !errors.Is(err, lastword.ErrHeld) {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE lastword_leases SET leased_until = 1`); err != nil {
		t.Fatal(err)
	}
	second, err := store.Acquire(t.Context(), "nightly", lastword.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Renew(t.Context()); !errors.Is(err, lastword.ErrFenced) {
		t.Fatal(err)
	}
	if _, err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	observer.Observe(lastword.Observation{What: lastword.Renewal, Kind: lastword.KindTask, Name: "judge", Err: errors.New("no connection")})
	want := `
# HELP lastword_leases_acquired_total Leases granted.
# TYPE lastword_leases_acquired_total counter
lastword_leases_acquired_total{name="nightly"} 2
# HELP lastword_leases_held_total Acquisitions given up because another holds the lease.
# TYPE lastword_leases_held_total counter
lastword_leases_held_total{name="nightly"} 1
# HELP lastword_leases_released_total Leases given back by their holder.
# TYPE lastword_leases_released_total counter
lastword_leases_released_total{name="nightly"} 1
# HELP lastword_refused_total Stale writes, renewals and completions refused.
# TYPE lastword_refused_total counter
lastword_refused_total{kind="lease",operation="renew"} 1
# HELP lastword_renewals_total Renewals and heartbeats, by whether they got through.
# TYPE lastword_renewals_total counter
lastword_renewals_total{kind="task",name="judge",result="missed"} 1
`
	names := []string{"lastword_leases_acquired_total", "lastword_leases_held_total", "lastword_leases_released_total", "lastword_refused_total", "lastword_renewals_total"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
