package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const oldestPostgres = 120000

func postgresVersion(ctx context.Context, s *Subject) (Finding, error) {
	var number int
	var text string
	if err := s.DB.QueryRowContext(ctx, "SELECT current_setting('server_version_num')::int, current_setting('server_version')").Scan(&number, &text); err != nil {
		return Finding{}, err
	}
	if number < oldestPostgres {
		return fail("PostgreSQL "+text+" is older than 12, the oldest that the statements are written for", "upgrade the server"), nil
	}
	return ok("PostgreSQL %s", text), nil
}

// settings reads settings in their own units.
func settings(ctx context.Context, s *Subject, names ...string) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range names {
		var value *string
		// Settings that this server does not know are NULL.
		if err := s.DB.QueryRowContext(ctx, "SELECT (SELECT setting FROM pg_settings WHERE name = $1)", name).Scan(&value); err != nil {
			return nil, err
		}
		if value != nil {
			values[name] = *value
		}
	}
	return values, nil
}

func postgresWritable(ctx context.Context, s *Subject) (Finding, error) {
	var replica bool
	if err := s.DB.QueryRowContext(ctx, "SELECT pg_is_in_recovery()").Scan(&replica); err != nil {
		return Finding{}, err
	}
	set, err := settings(ctx, s, "transaction_read_only", "default_transaction_read_only")
	switch {
	case err != nil:
		return Finding{}, err
	case replica:
		return fail("this server is a replica: nothing can be acquired or guarded on it", "connect to the primary (target_session_attrs=read-write in the URL)"), nil
	case set["default_transaction_read_only"] == "on":
		return fail("default_transaction_read_only is on: every write is refused", "ALTER ROLE or ALTER DATABASE … RESET default_transaction_read_only"), nil
	case set["transaction_read_only"] == "on":
		return fail("transactions are read-only here", "connect to a server that takes writes"), nil
	}
	return ok("the server takes writes"), nil
}

func postgresDurability(ctx context.Context, s *Subject) (Finding, error) {
	set, err := settings(ctx, s, "fsync", "full_page_writes", "synchronous_commit")
	switch {
	case err != nil:
		return Finding{}, err
	case set["fsync"] == "off":
		return fail("fsync is off: a crash of the machine loses acknowledged takeovers, and can lose the whole database", "fsync = on in postgresql.conf"), nil
	case set["full_page_writes"] == "off":
		return warn("full_page_writes is off: sound only on storage that never tears a page", "full_page_writes = on in postgresql.conf"), nil
	case set["synchronous_commit"] == "off":
		return warn("synchronous_commit is off: a crash loses results of the last moments, which are then done again; takeovers are safe, lastword raises it for them",
			"ALTER DATABASE … RESET synchronous_commit (or ALTER ROLE, or postgresql.conf)"), nil
	}
	return ok("fsync and full_page_writes on, synchronous_commit %s", set["synchronous_commit"]), nil
}

func postgresIsolation(ctx context.Context, s *Subject) (Finding, error) {
	set, err := settings(ctx, s, "default_transaction_isolation")
	if err != nil {
		return Finding{}, err
	}
	if level := set["default_transaction_isolation"]; level != "read committed" {
		return warn("transactions begin at "+level+" by default: sound, but your own transactions with Guard will meet serialization failures (40001) to retry; lastword's own say read committed",
			"nothing, if your code retries 40001; else use Tx, which does"), nil
	}
	return ok("read committed by default"), nil
}

// shortest is below what guarded work needs, if it is set at all.
func shortest() map[string]time.Duration {
	return map[string]time.Duration{
		"lock_timeout": time.Second, "statement_timeout": 5 * time.Second, "idle_in_transaction_session_timeout": 5 * time.Second, "transaction_timeout": 10 * time.Second,
	}
}

