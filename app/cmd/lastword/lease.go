package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/lastword-go/lastword"
)

type leaseCommands struct {
	Acquire leaseAcquireCommand `cmd:"" help:"Take a lease and print its token, which is a secret. Exit status 75 when another holds it."`
	Renew   leaseRenewCommand   `cmd:"" help:"Make a lease last another TTL from now. Exit status 76 when it is lost."`
	Held    leaseHeldCommand    `cmd:"" help:"Ask whether a lease is in force: exit status 0 or 76. Advice only; the guard of a write decides."`
	Release leaseReleaseCommand `cmd:"" help:"Give a lease back. Exit status 76 when it was lost."`
	Revoke  leaseRevokeCommand  `cmd:"" help:"Take a lease away from whoever holds it: what the holder still writes is refused."`
	Ls      leaseLsCommand      `cmd:"" help:"List leases by name."`
	Show    leaseShowCommand    `cmd:"" help:"Show one lease."`
}

type leaseAcquireCommand struct {
	storeFlags
	Name  string        `arg:"" help:"Name of the lease."`
	TTL   time.Duration `required:"" help:"How long the lease lives without a renewal."`
	Wait  time.Duration `default:"0s" help:"How long to wait for a held lease; negative waits without end (${default})."`
	Label string        `placeholder:"TEXT" help:"Shown to others beside host and process."`
}

// Run prints the token: the only command that prints a whole one, because its caller is the bearer.
func (a *leaseAcquireCommand) Run(ctx context.Context, p *program, c *commands) error {
	// This process ends at once; the script that started it is the holder.
	host, _ := os.Hostname()
	db, store, err := a.open(ctx, c.DB, lastword.Options{Holder: fmt.Sprintf("%s:%d", host, os.Getppid())})
	if err != nil {
		return err
	}
	defer db.Close()
	lease, err := store.Acquire(ctx, a.Name, lastword.LeaseOptions{TTL: a.TTL, Wait: a.Wait, Label: a.Label})
	if err != nil {
		return usage(err)
	}
	token := lease.Token()
	if c.JSON {
		err = printJSON(p.stdout, map[string]any{"token": token.String(), "fence": token.Epoch, "until": lease.Until()})
	} else {
		_, err = fmt.Fprintln(p.stdout, token.String())
	}
	if err != nil { // nobody has the token: do not keep others waiting
		_, releaseErr := lease.Release(ctx)
		return errors.Join(err, releaseErr)
	}
	return nil
}

// bearer is the token that a verb is about.
type bearer struct {
	storeFlags
	Token string `arg:"" optional:"" help:"The token; - or nothing takes it from FENCE_TOKEN, which others on this machine cannot read, unlike arguments."`
}

func (b *bearer) open(ctx context.Context, c *commands) (*sql.DB, *lastword.Store, lastword.Token, error) {
	text := b.Token
	if text == "" || text == "-" {
		text = os.Getenv("FENCE_TOKEN")
	}
	if text == "" {
		return nil, nil, lastword.Token{}, wrongUse("no token: give it as the argument or in FENCE_TOKEN (lastword lease acquire prints it)")
	}
	token, err := lastword.ParseToken(text)
	if err == nil && token.Kind != lastword.KindLease {
		err = wrongUse("the token is that of a %s, and this is for leases", string(token.Kind))
	}
	if err != nil {
		return nil, nil, token, usage(err)
	}
	db, store, err := b.storeFlags.open(ctx, c.DB, lastword.Options{})
	return db, store, token, err
}

type leaseRenewCommand struct{ bearer }

// Run renews, and prints the new end.
func (r *leaseRenewCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, token, err := r.open(ctx, c)
	if err != nil {
		return err
	}
	defer db.Close()
	until, err := store.Renew(ctx, token)
	if err != nil {
		return lost(flushed(ctx, store, err))
	}
	if c.JSON {
		return printJSON(p.stdout, map[string]any{"fence": token.Epoch, "until": until})
	}
	_, err = fmt.Fprintln(p.stdout, until.Format(time.RFC3339Nano))
	return err
}

// flushed records a refusal before the process ends.
func flushed(ctx context.Context, store *lastword.Store, err error) error {
	_ = store.FlushRefusals(ctx) // counts are not worth an error of their own
	return err
}

type leaseHeldCommand struct{ bearer }

// Run asks.
func (h *leaseHeldCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, token, err := h.open(ctx, c)
	if err != nil {
		return err
	}
	defer db.Close()
	held, err := store.Held(ctx, token)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(p.stdout, map[string]any{"held": held, "fence": token.Epoch}); err != nil {
			return err
		}
	}
	if !held {
		return notHeld(token)
	}
	return nil
}

