// Package doctor looks for what would break lastword's promises: on a database, and on the machine that judges. Each check is one
// function in a table. A check changes nothing that stays: those that try a write or a lock roll it back.
package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lastword-go/lastword"
)

// Status is the result of a check.
type Status string

// The results. Only Fail means that a promise does not hold, or that nobody knows.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
	Skip Status = "skip" // it needs something that another check found missing
)

// Finding is what one check has to say.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Says   string `json:"says"`           // what was found, and what it means
	Mend   string `json:"mend,omitempty"` // what to do
}

// Subject is a database to look at. Connect it as the programs do that use it: several settings belong to the connection.
type Subject struct {
	DB      *sql.DB
	Dialect lastword.Dialect
	Prefix  string

	store *lastword.Store // nil while the schema is not the right one
}

type check struct {
	name    string
	engine  string // "" is every engine
	schema  bool   // needs lastword's tables
	examine func(context.Context, *Subject) (Finding, error)
}

func checks() []check {
	return []check{
		{"server version", "postgres", false, postgresVersion},
		{"server version", "sqlite", false, sqliteVersion},
		{"writable", "postgres", false, postgresWritable},
		{"writable", "sqlite", false, sqliteWritable},
		{"durability", "postgres", false, postgresDurability},
		{"durability", "sqlite", false, sqliteDurability},
		{"isolation", "postgres", false, postgresIsolation},
		{"timeouts", "postgres", false, postgresTimeouts},
		{"timeouts", "sqlite", false, sqliteTimeouts},
		{"pooler", "postgres", false, postgresPooler},
		{"connections", "postgres", false, postgresConnections},
		{"clock", "postgres", false, postgresClock},
		{"time zone", "postgres", false, postgresTimeZone},
		{"schema", "", false, schemaVersion},
		{"privileges", "postgres", true, postgresPrivileges},
		{"unique keys", "postgres", true, postgresKeys},
		{"unique keys", "sqlite", true, sqliteKeys},
		{"guard function", "postgres", true, postgresGuardFunction},
		{"collation", "postgres", true, postgresCollation},
		{"collation", "sqlite", true, sqliteCollation},
		{"dead leases", "", true, deadLeases},
	}
}

const checkTimeout = 5 * time.Second

// Database runs every check of the subject's engine, in order. Without a connection it is the only finding.
func Database(ctx context.Context, s *Subject) []Finding {
	connected := s.examine(ctx, check{name: "connection", examine: connection})
	findings := []Finding{connected}
	if connected.Status == Fail {
		return findings
	}
	for _, c := range checks() {
		switch {
		case c.engine != "" && c.engine != s.Dialect.Name:
		case c.schema && s.store == nil:
			findings = append(findings, Finding{Check: c.name, Status: Skip, Says: "needs the tables, see schema"})
		default:
			findings = append(findings, s.examine(ctx, c))
		}
	}
	return findings
}

// Failed reports whether any finding is a failure.
func Failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Status == Fail {
			return true
		}
	}
	return false
}

func (s *Subject) examine(ctx context.Context, c check) Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found, err := c.examine(ctx, s)
	if err != nil {
		found = fail("cannot be checked: "+strings.Join(strings.Fields(err.Error()), " "), "mend what the error names, and look again")
	}
	found.Check = c.name
	return found
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Says: fmt.Sprintf(format, args...)}
}

func warn(says, mend string) Finding { return Finding{Status: Warn, Says: says, Mend: mend} }

func fail(says, mend string) Finding { return Finding{Status: Fail, Says: says, Mend: mend} }

const (
	pings    = 5
	slowPing = 50 * time.Millisecond
)

func connection(ctx context.Context, s *Subject) (Finding, error) {
	if err := s.DB.PingContext(ctx); err != nil {
		return fail("no connection: "+strings.Join(strings.Fields(err.Error()), " "), "check the address, the password and that the server runs (--db or LASTWORD_DB names it)"), nil
	}
	fastest := time.Hour
	for range pings {
		asked := time.Now()
		if _, err := s.DB.ExecContext(ctx, "SELECT 1"); err != nil {
			return Finding{}, err
		}
		fastest = min(fastest, time.Since(asked))
	}
	if fastest > slowPing {
		return warn(fmt.Sprintf("a round trip takes %v; a guarded transaction takes four", fastest.Round(time.Millisecond)), "run workers near the database"), nil
	}
	return ok("%s, a round trip takes %v", s.Dialect.Name, fastest.Round(time.Microsecond)), nil
}

func schemaVersion(ctx context.Context, s *Subject) (Finding, error) {
	store, err := lastword.Open(ctx, s.DB, s.Dialect, &lastword.Options{Prefix: s.Prefix})
	var schema *lastword.SchemaError
	switch {
	case errors.As(err, &schema) && schema.Have == 0:
		return fail(fmt.Sprintf("no lastword tables (version %d is wanted)", schema.Want), "lastword migrate makes them; if they are there, --prefix or the search path is wrong"), nil
	case errors.As(err, &schema) && schema.Have < schema.Want:
		return fail(fmt.Sprintf("tables of version %d, and %d is wanted", schema.Have, schema.Want), "lastword migrate"), nil
	case errors.As(err, &schema):
		return fail(fmt.Sprintf("tables of version %d, newer than this program (%d)", schema.Have, schema.Want), "use a newer lastword"), nil
	case err != nil:
		return Finding{}, err
	}
	s.store = store
	return ok("the tables have this program's version"), nil
}

func deadLeases(ctx context.Context, s *Subject) (Finding, error) {
	const page, named = 500, 5
	var names []string
	total := 0
	for after, more := "", true; more; {
		leases, err := s.store.Leases(ctx, after, page)
		if err != nil {
			return Finding{}, err
		}
		for _, l := range leases {
			after = l.Name
			total++
			if !l.Live && !l.Until.IsZero() {
				names = append(names, fmt.Sprintf("%s (%s)", l.Name, l.Holder))
			}
		}
		more = len(leases) == page
	}
	if len(names) == 0 {
		return ok("%d lease rows, none expired without a release", total), nil
	}
	shown := names[:min(named, len(names))]
	return warn(fmt.Sprintf("%d of %d leases expired and were never released: their holders died or were cut off: %s", len(names), total, strings.Join(shown, ", ")),
		"look for the reason there; the leases are free to take"), nil
}
