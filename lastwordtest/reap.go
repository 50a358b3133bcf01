package lastwordtest

import (
	"context"
	"database/sql"
	"strings"
	"sync"

	"github.com/lastword-go/lastword"
)

func reapPromises() []promise {
	return []promise{
		{"a lost worker's task runs again in the next generation", reapOnce},
		{"a verdict or a heartbeat in between wins", reapAgainstOthers},
		{"an attempt that is writing is left alone", reapGuarded},
		{"two reapers bump once", twoReapers},
		{"one bad row does not stop the pass", badRow},
		{"lost too often is quarantined, with an event", quarantined},
	}
}

func reapOnce(w *world) {
	kind := w.kind()
	id := w.submit(kind, "x")
	a := w.claim(w.store, kind)
	n, err := w.storeB.Reap(w.ctx, 100)
	if err != nil || n != 0 {
		w.Errorf("before its lease has ended: %d, %v", n, err)
	}
	w.lose(id)
	// Late but not yet reaped counts.
	_, err = a.Exec(w.ctx, w.sql(`DELETE FROM lwt_data WHERE id = ?`), -1)
	w.must(err, "a write after the lease's end, before the reaper came")
	n, err = w.storeB.Reap(w.ctx, 100)
	task := w.task(id)
	if err != nil || n != 1 || task.State != lastword.Pending || task.Generation != 2 || task.Reaps != 1 || task.Failures != 0 {
		w.Errorf("reaped %d, %v: %+v", n, err, task)
	}
	w.want(a.Complete(w.ctx, "late", nil), lastword.ErrFenced, "complete after the reaper")
	if got, want := w.events(id), lastword.TopicPending+"\n"+lastword.TopicPending; got != want {
		w.Errorf("events %q, want %q", got, want)
	}
	attempts, err := w.store.Attempts(w.ctx, id)
	if err != nil || len(attempts) != 1 || attempts[0].Outcome != "lost" {
		w.Errorf("attempts %+v, %v", attempts, err)
	}
	w.claim(w.storeB, kind)
	w.cell()
}

// reapAgainstOthers stops the reaper between its choice and its write.
func reapAgainstOthers(w *world) {
	for what, happen := range map[string]func(a *lastword.Attempt) error{
		"nothing":     func(*lastword.Attempt) error { return nil },
		"a verdict":   func(a *lastword.Attempt) error { return a.Complete(w.ctx, "r", nil) },
		"a heartbeat": func(a *lastword.Attempt) error { _, err := a.Extend(w.ctx); return err },
		"a return":    func(a *lastword.Attempt) error { return a.Return(w.ctx) },
		"a rerun": func(a *lastword.Attempt) error {
			_, err := w.store.Rerun(w.ctx, nil, a.ID(), 1, lastword.RerunOptions{})
			return err
		},
		"a new claim, lost as well": func(a *lastword.Attempt) error {
			if err := a.Return(w.ctx); err != nil {
				return err
			}
			w.claim(w.storeB, a.Kind())
			w.lose(a.ID())
			return nil
		},
	} {
		kind := w.kind()
		id := w.submit(kind, "x")
		a := w.claim(w.store, kind)
		w.lose(id)
		if chosen := w.committed("TasksExpired", lastword.Args{"limit": 1000}); !strings.Contains(chosen, a.Token().Nonce) {
			w.Errorf("the expired attempt is not found: %s", chosen)
		}
		w.must(happen(a), what)
		before := w.everything(id)
		reaped := w.committed("TaskReap", lastword.Args{"id": id, "epoch": int64(1), "nonce": a.Token().Nonce}) != ""
		if reaped != (what == "nothing") || !reaped && w.everything(id) != before {
			w.Errorf("after %s the reaper wins: %v", what, reaped)
		}
		w.exec(`UPDATE lastword_tasks SET leased_until = `+w.engine.FromNow(60_000)+` WHERE id = ?`, id)
		w.cell()
	}
}

