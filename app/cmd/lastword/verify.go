package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/judge/problem"
)

type verifyCommand struct {
	Packages        []string `arg:"" placeholder:"DIR" help:"Problem packages, or folders of them; files are passed over, so that problems/* will do."`
	Sandbox         string   `enum:",cgroup,userns,none" default:"" help:"Sandbox mode: cgroup, userns or none; the strongest that works is the default."`
	UnsafeNoSandbox bool     `help:"Run the examples without a sandbox where there is none."`
}

// Run prints each example as it is judged, then the matrix, and fails if a verdict was not expected.
func (v *verifyCommand) Run(ctx context.Context, p *program, c *commands) error {
	packages, err := openPackages(v.Packages)
	if err != nil {
		return err
	}
	options := judgeOptions{Sandbox: v.Sandbox, UnsafeNoSandbox: v.UnsafeNoSandbox}
	parts, err := options.openSandbox(ctx, slog.New(slog.NewTextHandler(p.stderr, nil)))
	if err != nil {
		return err
	}
	defer parts.box.Close()
	j := judge.New(packages, parts.languages, parts.box)
	var all []judge.Verified
	for _, opened := range packages {
		if !c.JSON {
			fmt.Fprintf(p.stdout, "%s: %s, %d tests, %v, %s\n", opened.ID, opened.Name, len(opened.Tests), opened.Limits.Time, mebibytes(opened.Limits.Memory))
		}
		err := j.Verify(ctx, opened, func(verified judge.Verified) {
			all = append(all, verified)
			if !c.JSON {
				printVerified(p.stdout, verified)
			}
		})
		if err != nil {
			return err
		}
	}
	return v.conclude(p, c, all)
}

func openPackages(paths []string) (packages []*problem.Package, err error) {
	for _, path := range paths {
		path = filepath.Clean(path)
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("%w: give the path of a problem package", err)
		}
		if !info.IsDir() && len(paths) > 1 {
			continue
		}
		var opened []*problem.Package
		if hasPackages(path) {
			opened, err = problem.OpenAll(path)
		} else {
			var one *problem.Package
			one, err = problem.Open(path)
			opened = append(opened, one)
		}
		if err != nil {
			return nil, err
		}
		packages = append(packages, opened...)
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("%s: no problem package among these", strings.Join(paths, " "))
	}
	return packages, nil
}

// hasPackages tells a folder of packages from a package.
func hasPackages(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "problem.yaml")); err == nil {
		return false
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*", "problem.yaml"))
	return len(found) > 0
}

func (v *verifyCommand) conclude(p *program, c *commands, all []judge.Verified) error {
	wrong := 0
	for _, verified := range all {
		if !verified.OK() {
			wrong++
		}
	}
	if c.JSON {
		if err := printJSON(p.stdout, all); err != nil {
			return err
		}
	} else {
		printMatrix(p.stdout, all)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d submissions got a verdict that was not expected", wrong, len(all))
	}
	if len(all) == 0 {
		return fmt.Errorf("the packages have no example submissions: put some into submissions/accepted and so on")
	}
	return nil
}

func printVerified(out io.Writer, v judge.Verified) {
	mark := "ok"
	if !v.OK() {
		mark = "NOT EXPECTED"
	}
	given := string(v.Given)
	if given == "" {
		given = "–"
	}
	fmt.Fprintf(out, "  %-40s expected %-4s given %-4s %6d ms %10s  %s\n", v.Name, verdictList(v.Expected), given, v.TimeMs, mebibytes(v.Memory), mark)
	if !v.OK() && v.Message != "" {
		fmt.Fprintf(out, "    %s\n", strings.ReplaceAll(strings.TrimSpace(v.Message), "\n", "\n    "))
	}
}

func verdictList(verdicts []judge.Verdict) string {
	names := make([]string, len(verdicts))
	for i, verdict := range verdicts {
		names[i] = string(verdict)
	}
	return strings.Join(names, "/")
}

// printMatrix counts the examples by what they expect (rows) and what they got (columns).
func printMatrix(out io.Writer, all []judge.Verified) {
	counts := map[string]map[string]int{}
	var rows, columns []string
	for _, v := range all {
		expected, given := verdictList(v.Expected), string(v.Given)
		if counts[expected] == nil {
			counts[expected] = map[string]int{}
			rows = append(rows, expected)
		}
		if !slices.Contains(columns, given) {
			columns = append(columns, given)
		}
		counts[expected][given]++
	}
	slices.Sort(rows)
	slices.Sort(columns)
	fmt.Fprintln(out, "\nexpected (rows) and given (columns)")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\t%s\t\n", strings.Join(columns, "\t"))
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t", row)
		for _, column := range columns {
			if n := counts[row][column]; n > 0 {
				fmt.Fprintf(table, "%d\t", n)
			} else {
				fmt.Fprint(table, "·\t")
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
