package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const ofThisConnection = "this is of lastword's own connection, and each program sets its own"

func sqliteVersion(ctx context.Context, s *Subject) (Finding, error) {
	var version string
	if err := s.DB.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return Finding{}, err
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return Finding{}, fmt.Errorf("version %q: %w", version, err)
	}
	if major < 3 || major == 3 && minor < 42 {
		return fail("SQLite "+version+" is older than 3.42, the oldest that the statements are written for", "use a newer SQLite or driver"), nil
	}
	return ok("SQLite %s", version), nil
}

// sqliteWritable takes the write lock and gives it back.
func sqliteWritable(ctx context.Context, s *Subject) (Finding, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return Finding{}, err
	}
	defer conn.Close()
	var readOnly int
	if err := conn.QueryRowContext(ctx, "PRAGMA query_only").Scan(&readOnly); err != nil {
		return Finding{}, err
	}
	if readOnly != 0 {
		return fail("query_only is on: every write is refused", "open the database without it"), nil
	}
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") }() // fails where nothing began
	if err == nil {                                                                    // a read-only file is found out by a write only; this one writes what is there
		var version int
		if err = conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err == nil {
			_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		}
	}
	var coded interface{ Code() int }
	switch {
	case err == nil:
		return ok("the file takes writes"), nil
	case ctx.Err() != nil, errors.As(err, &coded) && coded.Code()&0xff == 5:
		return warn("another program kept the write lock all the time: writes wait for it", "look for a transaction that is left open"), nil
	}
	return fail("a write is refused: "+err.Error(), "the file, its -wal and -shm files and their folder must be writable by this user"), nil
}

func sqliteDurability(ctx context.Context, s *Subject) (Finding, error) {
	var mode string
	var level int
	if err := s.DB.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return Finding{}, err
	}
	if err := s.DB.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return Finding{}, err
	}
	levels := []string{"OFF", "NORMAL", "FULL", "EXTRA"}
	named := fmt.Sprint(level)
	if level >= 0 && level < len(levels) {
		named = levels[level]
	}
	switch mode = strings.ToLower(mode); {
	case mode == "memory" || mode == "off":
		return fail("journal_mode is "+mode+": a crash can break the file ("+ofThisConnection+")", "journal_mode=wal"), nil
	case level == 0, level == 1 && mode == "wal":
		return fail(fmt.Sprintf("synchronous is %s: a loss of power loses acknowledged takeovers, and hands out their fences again (%s)", named, ofThisConnection), "synchronous=full on every connection"), nil
	case mode != "wal":
		return warn("journal_mode is "+mode+": sound, but readers and writers wait for each other", "journal_mode=wal"), nil
	}
	return ok("journal_mode %s, synchronous %s; %s", mode, named, ofThisConnection), nil
}

func sqliteTimeouts(ctx context.Context, s *Subject) (Finding, error) {
	var ms int
	if err := s.DB.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&ms); err != nil {
		return Finding{}, err
	}
	value := time.Duration(ms) * time.Millisecond
	if value < time.Second {
		return warn(fmt.Sprintf("busy_timeout is %v: writers that meet give up at once (ErrContended; %s)", value, ofThisConnection), "busy_timeout=10000 on every connection"), nil
	}
	return ok("busy_timeout %v; %s", value, ofThisConnection), nil
}

type sqliteIndex struct {
	name       string
	partial    bool
	columns    []string // in order of name; "" for an expression
	collations []string
}

func sqliteUniqueIndexes(ctx context.Context, s *Subject) ([]sqliteIndex, error) {
	var indexes []sqliteIndex
	// Read to its end before the next question: the pool may have one connection.
	rows, err := s.DB.QueryContext(ctx, `
		SELECT l.name, l.partial, coalesce(x.name, ''), x.coll FROM pragma_index_list(?) l, pragma_index_xinfo(l.name) x
		WHERE l."unique" = 1 AND x.key = 1 ORDER BY l.name, x.name`, s.table("leases"))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, column, collation string
		var partial bool
		if err := rows.Scan(&name, &partial, &column, &collation); err != nil {
			return nil, err
		}
		if len(indexes) == 0 || indexes[len(indexes)-1].name != name {
			indexes = append(indexes, sqliteIndex{name: name, partial: partial})
		}
		last := &indexes[len(indexes)-1]
		last.columns, last.collations = append(last.columns, column), append(last.collations, collation)
	}
	return indexes, rows.Err()
}

func sqliteKeys(ctx context.Context, s *Subject) (Finding, error) {
	indexes, err := sqliteUniqueIndexes(ctx, s)
	if err != nil {
		return Finding{}, err
	}
	full, flawed := map[string]bool{}, []string{}
	for _, index := range indexes {
		switch {
		case index.partial:
			flawed = append(flawed, index.name+" is partial")
		case slices.Contains(index.columns, ""):
			flawed = append(flawed, index.name+" has expressions")
		default:
			full[strings.Join(index.columns, ",")] = true
		}
	}
	found := keys(s, full, flawed)
	if full["name"] && found.Status == Fail {
		// Here the guard takes the file's write lock, whatever keys there are.
		found.Status, found.Says = Warn, "no full unique key (name, fence): the guard holds without it on SQLite, but the tables are not those that were made"
	}
	return found, nil
}

func sqliteCollation(ctx context.Context, s *Subject) (Finding, error) {
	indexes, err := sqliteUniqueIndexes(ctx, s)
	if err != nil {
		return Finding{}, err
	}
	for _, index := range indexes {
		for i, collation := range index.collations {
			if collation != "BINARY" {
				return fail(fmt.Sprintf("%s of %s has the collation %s: two leases can become one", index.columns[i], s.table("leases"), collation), "make the table again from lastword migrate --print"), nil
			}
		}
	}
	return ok("names compare byte for byte"), nil
}
