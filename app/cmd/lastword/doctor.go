package main

import (
	"context"
	"fmt"

	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/doctor"
)

type doctorCommand struct{ storeFlags }

// Run prints what every check found. The tables are left as they are.
func (d *doctorCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, dialect, err := database.Connect(c.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	var findings []doctor.Finding
	if database.Missing(c.DB) { // looking must not make it
		findings = append(findings, doctor.Finding{Check: "connection", Status: doctor.Fail, Says: "there is no such file", Mend: "name another with --db or LASTWORD_DB, or make it: lastword migrate"})
	} else {
		findings = doctor.Database(ctx, &doctor.Subject{DB: db, Dialect: dialect, Prefix: d.Prefix})
	}
	findings = append(findings, doctor.Machine(ctx)...)
	if c.JSON {
		if err := printJSON(p.stdout, findings); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(p.stdout, "database %s\n", database.Redacted(c.DB))
		for _, f := range findings {
			fmt.Fprintf(p.stdout, "%-4s  %s: %s\n", f.Status, f.Check, f.Says)
			if f.Mend != "" {
				fmt.Fprintf(p.stdout, "      mend: %s\n", f.Mend)
			}
		}
	}
	if doctor.Failed(findings) {
		return &exitError{status: exitFail}
	}
	return nil
}