func postgresTimeouts(ctx context.Context, s *Subject) (Finding, error) {
	names := []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"}
	set, err := settings(ctx, s, names...)
	if err != nil {
		return Finding{}, err
	}
	var said, bites []string
	for _, name := range names {
		ms, err := strconv.Atoi(set[name])
		if err != nil || ms == 0 {
			continue
		}
		value := time.Duration(ms) * time.Millisecond
		said = append(said, fmt.Sprintf("%s %v", name, value))
		if value < shortest()[name] {
			bites = append(bites, fmt.Sprintf("%s is %v", name, value))
		}
	}
	switch {
	case len(bites) > 0:
		return warn(strings.Join(bites, ", ")+": takeovers that wait for a guarded transaction, and guarded transactions themselves, will be cut off (ErrContended, ErrFailed)",
			"raise it for the roles that run lastword: ALTER ROLE … SET …"), nil
	case len(said) == 0:
		return ok("none set; the guard bounds idle guarded transactions by itself"), nil
	}
	return ok("%s", strings.Join(said, ", ")), nil
}

// postgresPooler tells a pooler in transaction mode by its work: while a second client is in a transaction on the server connection that the
// first one used, the first gets another.
func postgresPooler(ctx context.Context, s *Subject) (Finding, error) {
	a, err := s.DB.Conn(ctx)
	if err != nil {
		return Finding{}, err
	}
	defer a.Close()
	b, err := s.DB.Conn(ctx)
	if err != nil {
		return Finding{}, err
	}
	defer b.Close()
	before, between, after, err := backends(ctx, a, b)
	var state interface{ SQLState() string }
	if errors.As(err, &state) && (state.SQLState() == "42P05" || state.SQLState() == "26000") {
		return fail("a pooler gives each transaction another server connection, and prepared statements get lost or meet on the way: "+err.Error(),
			"add default_query_exec_mode=exec to the URL, or use a pooler that follows prepared statements (PgBouncer 1.21 with max_prepared_statements)"), nil
	}
	return pooled(before, between, after), err
}

func backends(ctx context.Context, a, b *sql.Conn) (before, between, after int, err error) {
	const pid = "SELECT pg_backend_pid()"
	if err := a.QueryRowContext(ctx, pid).Scan(&before); err != nil {
		return 0, 0, 0, err
	}
	tx, err := b.BeginTx(ctx, nil)
	if err != nil {
		return 0, 0, 0, err
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, pid).Scan(&between); err != nil {
		return 0, 0, 0, err
	}
	return before, between, after, a.QueryRowContext(ctx, pid).Scan(&after)
}

func pooled(before, between, after int) Finding {
	if before != after || before == between {
		return warn("a pooler gives each transaction another server connection: leases and guards are sound, each is one transaction; but settings of a session and LISTEN do not hold",
			"connect workers directly where they LISTEN")
	}
	return ok("each connection keeps its server process")
}

func postgresConnections(ctx context.Context, s *Subject) (Finding, error) {
	var used, limit int
	err := s.DB.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`).Scan(&used, &limit)
	if err != nil {
		return Finding{}, err
	}
	return fullness(used, limit), nil
}

func fullness(used, limit int) Finding {
	if used*5 >= limit*4 {
		return warn(fmt.Sprintf("%d of %d connections are in use: a renewal that needs a new one may be refused", used, limit), "raise max_connections, close idle ones, or lower the programs' pools")
	}
	return ok("%d of %d connections in use", used, limit)
}

const clockTolerance = time.Second

func postgresClock(ctx context.Context, s *Subject) (Finding, error) {
	var theirs float64
	asked := time.Now()
	if err := s.DB.QueryRowContext(ctx, "SELECT extract(epoch FROM clock_timestamp())::float8").Scan(&theirs); err != nil {
		return Finding{}, err
	}
	trip := time.Since(asked)
	difference := time.UnixMicro(int64(theirs * 1e6)).Sub(asked.Add(trip / 2))
	return clockDifference(difference, trip), nil
}

func clockDifference(difference, trip time.Duration) Finding {
	side := "ahead of"
	if difference < 0 {
		side = "behind"
	}
	said := fmt.Sprintf("the database's clock is %v %s this machine's, give or take %v", difference.Abs().Round(time.Millisecond), side, (trip / 2).Round(time.Microsecond))
	if difference.Abs() > clockTolerance+trip/2 {
		return warn(said+": no promise depends on it, but times in logs will not fit together", "keep both in time with NTP")
	}
	return ok("%s", said)
}

func postgresTimeZone(ctx context.Context, s *Subject) (Finding, error) {
	set, err := settings(ctx, s, "TimeZone")
	if err != nil {
		return Finding{}, err
	}
	return ok("%s; lastword's columns are timestamptz and do not depend on it", set["TimeZone"]), nil
}
