package lastword_test

import (
	"bufio"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/mysql"
	"github.com/lastword-go/lastword/postgres"
	"github.com/lastword-go/lastword/sqlite"
)

func dialects() []lastword.Dialect {
	return []lastword.Dialect{postgres.Dialect(), mysql.Dialect(), sqlite.Dialect()}
}

func sections(text string) (names []string) {
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		if name, ok := strings.CutPrefix(scanner.Text(), "-- name: "); ok {
			names = append(names, name)
		}
	}
	return names
}

// One statement has one home: the engines' files say the same things in the same order, with the same parameters.
func TestEnginesHaveTheSameStatements(t *testing.T) {
	first := dialects()[0]
	want := parse(t, first)
	for _, d := range dialects()[1:] {
		if got := sections(d.Queries); !slices.Equal(got, sections(first.Queries)) {
			t.Errorf("%s has the sections\n%v\n%s has\n%v", d.Name, got, first.Name, sections(first.Queries))
		}
		for name, statement := range parse(t, d) {
			// What one engine does without has no parameters there.
			if statement.Empty() || want[name].Empty() {
				continue
			}
			if a, b := params(statement), params(want[name]); !slices.Equal(a, b) {
				t.Errorf("%s: %s has the parameters %v, %s has %v", name, d.Name, a, first.Name, b)
			}
		}
	}
}

func parse(t *testing.T, d lastword.Dialect) lastword.Statements {
	t.Helper()
	statements, err := lastword.ParseStatements(d.Queries, "", d.Placeholder)
	if err != nil {
		t.Fatalf("%s: %v", d.Name, err)
	}
	if len(statements) != len(sections(d.Queries)) || len(statements) < 40 {
		t.Fatalf("%s: %d statements, %d sections", d.Name, len(statements), len(sections(d.Queries)))
	}
	return statements
}

func params(s lastword.Statement) []string {
	set := map[string]bool{}
	for step := &s; step != nil; step = step.Then {
		for _, p := range step.Params {
			set[p] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// A word in braces that no "define" explains would reach the server as it stands.
func TestEveryBraceIsDefined(t *testing.T) {
	brace := regexp.MustCompile(`\{[a-z_]+\}`)
	for _, d := range dialects() {
		for name, s := range parse(t, d) {
			if found := brace.FindString(s.Text); found != "" && name != "GuardedWrite" && found != "{idle_s}" {
				t.Errorf("%s: %s still has %s", d.Name, name, found)
			}
		}
	}
}

// The engines keep the same tables with the same columns.
func TestEnginesHaveTheSameTables(t *testing.T) {
	first := tables(dialects()[0].Schema)
	for _, d := range dialects()[1:] {
		got := tables(d.Schema)
		for _, name := range slices.Sorted(maps.Keys(first)) {
			if !slices.Equal(got[name], first[name]) {
				t.Errorf("%s: %s has %v, want %v", d.Name, name, got[name], first[name])
			}
		}
		if len(got) != len(first) || len(got) < 7 {
			t.Errorf("%s has %d tables, want %d", d.Name, len(got), len(first))
		}
	}
}

func tables(schema string) map[string][]string {
	out := map[string][]string{}
	column := regexp.MustCompile("(?m)^\t`?([a-z_]+)`? +[a-zA-Z].*$")
	for _, m := range regexp.MustCompile(`(?s)CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)\n\)`).FindAllStringSubmatch(schema, -1) {
		for _, c := range column.FindAllStringSubmatch(m[2], -1) {
			if !strings.HasSuffix(c[0], " VIRTUAL,") { // generated where the engine has no partial indexes
				out[m[1]] = append(out[m[1]], c[1])
			}
		}
	}
	return out
}

func TestEndsTransaction(t *testing.T) {
	for _, d := range dialects() {
		for text, want := range map[string]bool{
			"COMMIT": true, "END": true, "BEGIN": true, "ROLLBACK": true, "COMMIT AND CHAIN": true, "ROLLBACK TO S": false, "ROLLBACK TO SAVEPOINT S": false,
			"SAVEPOINT S": false, "RELEASE S": false, "UPDATE R": false, "": false, "SELECT END": false,
		} {
			if got := d.EndsTransaction(strings.Fields(text)); got != want {
				t.Errorf("%s: EndsTransaction(%q) = %v", d.Name, text, got)
			}
		}
	}
	for text, want := range map[string]bool{
		"START TRANSACTION": true, "XA END X": true, "CREATE TABLE T": true, "CREATE TEMPORARY TABLE T": false, "CREATE OR REPLACE TEMPORARY TABLE T": false, "DROP TABLE T": true,
		"DROP TEMPORARY TABLE T": false, "DROP TABLE A TEMPORARY": false, "ALTER TABLE T": true, "TRUNCATE T": true, "RENAME TABLE T": true, "GRANT X": true, "REVOKE X": true, "LOCK TABLES T": true,
		"UNLOCK TABLES": true, "ANALYZE TABLE T": true, "OPTIMIZE TABLE T": true, "FLUSH TABLES": true, "SET AUTOCOMMIT 1": true, "SET SESSION AUTOCOMMIT 1": true, "SET X 1 AUTOCOMMIT 1": true,
		"SET PASSWORD X": true, "SET NAMES UTF8MB4": false, "SET STATEMENT X 1 FOR COMMIT": true, "SET STATEMENT X 1 FOR SELECT 1": false, "CALL X": false, "REPLACE INTO R": false, "SELECT 1 FOR UPDATE": false,
	} {
		if got := mysql.Dialect().EndsTransaction(strings.Fields(text)); got != want {
			t.Errorf("mysql: EndsTransaction(%q) = %v", text, got)
		}
	}
	for text, want := range map[string]bool{"START TRANSACTION": true, "ABORT": true, "PREPARE TRANSACTION": true, "PREPARE X AS SELECT": false} {
		if got := postgres.Dialect().EndsTransaction(strings.Fields(text)); got != want {
			t.Errorf("postgres: EndsTransaction(%q) = %v", text, got)
		}
	}
}
