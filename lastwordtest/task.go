package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastword-go/lastword"
)

func taskPromises() []promise {
	return []promise{
		{"every statement matches its task, generation, attempt and state", statementCells},
		{"an attempt that is over can do nothing", attemptOver},
		{"two claimers never get the same attempt", twoClaimers},
		{"claims go by priority and time, and only to kinds that are named", claimOrder},
		{"a repeat of the same result is a success, another is refused", repeatedResult},
		{"effects stand exactly if the result stands", effects},
		{"failures are counted to their budget, with a backoff", failureBudget},
		{"what is given back is free at once and no failure", givenBack},
		{"a key has one live task", keys},
		{"a rerun takes a new payload and fences at once", rerun},
		{"cancel ends what is live, and nothing else", cancel},
		{"tasks are refused before the database is asked", badTasks},
		{"an id is never used again", idsNotReused},
		{"submit is all or none, also in the caller's transaction", submitInTx},
	}
}

func (w *world) kind() string { return fmt.Sprintf("kind-%d", w.next()) }

func (w *world) submit(kind string, payload any) int64 {
	w.Helper()
	return w.submitTask(lastword.NewTask(kind, payload))
}

func (w *world) submitTask(task lastword.Task) int64 {
	w.Helper()
	ids, err := w.store.Submit(w.ctx, nil, task)
	if err != nil || len(ids) != 1 {
		w.Fatalf("submit: %v, %v", ids, err)
	}
	return ids[0]
}

func (w *world) claim(s *lastword.Store, kind string) *lastword.Attempt {
	w.Helper()
	claimed, err := s.Claim(w.ctx, lastword.ClaimOptions{Kinds: []string{kind}, Lease: time.Hour})
	if err != nil || len(claimed) != 1 {
		w.Fatalf("claim %s: %d attempts, %v", kind, len(claimed), err)
	}
	return claimed[0]
}

func (w *world) task(id int64) lastword.TaskInfo {
	w.Helper()
	task, err := w.store.Task(w.ctx, id)
	w.must(err, "task")
	return task
}

// everything is all that the library keeps of a task, as text; the time of the reading aside.
func (w *world) everything(id int64) string {
	w.Helper()
	return strings.Join([]string{
		w.rows(`SELECT * FROM lastword_tasks WHERE id = ?`, id),
		w.rows(`SELECT * FROM lastword_attempts WHERE task_id = ? ORDER BY claimed_at, attempt_id`, id),
		w.rows(`SELECT * FROM lastword_generations WHERE task_id = ? ORDER BY generation`, id),
		w.rows(`SELECT * FROM lastword_outbox WHERE task_id = ? ORDER BY id`, id),
	}, "\n--\n")
}

func (w *world) events(id int64) string {
	w.Helper()
	return w.rows(`SELECT topic FROM lastword_outbox WHERE task_id = ? ORDER BY id`, id)
}

// taskStatements are the statements that carry a token or a generation, and the states in which they may match.
var taskStatements = []struct {
	name   string
	states []lastword.State
	nonce  bool // matches the attempt too
}{
	{"TaskGuard", []lastword.State{lastword.Running}, true},
	{"TaskExtend", []lastword.State{lastword.Running}, true},
	{"TaskProgress", []lastword.State{lastword.Running}, true},
	{"TaskComplete", []lastword.State{lastword.Running}, true},
	{"TaskFail", []lastword.State{lastword.Running}, true},
	{"TaskReturn", []lastword.State{lastword.Running}, true},
	{"TaskReap", []lastword.State{lastword.Running}, true},
	{"TaskCancel", []lastword.State{lastword.Pending, lastword.Waiting, lastword.Running}, false},
	{"TaskRerun", allStates, false},
}

var allStates = []lastword.State{lastword.Pending, lastword.Waiting, lastword.Running, lastword.Succeeded, lastword.Failed, lastword.Cancelled, lastword.Quarantined}

