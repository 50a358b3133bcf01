package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/database"
	"github.com/lastword-go/lastword/app/internal/judge"
	"github.com/lastword-go/lastword/app/internal/server"
	"github.com/lastword-go/lastword/reconcile"
)

type serveCommand struct {
	judgeOptions
	Listen         string        `default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Address to listen on (${default}). Loopback only: there is no access control yet."`
	JudgeWorkers   int           `default:"2" placeholder:"N" help:"Submissions judged at a time (${default})."`
	Lease          time.Duration `default:"30s" help:"How long a judging may go without a heartbeat before another worker gets it (${default})."`
	ReconcileEvery time.Duration `default:"1h" help:"How often the judge's tables are compared with the tasks; 0 never (${default})."`
}

const (
	reapEvery    = 2 * time.Second
	pollEvery    = time.Second // for what other processes submit; our own submissions wake the workers
	shutdownTime = 10 * time.Second
)

// Run serves until the context ends.
func (s *serveCommand) Run(ctx context.Context, p *program, c *commands) error {
	if err := loopbackOnly(s.Listen); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w (--listen 127.0.0.1:PORT takes another port)", s.Listen, err)
	}
	defer func() { _ = listener.Close() }() // Serve has closed it by then, unless it was never reached
	db, store, archive, err := openJudge(ctx, c.DB, log)
	if err != nil {
		return err
	}
	defer db.Close()
	parts, err := s.open(ctx, log)
	if err != nil {
		return err
	}
	defer parts.box.Close()
	fmt.Fprintf(p.stderr, "lastword %s: http://%s (loopback only: there is no access control yet)\n", version(), listener.Addr())
	fmt.Fprintf(p.stderr, "database %s; %s; languages %s; %d problems\n", database.Redacted(c.DB), parts.sandbox, parts.languageNames(), len(parts.problems))
	return s.serve(ctx, log, listener, store, archive, parts)
}

func (s *serveCommand) serve(ctx context.Context, log *slog.Logger, listener net.Listener, store *lastword.Store, archive *judge.Archive, parts *judgeParts) error {
	submitted, published := lastword.NewLocal(), lastword.NewLocal()
	web := server.New(server.Config{
		Store: store, Archive: archive, Judge: parts.judge, Problems: parts.problems, Languages: parts.languages,
		SandboxMode: string(parts.box.Mode()), Log: log, Version: version(),
		Wake: submitted.Wake,
	})
	worker := lastword.NewWorker(store, lastword.WorkerOptions{Slots: s.JudgeWorkers, Lease: s.Lease, Source: published.Source(pollEvery), Label: "judge"})
	judge.Register(worker, parts.judge, archive)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveHTTP(ctx, listener, web.Handler()) })
	group.Go(func() error { return web.Run(ctx) })
	group.Go(func() error { return worker.Run(ctx) })
	group.Go(func() error { return store.RunReaper(ctx, reapEvery) })
	group.Go(func() error { return store.Relay(ctx, sinks{archive, web, published}, submitted.Source(pollEvery)) })
	group.Go(func() error { return reconcileEvery(ctx, log, store, archive, s.ReconcileEvery) })
	err := group.Wait()
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	return errors.Join(err, store.FlushRefusals(flush))
}

// sinks publishes to each in turn. An event that one of them refuses comes to all of them again.
type sinks []lastword.Sink

// Publish implements lastword.Sink.
func (s sinks) Publish(ctx context.Context, event lastword.Event) error {
	var failures []error
	for _, sink := range s {
		failures = append(failures, sink.Publish(ctx, event))
	}
	return errors.Join(failures...)
}

func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) error {
	// Requests live no longer than the server, so that listeners on events do not hold up its end.
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stopped := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		_ = server.Shutdown(end)
	})
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// reconcileEvery runs the reconciler on a fixed interval; of several servers on one database one runs it, the others find the lease held.
func reconcileEvery(ctx context.Context, log *slog.Logger, store *lastword.Store, archive *judge.Archive, every time.Duration) error {
	if every <= 0 {
		return nil
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		report, err := reconcile.Run(ctx, store, reconcile.Options{}, archive.Checks()...)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Error("reconcile", "error", err)
		default:
			log.Info("reconcile", "state", report.State, "rows", report.Rows, "orphans", report.Orphans)
		}
	}
}

// loopbackOnly refuses an address that others could reach: whoever reaches the server may submit and rejudge.
func loopbackOnly(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return &exitError{status: exitUsage, err: fmt.Errorf("--listen %s: %w (127.0.0.1:8080 is the form)", address, err)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &exitError{status: exitUsage, err: fmt.Errorf("--listen %s: only a loopback address is allowed, because there is no access control yet; use 127.0.0.1 and a proxy that has some", address)}
	}
	return nil
}
