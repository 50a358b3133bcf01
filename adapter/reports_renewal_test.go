package adapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/lastword-go/lastword"
)

// TestReportsRenewals tries what takes the time of a lease, all at once.
func TestReportsRenewals(t *testing.T) {
	t.Parallel()
	all := map[string]func(t *testing.T){
		"PoolOfOne":        onSQLite(reportPoolOfOne),
		"ReleaseIsBounded": onSQLite(reportReleaseIsBounded),
		"SessionsEnd":      onPostgres(reportSessionsEnd),
		"ReadOnly":         onPostgres(reportReadOnly),
	}
	for what, check := range reportsOfRenewals() {
		all[what+" sqlite"], all[what+" postgres"] = onSQLite(check), onPostgres(check)
	}
	atOnce(t, all)
}

// reportsOfRenewals are those that need nothing special of the engine.
func reportsOfRenewals() map[string]func(r *trial) {
	return map[string]func(r *trial){
		"Hiccups":            reportHiccups,
		"ReleaseAfterTheJob": reportReleaseAfterTheJob,
		"RenewalBlocked":     reportRenewalBlocked,
		"RenewalPanics":      reportRenewalPanics,
		"RenewalThatWaited":  reportRenewalThatWaited,
	}
}

// withLease runs a job of A under the lease "job".
func (r *trial) withLease(ctx context.Context, ttl time.Duration, job func(ctx context.Context, l *lastword.Lease) error) error {
	return r.a.WithLease(ctx, "job", lastword.LeaseOptions{TTL: ttl}, job)
}

// A renewal that changes nothing, because the clock has not moved since the last one, is a renewal; so is a guarded write of a value
// that is there already.
func TestReportsUnchangedIsNoRefusal(t *testing.T) { eachEngine(t, reportUnchanged) }

func reportUnchanged(r *trial) {
	l := r.acquire(r.a, "job")
	r.exec(`CREATE TABLE r (id bigint PRIMARY KEY, v bigint NOT NULL)`)
	r.exec(`INSERT INTO r VALUES (1, 1)`)
	for range 200 {
		if _, err := l.Renew(r.ctx); err != nil {
			r.Fatalf("renew: %v", err)
		}
	}
	for range 3 {
		_, err := l.Exec(r.ctx, `UPDATE r SET v = 1 WHERE id = 1`)
		r.want(err, nil, "a guarded write that changes nothing")
	}
	r.want(r.try(r.b, "job"), lastword.ErrHeld, "acquire of a held lease")
}

// busy is what a database says that has no time now, in the words of either driver.
type busy struct{}

func (busy) Error() string    { return "busy" }
func (busy) Code() int        { return 5 }       // of SQLite
func (busy) SQLState() string { return "55P03" } // of PostgreSQL

// Three renewals fail in a row and the job does not notice.
func reportHiccups(r *trial) {
	failed := 0
	r.tamperWith("LeaseRenew", func(context.Context, driver.Conn) error {
		if failed++; failed <= 3 {
			return []error{errors.New("connection reset by peer"), busy{}, errors.New("i/o timeout")}[failed-1]
		}
		return nil
	})
	err := r.withLease(r.ctx, 2*time.Second, func(ctx context.Context, _ *lastword.Lease) error { return r.seen.renewed(ctx, 1) })
	if err != nil || failed <= 3 {
		r.Errorf("after %d tries: %v", failed, err)
	}
}

// A pool of one has no connection to reserve. A job that keeps it for itself is told while its lease is in force.
func reportPoolOfOne(r *trial) {
	r.dbA.SetMaxOpenConns(1)
	err := r.withLease(r.ctx, 2*time.Second, func(ctx context.Context, _ *lastword.Lease) error {
		conn, err := r.dbA.Conn(ctx)
		r.must(err)
		defer conn.Close()
		<-ctx.Done()
		r.want(r.try(r.b, "job"), lastword.ErrHeld, "when the job is told")
		return nil
	})
	r.want(err, lastword.ErrFenced, "WithLease")
}

// The sessions of every process are ended in the middle of a job, and the pool renews its connections all the time: the lease is a row
// and does not depend on a session.
func reportSessionsEnd(r *trial) {
	r.dbA = sql.OpenDB(r.engine.Connector) // as an application has it
	r.Cleanup(func() { _ = r.dbA.Close() })
	r.dbA.SetConnMaxLifetime(time.Millisecond)
	var err error
	r.a, err = lastword.Open(r.ctx, r.dbA, r.engine.Dialect, &lastword.Options{Observer: r.seen})
	r.must(err)
	r.must(r.withLease(r.ctx, 2*time.Second, func(ctx context.Context, l *lastword.Lease) error {
		r.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		r.want(r.try(r.b, "job"), lastword.ErrHeld, "after all sessions have ended")
		if err := r.seen.renewed(ctx, 2); err != nil {
			return err
		}
		r.want(r.try(r.b, "job"), lastword.ErrHeld, "two renewals later")
		return l.Tx(ctx, nil, func(context.Context, *sql.Tx) error { return nil })
	}))
}