// statementCells runs each statement against each state, with a full match and with each single mismatch, in a transaction
// that is rolled back.
func statementCells(w *world) {
	kind := w.kind()
	id, other := w.submit(kind, "x"), w.submit(kind, "x")
	w.exec(`UPDATE lastword_tasks SET generation = 5 WHERE id IN (?, ?)`, id, other)
	const nonce = "THEATTEMPTTHEATTEMPT"
	cells := 0
	for _, s := range taskStatements {
		for _, state := range allStates {
			for what, change := range map[string]lastword.Args{
				"match": {}, "id": {"id": int64(1 << 40)}, "higher generation": {"epoch": int64(6)}, "lower generation": {"epoch": int64(4)},
				"attempt": {"nonce": "ANOTHERATTEMPTANOTHER"}, "attempt's start": {"nonce": nonce[:6]}, "attempt in lower": {"nonce": strings.ToLower(nonce)},
				"not expired": {},
			} {
				args := lastword.Args{"id": id, "epoch": int64(5), "nonce": nonce, "progress": "p", "result": `"r"`, "retry": 1, "delay_ms": 0, "error": "e", "reason": "r", "replace": 0, "payload": "1"}
				for name, value := range change {
					args[name] = value
				}
				_, changesNonce := change["nonce"]
				want := slices.Contains(s.states, state) && (len(change) == 0 || changesNonce && !s.nonce) && (s.name != "TaskReap" || what != "not expired")
				w.statementCell(s.name, state, what, args, id, nonce, want)
				cells++
			}
		}
	}
	w.Logf("%d cells", cells)
}

func (w *world) statementCell(name string, state lastword.State, what string, args lastword.Args, id int64, nonce string, want bool) {
	w.Helper()
	tx, err := w.db.BeginTx(w.ctx, nil)
	w.must(err, "begin")
	defer tx.Rollback()
	attempt, ms := any(nil), -1000
	if state == lastword.Running {
		attempt = nonce
	}
	if what == "not expired" {
		ms = 60_000
	}
	_, err = tx.ExecContext(w.ctx, w.sql(`UPDATE lastword_tasks SET state = ?, attempt_id = ?, leased_until = `+w.engine.FromNow(ms)+` WHERE id = ?`), string(state), attempt, id)
	w.must(err, "prepare the row")
	snapshot := func() (out string) {
		rows, err := tx.QueryContext(w.ctx, w.sql(`SELECT id, state, generation, coalesce(attempt_id, ''), failures, reaps, progress, error FROM lastword_tasks WHERE generation >= 4 ORDER BY id`))
		w.must(err, "snapshot")
		defer rows.Close()
		for rows.Next() {
			var id, generation, failures, reaps int64
			var state, attempt, progress, message string
			w.must(rows.Scan(&id, &state, &generation, &attempt, &failures, &reaps, &progress, &message), "scan")
			out += fmt.Sprintln(id, state, generation, attempt, failures, reaps, progress, message)
		}
		w.must(rows.Err(), "snapshot")
		return out
	}
	before := snapshot()
	rows := w.section(tx, name, args)
	matched := rows != ""
	if strings.Contains(rows, "\n") {
		w.Errorf("%s answers with more than one row: %s", name, rows)
	}
	if matched != want {
		w.Errorf("%s of a %s task, %s: matched is %v", name, state, what, matched)
	}
	if changes := name != "TaskGuard" && name != "TaskExtend" && want; (snapshot() != before) != changes {
		w.Errorf("%s of a %s task, %s: changed the rows: %v", name, state, what, !changes)
	}
	w.cell()
}

// attemptOver checks the whole calls, with what they leave behind: nothing.
func attemptOver(w *world) {
	for _, how := range []string{"rerun", "cancelled", "reaped", "completed", "failed", "returned", "claimed again"} {
		kind := w.kind()
		id := w.submit(kind, "x")
		a := w.claim(w.store, kind)
		var err error
		switch how {
		case "rerun":
			_, err = w.storeB.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{})
		case "cancelled":
			err = w.storeB.Cancel(w.ctx, nil, id, 1, "", "enough")
		case "reaped":
			w.lose(id)
			_, err = w.storeB.Reap(w.ctx, 10)
		case "completed":
			err = a.Complete(w.ctx, "x", nil)
		case "failed":
			err = a.Fail(w.ctx, lastword.Permanent(errors.New("x")))
		case "returned", "claimed again":
			if err = a.Return(w.ctx); how == "claimed again" {
				w.claim(w.storeB, kind)
			}
		}
		w.must(err, how)
		before := w.everything(id)
		n := w.next() * 10
		calls := map[string]error{
			"complete": a.Complete(w.ctx, "late", nil),
			"complete with effects": a.Complete(w.ctx, "late", func(ctx context.Context, tx *sql.Tx) error {
				return w.insert(ctx, tx, n)
			}),
			"fail":     a.Fail(w.ctx, errors.New("late")),
			"return":   a.Return(w.ctx),
			"progress": a.Progress(w.ctx, "late"),
			"tx":       a.Tx(w.ctx, nil, func(ctx context.Context, tx *sql.Tx) error { return w.insert(ctx, tx, n+1) }),
		}
		_, calls["extend"] = a.Extend(w.ctx)
		_, calls["exec"] = a.Exec(w.ctx, w.sql(`INSERT INTO lwt_data (id, v) VALUES (?, 'late')`), n+2)
		for call, err := range calls {
			w.want(err, lastword.ErrFenced, "%s after it was %s", call, how)
			if err != nil {
				w.noNonce(a.Token(), err.Error())
			}
			w.cell()
		}
		if after := w.everything(id); after != before {
			w.Errorf("%s: something was changed:\n%s\n\n%s", how, before, after)
		}
		if w.written(n) != 0 {
			w.Errorf("%s: effects were committed", how)
		}
	}
}