func notHeld(token lastword.Token) error {
	return &exitError{status: exitLost, err: fmt.Errorf("%s is not in force any more: it was released, lost or has expired (lastword lease show %s)", token.Short(), token.Name)}
}

type leaseReleaseCommand struct{ bearer }

// Run releases.
func (r *leaseReleaseCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, token, err := r.open(ctx, c)
	if err != nil {
		return err
	}
	defer db.Close()
	released, err := store.Release(ctx, token)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(p.stdout, map[string]any{"released": released, "fence": token.Epoch}); err != nil {
			return err
		}
	}
	if !released {
		return notHeld(token)
	}
	return nil
}

type leaseRevokeCommand struct {
	storeFlags
	Name string `arg:"" help:"Name of the lease."`
}

// Run revokes.
func (l *leaseRevokeCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, err := l.open(ctx, c.DB, lastword.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	fence, err := store.Revoke(ctx, l.Name)
	if err != nil {
		return usage(err)
	}
	if c.JSON {
		return printJSON(p.stdout, map[string]any{"name": l.Name, "fence": fence})
	}
	fmt.Fprintf(p.stdout, "lease %s is free; fence %d → %d, and writes under %d or below are refused\n", l.Name, fence-1, fence, fence-1)
	return nil
}

// leaseView is a lease as it is printed: without any part of its nonce.
type leaseView struct {
	Name     string     `json:"name"`
	Fence    int64      `json:"fence"`
	Live     bool       `json:"live"`
	Until    *time.Time `json:"until"` // null when it was released
	Holder   string     `json:"holder"`
	TTL      string     `json:"ttl"`
	Acquired time.Time  `json:"acquired"`
}

func viewLease(l lastword.LeaseInfo) leaseView {
	view := leaseView{Name: l.Name, Fence: l.Fence, Live: l.Live, Holder: l.Holder, TTL: l.TTL.String(), Acquired: l.Acquired}
	if !l.Until.IsZero() {
		view.Until = &l.Until
	}
	return view
}

func (v leaseView) state() string {
	switch {
	case v.Live:
		return "held"
	case v.Until == nil:
		return "released"
	}
	return "expired"
}

func (v leaseView) until() string {
	if v.Until == nil {
		return "-"
	}
	return v.Until.Format(time.RFC3339)
}

type leaseLsCommand struct{ storeFlags }

const leasePage = 500

// Run lists all leases.
func (l *leaseLsCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, err := l.open(ctx, c.DB, lastword.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	views := []leaseView{}
	for after, more := "", true; more; {
		page, err := store.Leases(ctx, after, leasePage)
		if err != nil {
			return err
		}
		for _, info := range page {
			views, after = append(views, viewLease(info)), info.Name
		}
		more = len(page) == leasePage
	}
	if c.JSON {
		return printJSON(p.stdout, views)
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tFENCE\tSTATE\tUNTIL\tHOLDER")
	for _, v := range views {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", v.Name, v.Fence, v.state(), v.until(), v.Holder)
	}
	return table.Flush()
}

type leaseShowCommand struct {
	storeFlags
	Name string `arg:"" help:"Name of the lease."`
}

// Run shows one lease.
func (s *leaseShowCommand) Run(ctx context.Context, p *program, c *commands) error {
	db, store, err := s.open(ctx, c.DB, lastword.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	info, err := findLease(ctx, store, s.Name)
	if err != nil {
		return err
	}
	v := viewLease(info)
	if c.JSON {
		return printJSON(p.stdout, v)
	}
	holder := "holder"
	if !v.Live {
		holder = "last holder"
	}
	_, err = fmt.Fprintf(p.stdout, "lease %s: %s, fence %d\n  until %s\n  %s %s\n  acquired %s, TTL %s\n",
		v.Name, v.state(), v.Fence, v.until(), holder, v.Holder, v.Acquired.Format(time.RFC3339), v.TTL)
	return err
}

// findLease walks the list from the longest name that is surely before the one looked for.
func findLease(ctx context.Context, store *lastword.Store, name string) (lastword.LeaseInfo, error) {
	for after := name[:max(0, len(name)-1)]; ; {
		page, err := store.Leases(ctx, after, leasePage)
		if err != nil {
			return lastword.LeaseInfo{}, err
		}
		for _, info := range page {
			if info.Name == name {
				return info, nil
			}
			after = info.Name
		}
		if len(page) < leasePage || after > name {
			return lastword.LeaseInfo{}, fmt.Errorf("lease %q was never taken (lastword lease ls lists those that were)", name)
		}
	}
}
