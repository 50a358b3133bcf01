package lastword

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func dollar(n int) string { return "$" + strconv.Itoa(n) }

func TestParseStatements(t *testing.T) {
	const text = `
-- A file's comment.
-- define: now = clock()

-- name: First
SELECT @a, {now}, '@a', "@a", @b_2 -- and @c
FROM lastword_x WHERE y = @a AND z = $q$ @a $q$

-- A comment of its own line is dropped.
-- name: Empty
-- name: Last
SELECT 1
`
	got, err := ParseStatements(text, "acme_", dollar)
	if err != nil {
		t.Fatal(err)
	}
	want := Statements{
		"First": {Text: "SELECT $1, clock(), '@a', \"@a\", $2 -- and @c\nFROM acme_x WHERE y = $3 AND z = $q$ @a $q$", Params: []string{"a", "b_2", "a"}},
		"Empty": {},
		"Last":  {Text: "SELECT 1"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !got["Empty"].Empty() || got["Last"].Empty() {
		t.Error("Empty() is wrong")
	}
	if values := got["First"].Bind(Args{"a": 1, "b_2": "x", "unused": 0}); !reflect.DeepEqual(values, []any{1, "x", 1}) {
		t.Errorf("bound %v", values)
	}
}

// A define may use those before it, and a section may have several statements.
func TestParseStatementsInSteps(t *testing.T) {
	const text = `
-- define: now = clock()
-- define: late = {now} + @ms
-- name: Steps
SELECT {late} FOR UPDATE
-- then
SET @LASTWORD_X = @ms, @@autocommit = 0
-- then
SELECT {now}
-- name: One
SELECT 1
`
	got, err := ParseStatements(text, "", dollar)
	if err != nil {
		t.Fatal(err)
	}
	last := Statement{Text: "SELECT clock()"}
	second := Statement{Text: "SET @LASTWORD_X = $1, @@autocommit = 0", Params: []string{"ms"}, Then: &last}
	want := Statements{"Steps": {Text: "SELECT clock() + $1 FOR UPDATE", Params: []string{"ms"}, Then: &second}, "One": {Text: "SELECT 1"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !got["Steps"].last().isSelect() || second.isSelect() {
		t.Error("the last statement is the SELECT")
	}
}

func TestParseStatementsRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"a section twice":      "-- name: A\nSELECT 1\n-- name: A\nSELECT 2\n",
		"text before sections": "SELECT 1\n-- name: A\n",
	} {
		if _, err := ParseStatements(text, "", dollar); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

func TestBindPanicsWithoutAValue(t *testing.T) {
	defer func() {
		if p := recover(); p == nil || !strings.Contains(p.(string), "@b") {
			t.Errorf("recovered %v", p)
		}
	}()
	Statement{Params: []string{"a", "b"}}.Bind(Args{"a": 1})
}

func FuzzParseStatements(f *testing.F) {
	f.Add("-- name: A\nSELECT @a, '@b'\n")
	f.Add("-- define: x = y\n-- name: A\n{x} @@ @")
	f.Fuzz(func(t *testing.T, text string) {
		statements, err := ParseStatements(text, "", func(n int) string { return "<" + strconv.Itoa(n) + ">" })
		if err != nil {
			return
		}
		for name, s := range statements {
			args := Args{}
			for _, param := range s.Params {
				args[param] = param
			}
			if got := s.Bind(args); len(got) != len(s.Params) {
				t.Fatalf("%s: %d values for %d parameters", name, len(got), len(s.Params))
			}
		}
	})
}

func TestPrefixes(t *testing.T) {
	for prefix, good := range map[string]bool{
		"": true, "acme_": true, "Acme2_": true, "jobs.": true, "_x": true,
		".": false, "a.b": false, "a.b.": false, "x;.": false, `x"; DROP TABLE y; --.`: false, "a b": false, "é": false, "2x_": false, "jobs..": false,
	} {
		if err := validatePrefix(prefix); (err == nil) != good {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	ddl := "CREATE UNIQUE INDEX lastword_i ON lastword_t (x); CONSTRAINT lastword_c"
	for prefix, want := range map[string]string{
		"":      ddl,
		"acme_": "CREATE UNIQUE INDEX acme_i ON acme_t (x); CONSTRAINT acme_c",
		// An index stands in the schema of its table and may not name one; a constraint neither.
		"jobs.": "CREATE UNIQUE INDEX i ON jobs.t (x); CONSTRAINT c",
	} {
		if got := withPrefix(ddl, prefix); got != want {
			t.Errorf("prefix %q: %s", prefix, got)
		}
	}
}
