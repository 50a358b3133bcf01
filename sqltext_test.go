package lastword

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSQLParts(t *testing.T) {
	for text, quoted := range map[string][]string{
		"SELECT 1":                     nil,
		"a 'b' c":                      {"'b'"},
		"a 'it''s' c":                  {"'it'", "'s'"},
		`a "b;c" d`:                    {`"b;c"`},
		"a `b` d":                      {"`b`"},
		`E'\'; x' y`:                   {`'\'; x'`},
		`'\' y`:                        {`'\'`},
		`name'x\' y`:                   {`'x\'`},
		"a -- b ; c\nd":                {"-- b ; c\n"},
		"a /* b ; */ d":                {"/* b ; */"},
		"$$ a; $$ b":                   {"$$ a; $$"},
		"$tag$ a $$ ; $tag$ b":         {"$tag$ a $$ ; $tag$"},
		"$1 and $2":                    nil,
		"a$b$c":                        nil,
		"unclosed 'x ; y":              {"'x ; y"},
		"unclosed $x$ y":               {"$x$ y"},
		"unclosed /* y":                {"/* y"},
		"E'a\\":                        {"'a\\"},
		"'a' -- 'b'\n'c' /* 'd' */ \"": {"'a'", "-- 'b'\n", "'c'", "/* 'd' */", `"`},
	} {
		var got []string
		for part := range sqlParts(text) {
			if part.quoted {
				got = append(got, part.text)
			}
		}
		if !slices.Equal(got, quoted) {
			t.Errorf("%q: quoted parts %q, want %q", text, got, quoted)
		}
	}
}

func TestSQLWords(t *testing.T) {
	for text, want := range map[string][][]string{
		"":                                      {nil},
		"update r set v='COMMIT; x'":            {{"UPDATE", "R", "SET", "V"}},
		"/* x */ commit":                        {{"COMMIT"}},
		"-- x\n rollback to s":                  {{"ROLLBACK", "TO", "S"}},
		"update r set v = 1; commit":            {{"UPDATE", "R", "SET", "V", "1"}, {"COMMIT"}},
		";;commit;":                             {nil, nil, {"COMMIT"}},
		"select $$;commit;$$, E'\\';commit;'":   {{"SELECT", "E"}},
		"select 1;/* c */ -- d\n":               {{"SELECT", "1"}},
		"insert into é (ab) values (1)":         {{"INSERT", "INTO", "AB", "VALUES", "1"}},
		"delete from r where a = 'b' returning": {{"DELETE", "FROM", "R", "WHERE", "A", "RETURNING"}},
	} {
		if got := sqlWords(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSQLMisread(t *testing.T) {
	for text, commits := range map[string]bool{
		"SELECT 1 AS [it's]; COMMIT; SELECT 'x'":                 true,
		"SELECT 1 /* /* */ ' */; COMMIT --'":                     true,
		"/* /* */ ' */ COMMIT --'":                               true,
		"INSERT INTO r VALUES ('[1]; commit to it, all of you')": false,
		"DO $$ BEGIN PERFORM a[1]; COMMIT; END $$":               false,
		"INSERT INTO r VALUES ('x; COMMIT')":                     false,
		"UPDATE r SET a[1] = $1":                                 false,
		"/*!40101 COMMIT */":                                     true,
		"/*M!100600 COMMIT */":                                   true,
		"UPDATE r SET v = 1 /*! ; COMMIT */":                     true,
		"UPDATE r SET v = 1 /*!50000 WHERE x = 'COMMIT' */":      false,
		"UPDATE r SET v = 1 /* COMMIT */":                        false,
	} {
		found := false
		for _, words := range sqlMisread(text) {
			found = found || len(words) > 0 && words[0] == "COMMIT"
		}
		if found != commits {
			t.Errorf("%q: read as %q", text, sqlMisread(text))
		}
	}
}

func FuzzSQLParts(f *testing.F) {
	for _, seed := range []string{"a 'b' \"c\" `d` $$e$$ $f$g$f$ -- h\n/* i */ E'\\''", "'", "$", "$a", "E'\\", "/*/", "--", "é$é$"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var joined strings.Builder
		for part := range sqlParts(text) {
			if part.text == "" {
				t.Fatalf("%q has an empty part", text)
			}
			joined.WriteString(part.text)
		}
		if joined.String() != text {
			t.Fatalf("%q: the parts are %q", text, joined.String())
		}
		for range sqlParts(text) {
			break // a reader may stop early
		}
		sqlWords(text)
		sqlMisread(text)
		_ = validateWrite(text)
		parseParams(text, dollar)
	})
}

func TestValidateWrite(t *testing.T) {
	for query, good := range map[string]bool{
		"UPDATE r SET v = 1":                   true,
		" update r set v = 1 ; ":               true,
		"/* c */ DELETE FROM r -- d":           true,
		"INSERT INTO r SELECT 1 FROM s":        true,
		"UPDATE r SET v = 'RETURNING; SELECT'": true,
		`UPDATE r SET "RETURNING" = 1`:         true,
		"":                                     false,
		";":                                    false,
		"SELECT 1":                             false,
		"WITH x AS (SELECT 1) UPDATE r SET v = 1": false,
		"TRUNCATE r":                                false,
		"CREATE TABLE x (y int)":                    false,
		"MERGE INTO r USING s ON true":              false,
		"UPDATE r SET v = 1 RETURNING v":            false,
		"UPDATE r SET v = 1; DELETE FROM r":         false,
		"UPDATE r SET v = 1; COMMIT":                false,
		";UPDATE r SET v = 1":                       false,
		"UPDATE r SET v = E'\\''; DELETE FROM s --": false,
	} {
		if err := validateWrite(query); (err == nil) != good {
			t.Errorf("%q: %v", query, err)
		}
	}
}
