// Command lastword is the server, the console and the command line of Lastword.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/sandbox"
)

// The exit statuses, part of the interface.
const (
	exitDone  = 0
	exitFail  = 1
	exitUsage = 2
	exitHeld  = 75 // held by another: sysexits' EX_TEMPFAIL
	exitLost  = 76
)

func main() {
	sandbox.Main() // does not return in a process that the sandbox started
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// program is lastword with its streams, so that tests can start it in their own process.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

type commands struct {
	DB     string `name:"db" env:"LASTWORD_DB" default:"sqlite:lastword.db" placeholder:"URL" help:"Database: sqlite:PATH or postgres://user@host/name (${env})."`
	Server string `env:"LASTWORD_SERVER" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Server that judge submit, show, ls and rejudge talk to (${env})."`
	JSON   bool   `name:"json" help:"Print data as JSON."`

	Serve     serveCommand     `cmd:"" help:"Run everything in one process: API, page, relay, reaper, judge workers and the nightly reconciler."`
	Judge     judgeCommands    `cmd:"" help:"Submit programs, look at them, judge them again, and verify problem packages."`
	Run       runCommand       `cmd:"" help:"Run a command under a lease."`
	Lease     leaseCommands    `cmd:"" help:"The verbs of a lease, for scripts."`
	Reconcile reconcileCommand `cmd:"" help:"Compare the judge's tables with the tasks, as a singleton job under a fenced lease."`
	Demo      demoCommand      `cmd:"" help:"Play the two stories on real processes: first unguarded, which must lose, then guarded."`
	Migrate   migrateCommand   `cmd:"" help:"Make lastword's tables or bring them up to this version, or say what that would do."`
	Doctor    doctorCommand    `cmd:"" help:"Look for what would break lastword's promises on this database and this machine."`
	Version   versionCommand   `cmd:"" help:"Print the version."`

	DemoProcess demoProcessCommand `cmd:"" hidden:"" help:"One process of the demo."`
	Supervise   superviseCommand   `cmd:"" hidden:"" help:"The process between lastword run and its command."`
}

func (p *program) run(ctx context.Context, args []string) int {
	var c commands
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("lastword"),
		kong.Description("Work that must not be finished twice, or by the wrong worker.\n\nExit status: 0 done, 1 failed, 2 wrong use, 75 held by another, 76 lost."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.UsageOnError(),
	)
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 {
		return exit // --help has been printed
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "lastword: %v (lastword --help lists what there is)\n", err)
		return exitUsage
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return p.exitStatus(parsed.Run(p, &c))
}

// exitError ends the program with a status of its own. What it has to say has been printed unless Err is set.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }
func (e *exitError) Unwrap() error { return e.err }

func (p *program) exitStatus(err error) int {
	if err == nil {
		return exitDone
	}
	status := exitFail
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		status, err = exit.status, exit.err
	case errors.Is(err, lastword.ErrHeld):
		status = exitHeld
	case errors.Is(err, lastword.ErrFenced):
		status = exitLost
	}
	if err != nil {
		// Some drivers indent a second line; an error is a line, and several findings are several.
		text := strings.ReplaceAll(err.Error(), "\n\t", " ")
		fmt.Fprintf(p.stderr, "lastword: %s\n", strings.TrimPrefix(text, "lastword: "))
	}
	return status
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(p *program) error {
	_, err := fmt.Fprintln(p.stdout, "lastword", version())
	return err
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
