package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}

func TestLeaseVerbs(t *testing.T) {
	t.Setenv("FENCE_TOKEN", "")
	onEngines(t, func(t *testing.T, db string) {
		lease := func(want int, args ...string) string {
			t.Helper()
			status, stdout, stderr := run(t, append([]string{"lease", "--db", db}, args...)...)
			if status != want {
				t.Errorf("lease %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), status, want, stdout, stderr)
			}
			return stdout + stderr
		}
		stale := strings.TrimSpace(lease(exitDone, "acquire", "job", "--ttl", "1s", "--label", "first"))
		lease(exitHeld, "acquire", "job", "--ttl", "1s")
		var granted struct {
			Token string
			Fence int64
			Until string
		}
		decode(t, lease(exitDone, "acquire", "job", "--ttl", "1m", "--wait", "10s", "--label", "second", "--json"), &granted)
		if token, err := lastword.ParseToken(granted.Token); err != nil || token.Epoch != granted.Fence || granted.Fence != 2 || granted.Until == "" {
			t.Errorf("acquire --json printed %+v: %v", granted, err)
		}

		var said strings.Builder // which must not have a nonce
		say := func(want int, args ...string) string {
			t.Helper()
			out := lease(want, args...)
			said.WriteString(out)
			return out
		}
		for _, verb := range []string{"renew", "held", "release"} {
			say(exitLost, verb, stale)
			say(exitLost, verb, stale, "--json")
		}
		say(exitHeld, "acquire", "job", "--ttl", "1s")
		say(exitDone, "held", granted.Token)
		say(exitDone, "renew", granted.Token)
		t.Setenv("FENCE_TOKEN", granted.Token)
		say(exitDone, "held")
		say(exitDone, "renew", "-", "--json")
		if out := say(exitDone, "ls"); !strings.Contains(out, "held") || !strings.Contains(out, "second") {
			t.Errorf("ls printed\n%s", out)
		}
		var views []leaseView
		decode(t, say(exitDone, "ls", "--json"), &views)
		if len(views) != 1 || views[0].Name != "job" || views[0].Fence != 2 || !views[0].Live || views[0].Until == nil {
			t.Errorf("ls --json printed %+v", views)
		}
		say(exitDone, "show", "job")
		say(exitDone, "show", "job", "--json")
		say(exitDone, "release")
		say(exitLost, "release")
		say(exitLost, "held")
		if out := say(exitDone, "show", "job"); !strings.Contains(out, "released, fence 2") {
			t.Errorf("show printed\n%s", out)
		}
		for _, text := range []string{stale, granted.Token} {
			token, err := lastword.ParseToken(text)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(said.String(), token.Nonce[:7]) {
				t.Errorf("more than six characters of a nonce are printed:\n%s", said.String())
			}
		}

		t.Setenv("FENCE_TOKEN", "")
		for _, test := range []struct {
			args   []string
			status int
			says   string
		}{
			{[]string{"renew"}, exitUsage, "FENCE_TOKEN"},
			{[]string{"held", "nonsense"}, exitUsage, "token"},
			{[]string{"release", "task/7@1.abc"}, exitUsage, "of a task"},
			{[]string{"acquire", "job"}, exitUsage, "--ttl"},
			{[]string{"acquire", "job", "--ttl", "1ms"}, exitUsage, "TTL"},
			{[]string{"show", "nobody"}, exitFail, "never taken"},
			{[]string{"show", ""}, exitFail, "never taken"},
		} {
			if out := lease(test.status, test.args...); !strings.Contains(out, test.says) {
				t.Errorf("lease %v says %q, want it to name %q", test.args, out, test.says)
			}
		}
	})
}

func TestLeaseList(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "lastword.db")
	must(t, "migrate", "--db", db)
	insert := `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1203)
		INSERT INTO lastword_leases (name, fence, ttl_ms, acquired_at, updated_at, holder) SELECT 'job' || i, i, 1000, 1, 1, 'h' FROM n`
	if _, err := openDB(t, db).ExecContext(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(must(t, "lease", "ls", "--db", db), "\n"); lines != 1204 {
		t.Errorf("ls printed %d lines for 1203 leases", lines)
	}
	for _, name := range []string{"job1", "job77", "job999", "job1203"} {
		if out := must(t, "lease", "show", "--db", db, name); !strings.Contains(out, "fence "+strings.TrimPrefix(name, "job")+"\n") {
			t.Errorf("show %s printed %s", name, out)
		}
	}
}

func TestMigrate(t *testing.T) {
	onEngines(t, func(t *testing.T, db string) {
		if out := must(t, "migrate", "--db", db, "--plan"); !strings.Contains(out, "no tables, would be brought to version") {
			t.Errorf("the plan for an empty database is %q", out)
		}
		if strings.HasPrefix(db, "sqlite:") && !database.Missing(db) {
			t.Error("--plan made the file")
		}
		for _, prefix := range []string{"", "other_"} {
			args := []string{"migrate", "--db", db, "--prefix", prefix, "--json"}
			for i, want := range []migration{{Have: 0, Want: 1, Applied: true}, {Have: 1, Want: 1}} {
				var got migration
				decode(t, must(t, args...), &got)
				if got.Have != want.Have && i == 0 || got.Applied != want.Applied || got.Want < 1 {
					t.Errorf("migrate with prefix %q printed %+v", prefix, got)
				}
			}
		}
		if _, err := openDB(t, db).ExecContext(t.Context(), "INSERT INTO lastword_schema (version) VALUES (1000)"); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"--plan", "--no"} {
			args := []string{"migrate", "--db", db}
			if flag == "--plan" {
				args = append(args, flag)
			}
			if status, _, stderr := run(t, args...); status != exitFail || !strings.Contains(stderr, "use a newer program") {
				t.Errorf("migrate %s on newer tables: exit status %d, %s", flag, status, stderr)
			}
		}
	})
}

