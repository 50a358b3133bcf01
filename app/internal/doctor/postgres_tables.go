package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// table is a name of lastword's as to_regclass takes it.
func (s *Subject) table(name string) string {
	if s.Prefix == "" {
		return "lastword_" + name
	}
	return s.Prefix + name
}

func tables() []string {
	return []string{"schema", "leases", "tasks", "attempts", "generations", "outbox", "refusals", "runs"}
}

// FOR KEY SHARE and FOR UPDATE need UPDATE besides SELECT. Where row-level security hides a row, its holder is told that it was fenced.
func postgresPrivileges(ctx context.Context, s *Subject) (Finding, error) {
	var missing, hidden []string
	var role string
	if err := s.DB.QueryRowContext(ctx, "SELECT current_user").Scan(&role); err != nil {
		return Finding{}, err
	}
	for _, name := range tables() {
		for _, privilege := range []string{"SELECT", "INSERT", "UPDATE"} {
			if name == "schema" && privilege != "SELECT" {
				continue
			}
			var has, secured bool
			if err := s.DB.QueryRowContext(ctx, "SELECT has_table_privilege(to_regclass($1)::oid, $2), row_security_active(to_regclass($1)::oid)", s.table(name), privilege).Scan(&has, &secured); err != nil {
				return Finding{}, fmt.Errorf("table %s: %w", s.table(name), err)
			}
			if !has {
				missing = append(missing, privilege+" on "+s.table(name))
			}
			if secured && !slices.Contains(hidden, s.table(name)) {
				hidden = append(hidden, s.table(name))
			}
		}
	}
	switch {
	case len(missing) > 0:
		return fail(fmt.Sprintf("role %s lacks %s: locking a row for the guard needs UPDATE", role, strings.Join(missing, ", ")), "GRANT SELECT, INSERT, UPDATE ON … TO "+role), nil
	case len(hidden) > 0:
		return warn("row-level security applies to "+strings.Join(hidden, ", ")+": a hidden row looks like a lost lease or task", "exempt the role, or give it a policy for all rows"), nil
	}
	return ok("role %s may read, insert, update and lock", role), nil
}

// Only a unique index counts whose key has the fence, without a condition and without expressions: then raising the fence needs the
// strong row lock that a guard's FOR KEY SHARE holds off. Columns of INCLUDE are no part of the key.
func postgresKeys(ctx context.Context, s *Subject) (Finding, error) {
	rows, err := s.DB.QueryContext(ctx, `
		SELECT i.indexrelid::regclass::text, i.indpred IS NOT NULL, i.indexprs IS NOT NULL, i.indisvalid AND i.indisready AND i.indislive,
			(SELECT string_agg(a.attname, ',' ORDER BY a.attname) FROM pg_attribute a
				WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0 : i.indnkeyatts - 1]))
		FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisunique`, s.table("leases"))
	if err != nil {
		return Finding{}, err
	}
	defer rows.Close()
	full, flawed := map[string]bool{}, []string{}
	for rows.Next() {
		var index string
		var columns *string
		var partial, expressions, valid bool
		if err := rows.Scan(&index, &partial, &expressions, &valid, &columns); err != nil {
			return Finding{}, err
		}
		switch {
		case partial:
			flawed = append(flawed, index+" is partial")
		case expressions:
			flawed = append(flawed, index+" has expressions")
		case !valid:
			flawed = append(flawed, index+" is not valid")
		case columns != nil:
			full[*columns] = true
		}
	}
	return keys(s, full, flawed), rows.Err()
}

// keys judges the unique keys of the table of leases; full has their columns, in order of name.
func keys(s *Subject, full map[string]bool, flawed []string) Finding {
	but := ""
	if len(flawed) > 0 {
		but = " (" + strings.Join(flawed, ", ") + ")"
	}
	leases := s.table("leases")
	switch {
	case !full["name"]:
		return fail("no unique key (name) on "+leases+but+": two rows of one name are two holders of one lease", fmt.Sprintf("stop the workers, remove the row with the lower fence, then ALTER TABLE %s ADD PRIMARY KEY (name)", leases))
	case !full["fence,name"]:
		return fail("no full unique key (name, fence) on "+leases+but+": the guard locks nothing that a takeover waits for, so stale writes can commit",
			fmt.Sprintf("stop the workers, then ALTER TABLE %s ADD UNIQUE (name, fence) (on SQLite CREATE UNIQUE INDEX)", leases))
	}
	return ok("(name) and (name, fence) are unique, full and valid")
}

func postgresGuardFunction(ctx context.Context, s *Subject) (Finding, error) {
	var there, allowed bool
	name := s.table("guard") + "(text)"
	if err := s.DB.QueryRowContext(ctx, "SELECT to_regprocedure($1) IS NOT NULL, coalesce(has_function_privilege(to_regprocedure($1)::oid, 'EXECUTE'), false)", name).Scan(&there, &allowed); err != nil {
		return Finding{}, err
	}
	switch {
	case !there:
		return fail("the function "+name+" is missing: Exec and guards in SQL fail", "make it again from lastword migrate --print"), nil
	case !allowed:
		return fail("this role may not call "+name+": Exec and guards in SQL fail", "GRANT EXECUTE ON FUNCTION "+name+" TO …"), nil
	}
	return ok("%s is there", name), nil
}

func postgresCollation(ctx context.Context, s *Subject) (Finding, error) {
	rows, err := s.DB.QueryContext(ctx, `
		SELECT a.attname, c.collname, c.collisdeterministic FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
		WHERE a.attrelid = to_regclass($1) AND a.attname IN ('name', 'owner') ORDER BY a.attname`, s.table("leases"))
	if err != nil {
		return Finding{}, err
	}
	defer rows.Close()
	var loose, linguistic []string
	for rows.Next() {
		var column, collation string
		var deterministic bool
		if err := rows.Scan(&column, &collation, &deterministic); err != nil {
			return Finding{}, err
		}
		switch {
		case !deterministic:
			loose = append(loose, column+" has "+collation)
		case collation != "C" && collation != "POSIX":
			linguistic = append(linguistic, column+" has "+collation)
		}
	}
	const mend = `ALTER TABLE … ALTER COLUMN … TYPE varchar(120) COLLATE "C"`
	switch {
	case rows.Err() != nil:
		return Finding{}, rows.Err()
	case len(loose) > 0:
		return fail(strings.Join(loose, ", ")+", which takes different texts for equal: two leases can become one", mend), nil
	case len(linguistic) > 0:
		return warn(strings.Join(linguistic, ", ")+`, not "C": an update of the system's locales can break its index`, mend), nil
	}
	return ok("names compare byte for byte"), nil
}
