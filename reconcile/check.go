package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/lastword-go/lastword"
)

// ErrBadPage says that a check answered with a page that cannot be trusted: none at all, more rows than asked for, or keys that
// are blank, too long, repeated or out of order. A scan that went on would skip rows or count them twice, so the run fails instead.
var ErrBadPage = errors.New("bad page")

// maxKey keeps the samples of a run small enough to be stored with it.
const maxKey = 1024

// Check is one comparison of facts between two owners: it walks the children and says which of them have lost their parent.
//
// Page is asked again and again, each time with the last key of its last answer, until it answers with an empty page. No
// transaction is open meanwhile, and what is compared may change under the scan: a keyset cursor neither skips nor repeats a key
// that stays. A parent that is only marked as deleted is still there; its children are no orphans.
type Check struct {
	Name string
	Page func(ctx context.Context, q PageQuery) (*Page, error)
}

// PageQuery asks for the next rows of a check.
type PageQuery struct {
	After string // only keys above this one; "" begins
	Limit int    // at most so many rows
}

// Page is a check's answer. Keys rise strictly, as Go compares strings: byte by byte, on PostgreSQL ORDER BY key COLLATE "C". Numbers
// need leading zeros ([IntKey]). A page without rows ends the check; one that is merely short does not.
type Page struct {
	Rows []Row
}

// Row is one child.
type Row struct {
	Key    string // 1 to 1,024 bytes, not blank
	Orphan bool
}

// IntKey is an id that is 0 or more as a key that sorts like the number. strconv.ParseInt, and a CAST in SQL, read it back.
func IntKey(id int64) string { return fmt.Sprintf("%019d", id) }

// Query makes a check of one query on db. Its first parameter is the cursor (text, "" at first), its second the limit; it returns a
// key (text) and whether that row is an orphan. For a key that is a number, on PostgreSQL:
//
//	SELECT lpad(c.id::text, 19, '0'), p.id IS NULL
//	FROM child c LEFT JOIN parent p ON p.id = c.parent_id
//	WHERE c.id > coalesce(nullif($1, '')::bigint, -1) ORDER BY c.id LIMIT $2
func Query(db *sql.DB, name, query string) Check {
	return Check{Name: name, Page: func(ctx context.Context, q PageQuery) (*Page, error) {
		rows, err := db.QueryContext(ctx, query, q.After, q.Limit)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		page := &Page{}
		for rows.Next() {
			var row Row
			if err := rows.Scan(&row.Key, &row.Orphan); err != nil {
				return nil, err
			}
			page.Rows = append(page.Rows, row)
		}
		return page, rows.Err()
	}}
}

func validateChecks(checks []Check) error {
	if len(checks) == 0 {
		return invalidf("there is no check to run")
	}
	seen := map[string]bool{}
	for i, c := range checks {
		switch {
		case strings.TrimSpace(c.Name) == "":
			return invalidf("check %d has no name", i+1)
		case c.Page == nil:
			return invalidf("check %q has no Page", c.Name)
		case seen[c.Name]:
			return invalidf("check %q stands twice", c.Name)
		}
		seen[c.Name] = true
	}
	return nil
}

// next asks for a page and trusts nothing of it.
func (c Check) next(ctx context.Context, q PageQuery) (page *Page, err error) {
	err = protect("check "+c.Name, func() (err error) {
		page, err = c.Page(ctx, q)
		return err
	})
	if err == nil {
		err = page.validate(q)
	}
	if err != nil {
		return nil, fmt.Errorf("reconcile: check %s, page after key %q: %w", c.Name, q.After, err)
	}
	return page, nil
}

func (p *Page) validate(q PageQuery) error {
	if p == nil {
		return fmt.Errorf("%w: none at all", ErrBadPage)
	}
	if len(p.Rows) > q.Limit {
		return fmt.Errorf("%w: %d rows where at most %d were asked for", ErrBadPage, len(p.Rows), q.Limit)
	}
	last := q.After
	for i, row := range p.Rows {
		switch {
		case strings.TrimSpace(row.Key) == "":
			return fmt.Errorf("%w: row %d has a blank key", ErrBadPage, i+1)
		case len(row.Key) > maxKey:
			return fmt.Errorf("%w: row %d has a key of %d bytes, %d are allowed", ErrBadPage, i+1, len(row.Key), maxKey)
		case row.Key == last:
			return fmt.Errorf("%w: row %d repeats the key %q", ErrBadPage, i+1, row.Key)
		case row.Key < last:
			return fmt.Errorf("%w: row %d has the key %q after %q", ErrBadPage, i+1, row.Key, last)
		}
		last = row.Key
	}
	return nil
}

// protect turns a panic of the caller's code into an error: a run must end as a row, whatever a check does.
func protect(what string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reconcile: %s panicked: %v", what, p)
		}
	}()
	return fn()
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("reconcile: %w: "+format, append([]any{lastword.ErrInvalid}, args...)...)
}