// After a failover the connections point at a server that does not write. What fails is told as a failure, not as somebody else's
// lease, and the job ends while its lease is still in force.
func reportReadOnly(r *trial) {
	readOnly := func(ctx context.Context, conn driver.Conn) error {
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, `SET default_transaction_read_only = on`, nil)
		return err
	}
	r.tamperWith("LeaseRenew", readOnly)
	inForce := int64(-1)
	err := r.withLease(r.ctx, 2*time.Second, func(ctx context.Context, _ *lastword.Lease) error {
		<-ctx.Done()
		inForce = r.count(`SELECT count(*) FROM lastword_leases WHERE name = 'job' AND fence = 1 AND leased_until > clock_timestamp()`)
		return nil
	})
	r.want(err, lastword.ErrFenced, "a job whose renewals are not written")
	if inForce != 1 {
		r.Errorf("the job was told %d leases before the end of its own", inForce)
	}
	r.dbA.SetMaxOpenConns(1)
	r.tamperWith("LeaseInsert", readOnly)
	err = r.try(r.a, "other")
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "25006" || errors.Is(err, lastword.ErrHeld) || errors.Is(err, lastword.ErrFenced) {
		r.Errorf("acquire on a server that does not write: %v", err)
	}
}

// The job's caller gives up while the job still runs. The lease is renewed until the job has returned, and only then released.
func reportReleaseAfterTheJob(r *trial) {
	ctx, cancel := context.WithCancel(r.ctx)
	stopped := errors.New("stopped")
	err := r.withLease(ctx, 2*time.Second, func(ctx context.Context, l *lastword.Lease) error {
		cancel()
		<-ctx.Done()
		r.want(context.Cause(ctx), context.Canceled, "the cause")
		r.must(r.seen.renewed(r.ctx, 2))
		r.want(r.try(r.b, "job"), lastword.ErrHeld, "while the job is on its way out")
		_, err := l.Renew(r.ctx)
		r.want(err, nil, "the lease of the job that is on its way out")
		return stopped
	})
	r.want(err, stopped, "WithLease")
	r.want(r.try(r.b, "job"), nil, "at once after the job")
}

// A release that gets no answer is given up, and the lease left to its end.
func reportReleaseIsBounded(r *trial) {
	r.tamperWith("LeaseRelease", func(ctx context.Context, _ driver.Conn) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.ctx.Done(): // the library has set no bound
			return r.ctx.Err()
		}
	})
	r.want(r.withLease(r.ctx, time.Minute, func(context.Context, *lastword.Lease) error { return nil }), nil, "WithLease")
	r.want(r.ctx.Err(), nil, "the test's time")
	r.want(r.try(r.b, "job"), lastword.ErrHeld, "a lease whose release did not arrive")
}

// Another process keeps the row (on SQLite the database) locked. The job is told in time, though its renewal still waits.
func reportRenewalBlocked(r *trial) {
	inForce := int64(-1)
	err := r.withLease(r.ctx, 2*time.Second, func(ctx context.Context, _ *lastword.Lease) error {
		defer r.lockLease("job")()
		<-ctx.Done()
		r.want(context.Cause(ctx), lastword.ErrFenced, "the cause")
		inForce = r.count(`SELECT count(*) FROM lastword_leases WHERE name = 'job' AND leased_until > ` + r.engine.Now)
		return nil
	})
	r.want(err, lastword.ErrFenced, "WithLease")
	if inForce != 1 {
		r.Error("the job was told after the end of its lease")
	}
	// A statement that nobody waits for any more may still be carried out: the release, but no renewal of what has ended.
	_, err = r.b.Acquire(r.ctx, "job", lastword.LeaseOptions{TTL: time.Minute, Wait: 4 * time.Second})
	r.want(err, nil, "the next holder")
}

// A renewal panics outside of the database's driver. The job is told, and the next holder need not wait for the end of the lease.
func reportRenewalPanics(r *trial) {
	var err error
	r.a, err = lastword.Open(r.ctx, r.dbA, r.engine.Dialect, &lastword.Options{Observer: panicking{}})
	r.must(err)
	err = r.withLease(r.ctx, 2*time.Second, func(ctx context.Context, _ *lastword.Lease) error {
		<-ctx.Done()
		r.want(context.Cause(ctx), lastword.ErrFenced, "the cause")
		return nil
	})
	r.want(err, lastword.ErrFenced, "WithLease")
	r.want(r.try(r.b, "job"), nil, "the next holder")
}

type panicking struct{}

func (panicking) Observe(o lastword.Observation) {
	if o.What == lastword.Renewal {
		panic("boom")
	}
}