func reapGuarded(w *world) {
	if w.engine.Dialect.SingleWriter {
		w.Skip("nothing else can be written while a guarded transaction is open")
	}
	kind := w.kind()
	id := w.submit(kind, "x")
	a := w.claim(w.store, kind)
	w.lose(id)
	err := a.Tx(w.ctx, nil, func(context.Context, *sql.Tx) error {
		reaper := async(func() error {
			n, err := w.storeB.Reap(w.ctx, 100)
			if n != 0 {
				w.Errorf("%d attempts were reaped while one was writing", n)
			}
			return err
		})
		if !w.settled(reaper.done, 0) {
			w.Error("the reaper waits for a guarded transaction")
		}
		return reaper.wait(w)
	})
	w.must(err, "Tx")
	if n, err := w.storeB.Reap(w.ctx, 100); n != 1 || err != nil {
		w.Errorf("after the transaction: %d, %v", n, err)
	}
	w.cell()
}

func twoReapers(w *world) {
	kind := w.kind()
	var ids []int64
	for range 12 {
		ids = append(ids, w.submit(kind, "x"))
		w.claim(w.store, kind)
		w.lose(ids[len(ids)-1])
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for i := range 4 {
		s := []*lastword.Store{w.store, w.storeB}[i%2]
		group.Go(func() {
			n, err := s.Reap(w.ctx, 100)
			mu.Lock()
			defer mu.Unlock()
			total += n
			if err != nil {
				w.Errorf("reap: %v", err)
			}
		})
	}
	group.Wait()
	if total != len(ids) {
		w.Errorf("%d reaped of %d", total, len(ids))
	}
	for _, id := range ids {
		if task := w.task(id); task.Generation != 2 || task.Reaps != 1 {
			w.Errorf("task %d is at generation %d after %d reaps", id, task.Generation, task.Reaps)
		}
	}
	w.cell()
}

func badRow(w *world) {
	kind := w.kind()
	var ids []int64
	for range 3 {
		ids = append(ids, w.submit(kind, "x"))
		w.claim(w.store, kind)
		w.lose(ids[len(ids)-1])
	}
	// The history has an entry that stands in the way of the middle one.
	w.exec(`INSERT INTO lastword_generations (task_id, generation, cause, actor, reason, request_id, opened_at) VALUES (?, 2, 'submit', '', '', '', `+w.engine.FromNow(0)+`)`, ids[1])
	n, err := w.storeB.Reap(w.ctx, 100)
	if n != 2 || err == nil || !strings.Contains(err.Error(), "reap task") {
		w.Errorf("%d reaped, %v", n, err)
	}
	for i, id := range ids {
		want := int64(2)
		if i == 1 {
			want = 1 // rolled back whole
		}
		if task := w.task(id); task.Generation != want || (task.State == lastword.Running) != (i == 1) {
			w.Errorf("task %d: %+v", i, task)
		}
	}
	w.exec(`DELETE FROM lastword_generations WHERE task_id = ? AND generation = 2`, ids[1])
	if n, err := w.storeB.Reap(w.ctx, 100); n != 1 || err != nil {
		w.Errorf("after the mend: %d, %v", n, err)
	}
	w.cell()
}

func quarantined(w *world) {
	for maxReaps, want := range map[int]int{0: 3, 1: 1, -1: 0} {
		kind := w.kind()
		id := w.submitTask(lastword.Task{Kind: kind, MaxReaps: maxReaps})
		for reap := 1; reap <= want+1; reap++ {
			w.claim(w.store, kind)
			w.lose(id)
			if n, err := w.storeB.Reap(w.ctx, 100); n != 1 || err != nil {
				w.Fatalf("reap %d: %d, %v", reap, n, err)
			}
		}
		task := w.task(id)
		if task.State != lastword.Quarantined || task.Reaps != want+1 || task.Failures != 0 || task.Error == "" || task.Finished.IsZero() {
			w.Errorf("MaxReaps %d: %+v", maxReaps, task)
		}
		if !strings.HasSuffix(w.events(id), lastword.TopicQuarantined) {
			w.Errorf("MaxReaps %d: events %q", maxReaps, w.events(id))
		}
		_, err := w.store.Rerun(w.ctx, nil, id, task.Generation, lastword.RerunOptions{})
		w.must(err, "rerun")
		if task := w.task(id); task.Reaps != 0 || task.State != lastword.Pending {
			w.Errorf("rerun of a quarantined task: %+v", task)
		}
		w.cell()
	}
}
