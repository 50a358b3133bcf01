package adapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	driverofmysql "github.com/go-sql-driver/mysql"

	"github.com/lastword-go/lastword/lastwordtest"
	"github.com/lastword-go/lastword/lastwordtest/testserver"
	"github.com/lastword-go/lastword/mysql"
)

// mysqlSettings are those of a DSN that change what the driver sends or what the server answers: clientFoundRows counts rows that
// matched instead of rows that changed, interpolateParams writes the values into the text instead of preparing it, time_zone moves
// NOW(), and parseTime makes time.Time of dates.
var mysqlSettings = map[string]string{
	"default": "", "clientFoundRows": "clientFoundRows=true", "interpolateParams": "interpolateParams=true",
	"time_zone": "time_zone=%27%2B05:30%27&parseTime=true",
}

func TestConformanceMySQL(t *testing.T) {
	t.Parallel()
	for name, setting := range mysqlSettings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lastwordtest.Conformance(t, func(t *testing.T) *lastwordtest.Engine { return mysqlEngine(t, setting) })
		})
	}
}

func mysqlVersion() string {
	if engines.mariadbErr != nil {
		return "missing: " + engines.mariadbErr.Error()
	}
	return engines.mariadb.Version()
}

// newMySQL makes an empty database that lives as long as the test.
func newMySQL(t *testing.T) (dsn string) {
	t.Helper()
	if err := engines.mariadbErr; err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	url, drop, err := engines.mariadb.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	dsn, err = testserver.MySQLDSN(url)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// mysqlConnector leads to dsn with settings as in a query of a URL.
func mysqlConnector(t *testing.T, dsn string, settings ...string) driver.Connector {
	t.Helper()
	query := strings.Trim(strings.Join(settings, "&"), "&")
	if strings.Contains(dsn, "?") {
		query = "&" + query
	} else {
		query = "?" + query
	}
	config, err := driverofmysql.ParseDSN(dsn + query)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := driverofmysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	return connector
}

func mysqlEngine(t *testing.T, setting string) *lastwordtest.Engine {
	t.Helper()
	dsn := newMySQL(t)
	return &lastwordtest.Engine{
		Dialect:   mysql.Dialect(),
		Connector: mysqlConnector(t, dsn, setting),
		Isolated: func(level sql.IsolationLevel) driver.Connector {
			variable := "transaction_isolation"
			if strings.HasPrefix(engines.mariadb.Version(), "MariaDB") {
				variable = "tx_isolation" // the other name came with 11.1
			}
			return mysqlConnector(t, dsn, setting, fmt.Sprintf("%s=%%27%s%%27", variable, strings.ToUpper(strings.ReplaceAll(level.String(), " ", "-"))))
		},
		Now: `UTC_TIMESTAMP(3)`,
		Later: func(expression string, ms int) string {
			return fmt.Sprintf("(%s + INTERVAL %d * 1000 MICROSECOND)", expression, ms)
		},
		Waiting:      mysqlWaiting,
		Upsert:       `INSERT INTO lwt_data (id, v) VALUES (?, 'A') ON DUPLICATE KEY UPDATE v = VALUES(v)`,
		UpsertCounts: 2,
		RenewalsWait: true,
		Overwrites:   true,
	}
}

var mysqlLockWait = regexp.MustCompile(`(?s)LOCK WAIT.*?thread id (\d+),`)

// mysqlWaiting reads the monitor: information_schema.innodb_trx is a copy that is renewed only when nobody has asked for 100 ms.
func mysqlWaiting(ctx context.Context, db *sql.DB) (n int64, err error) {
	mine := map[string]bool{}
	rows, err := db.QueryContext(ctx, `SELECT id FROM information_schema.processlist WHERE db = DATABASE()`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		mine[id] = true
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	var kind, name, status string
	if err := db.QueryRowContext(ctx, `SHOW ENGINE INNODB STATUS`).Scan(&kind, &name, &status); err != nil {
		return 0, err
	}
	_, list, _ := strings.Cut(status, "LIST OF TRANSACTIONS FOR EACH SESSION")
	for _, transaction := range strings.Split(list, "---TRANSACTION ")[1:] {
		if wait := mysqlLockWait.FindStringSubmatch(transaction); wait != nil && mine[wait[1]] {
			n++
		}
	}
	return n, nil
}
