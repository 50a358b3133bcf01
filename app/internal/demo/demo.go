// Package demo plays Lastword's two stories on real processes and real time limits. Each is played unguarded first, where the stale
// write must land, and then guarded, where it must be refused.
package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/judge"
)

// Options of a demo.
type Options struct {
	Executable string // lastword itself: it is started again for each process
	Database   string // the --db that the processes get; its tables are the demo's alone
	Lease      time.Duration
	Out        io.Writer
}

// ErrShown is returned when a story did not show what it must: the control did not lose, or the guard did not hold.
var ErrShown = errors.New("the demo did not show what it must")

// stage is what the stories share.
type stage struct {
	Options
	db      *sql.DB
	store   *lastword.Store
	archive *judge.Archive
	started time.Time
}

// Run plays both stories and returns ErrShown, wrapped, if one of them went wrong.
func Run(ctx context.Context, db *sql.DB, store *lastword.Store, opts Options) error {
	archive, err := judge.OpenArchive(ctx, store)
	if err != nil {
		return err
	}
	s := &stage{Options: opts, db: db, store: store, archive: archive}
	for _, table := range []string{
		`CREATE TABLE IF NOT EXISTS demo_report (id integer PRIMARY KEY, orphans bigint NOT NULL, written_by text NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS demo_scoreboard (submission_id bigint PRIMARY KEY, verdict text NOT NULL, written_by text NOT NULL)`,
	} {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return fmt.Errorf("make the demo's tables: %w", err)
		}
	}
	stories := []struct {
		title string
		play  func(ctx context.Context, guarded bool) (landed bool, err error)
	}{
		{"Story 1: a reconciler is paused, loses its lease, and wakes up with an old report", s.reconcilerStory},
		{"Story 2: a judge worker is paused, its submission is judged again, and its old verdict arrives last", s.judgeStory},
	}
	var wrong []error
	for _, story := range stories {
		fmt.Fprintf(opts.Out, "\n%s\n", story.title)
		for _, guarded := range []bool{false, true} {
			if err := s.playOnce(ctx, story.play, guarded); err != nil {
				if !errors.Is(err, ErrShown) {
					return err
				}
				wrong = append(wrong, err)
			}
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	fmt.Fprintf(opts.Out, "\nBoth stories: unguarded, the stale write landed; guarded, it was refused and nothing was overwritten.\n")
	return nil
}

func (s *stage) playOnce(ctx context.Context, play func(context.Context, bool) (bool, error), guarded bool) error {
	how := "without the guard: the stale write must land, or this demo proves nothing"
	if guarded {
		how = "with the guard"
	}
	fmt.Fprintf(s.Out, "\n  %s\n", how)
	s.started = time.Now()
	landed, err := play(ctx, guarded)
	switch {
	case err != nil:
		return err
	case landed && guarded:
		s.say("WRONG: the stale write landed although it was guarded")
		return fmt.Errorf("%w: a guarded stale write landed", ErrShown)
	case !landed && !guarded:
		s.say("WRONG: the control did not lose")
		return fmt.Errorf("%w: the unguarded stale write did not land", ErrShown)
	}
	return nil
}

// say prints one line of the story with the time since it began.
func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.Out, "  %6.2f s  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
}

// refusal says what became of the stale write, in the words of the process that tried it.
func (s *stage) refusal(who string, m message) {
	s.say("%s was refused: its token is %s, in force is %d", who, m.Token, m.Current)
	s.say("  because %s", m.Reason)
}

// until asks again and again until ask says yes; the clocks that decide here are real ones.
func until(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("%s did not happen within 30 s", what))
	defer cancel()
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}