// lose ends the lease of a running attempt.
func (w *world) lose(id int64) {
	w.Helper()
	if w.exec(`UPDATE lastword_tasks SET leased_until = `+w.engine.FromNow(-1000)+` WHERE id = ? AND state = 'running'`, id) != 1 {
		w.Fatalf("task %d does not run", id)
	}
}

func twoClaimers(w *world) {
	kind := w.kind()
	const tasks = 40
	for range tasks {
		w.submit(kind, "x")
	}
	var mu sync.Mutex
	seen, nonces := map[int64]int{}, map[string]bool{}
	var group sync.WaitGroup
	for i := range 6 {
		s := []*lastword.Store{w.store, w.storeB}[i%2]
		group.Go(func() {
			for {
				claimed, err := s.Claim(w.ctx, lastword.ClaimOptions{Kinds: []string{kind}, Limit: 3, Lease: time.Hour})
				if err != nil {
					w.Errorf("claim: %v", err)
					return
				}
				if len(claimed) == 0 {
					return
				}
				mu.Lock()
				for _, a := range claimed {
					seen[a.ID()]++
					nonces[a.Token().Nonce] = true
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if left := w.count(`SELECT count(*) FROM lastword_tasks WHERE kind = ? AND state = 'pending'`, kind); len(seen) != tasks || len(nonces) != tasks || left != 0 {
		w.Errorf("%d tasks with %d attempt ids were claimed of %d, %d are left", len(seen), len(nonces), tasks, left)
	}
	for id, n := range seen {
		if n != 1 {
			w.Errorf("task %d was claimed %d times", id, n)
		}
	}
	w.cell()
}

func claimOrder(w *world) {
	kind, otherKind := w.kind(), w.kind()
	low := w.submitTask(lastword.Task{Kind: kind, Priority: -1})
	first := w.submitTask(lastword.Task{Kind: kind})
	second := w.submitTask(lastword.Task{Kind: kind})
	high := w.submitTask(lastword.Task{Kind: kind, Priority: 7})
	late := w.submitTask(lastword.Task{Kind: kind, Priority: 9, Delay: time.Hour})
	elsewhere := w.submitTask(lastword.Task{Kind: kind, Priority: 9, Queue: "elsewhere"})
	w.submit(otherKind, "x")
	for _, want := range []int64{high, first, second, low} {
		if a := w.claim(w.store, kind); a.ID() != want || a.Generation() != 1 || a.Number() != 1 || a.Kind() != kind {
			w.Errorf("claimed task %d, want %d", a.ID(), want)
		}
	}
	if claimed, err := w.store.Claim(w.ctx, lastword.ClaimOptions{Kinds: []string{kind}}); err != nil || len(claimed) != 0 {
		w.Errorf("claimed %v, %v, though task %d is not yet due and task %d waits in another queue", claimed, err, late, elsewhere)
	}
	if claimed, err := w.store.Claim(w.ctx, lastword.ClaimOptions{Kinds: []string{kind, otherKind}, Queue: "elsewhere", Limit: 1000}); err != nil || len(claimed) != 1 || claimed[0].ID() != elsewhere {
		w.Errorf("from another queue: %v, %v", claimed, err)
	}
	for _, bad := range []lastword.ClaimOptions{{}, {Kinds: []string{kind}, Limit: 1001}, {Kinds: []string{kind}, Lease: time.Millisecond}} {
		_, err := w.store.Claim(w.ctx, bad)
		w.want(err, lastword.ErrInvalid, "claim %+v", bad)
	}
	w.cell()
}