// What --print prints makes the tables that Open expects.
func TestMigratePrint(t *testing.T) {
	onEngines(t, func(t *testing.T, name string) {
		db, dialect, err := database.Connect(name)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		prefixes := []string{"", "other_"}
		if dialect.Name == "postgres" {
			if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA jobs"); err != nil {
				t.Fatal(err)
			}
			prefixes = append(prefixes, "jobs.")
		}
		for _, prefix := range prefixes {
			script := must(t, "migrate", "--db", name, "--prefix", prefix, "--print")
			if _, err := db.ExecContext(t.Context(), script); err != nil {
				t.Fatalf("prefix %q: %v\n%s", prefix, err, script)
			}
			if _, err := lastword.Open(t.Context(), db, dialect, &lastword.Options{Prefix: prefix}); err != nil {
				t.Errorf("prefix %q: %v", prefix, err)
			}
			status, out, errs := run(t, "doctor", "--db", name, "--prefix", prefix)
			if status != exitDone {
				t.Errorf("doctor with prefix %q: exit status %d\n%s%s", prefix, status, out, errs)
			}
		}
		if out := must(t, "migrate", "--db", name, "--print", "--from", "1"); strings.Contains(out, "CREATE TABLE lastword_leases") {
			t.Error("--from 1 prints version 1")
		}
	})
	if out := must(t, "migrate", "--db", "postgres://nobody@192.0.2.1/x", "--print"); !strings.Contains(out, "FOR KEY SHARE") {
		t.Errorf("--print without a server printed %s", out)
	}
	for _, args := range [][]string{{"--print", "--from", "99"}, {"--print", "--plan"}, {"--prefix", "no-good"}, {"--print", "--prefix", "no-good"}} {
		db := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
		if status, _, stderr := run(t, append([]string{"migrate", "--db", db}, args...)...); status != exitUsage {
			t.Errorf("migrate %v: exit status %d, %s", args, status, stderr)
		}
	}
}

func TestDoctorCommand(t *testing.T) {
	dir := t.TempDir()
	missing := "sqlite:" + filepath.Join(dir, "missing.db")
	if status, stdout, _ := run(t, "doctor", "--db", missing); status != exitFail || !strings.Contains(stdout, "fail  connection: there is no such file") || !database.Missing(missing) {
		t.Errorf("doctor of a file that is not there: exit status %d\n%s", status, stdout)
	}
	db := "sqlite:" + filepath.Join(dir, "lastword.db")
	must(t, "migrate", "--db", db)
	var findings []struct{ Check, Status, Says, Mend string }
	decode(t, must(t, "doctor", "--db", db, "--json"), &findings)
	if len(findings) < 8 || findings[0].Check != "connection" || findings[0].Status != "ok" {
		t.Errorf("doctor --json printed %+v", findings)
	}
	if _, err := openDB(t, db).ExecContext(t.Context(), "INSERT INTO lastword_schema (version) VALUES (1000)"); err != nil {
		t.Fatal(err)
	}
	if status, stdout, _ := run(t, "doctor", "--db", db); status != exitFail || !strings.Contains(stdout, "fail  schema: tables of version 1000, newer") || !strings.Contains(stdout, "mend: use a newer lastword") {
		t.Errorf("doctor of newer tables: exit status %d\n%s", status, stdout)
	}
}

func TestLeaseRevoke(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(engine.name, func(t *testing.T) {
			db := engine.db(t)
			token := strings.TrimSpace(must(t, "--db", db, "lease", "acquire", "nightly", "--ttl", "1h"))
			if out := must(t, "--db", db, "lease", "revoke", "nightly"); !strings.Contains(out, "fence 1 → 2") {
				t.Errorf("revoke printed %q", out)
			}
			if status, _, stderr := run(t, "--db", db, "lease", "renew", token); status != exitLost || !strings.Contains(stderr, "fenced") {
				t.Errorf("renewing what was revoked: exit status %d, %s", status, stderr)
			}
			if status, _, stderr := run(t, "--db", db, "lease", "revoke", "never"); status != exitFail || !strings.Contains(stderr, "not found") {
				t.Errorf("revoking a name that was never acquired: exit status %d, %s", status, stderr)
			}
		})
	}
}
