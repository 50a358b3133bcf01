package lastwordtest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/lastword-go/lastword"
)

func repeatedResult(w *world) {
	kind := w.kind()
	id := w.submit(kind, "x")
	a := w.claim(w.store, kind)
	runs := 0
	effect := func(context.Context, *sql.Tx) error { runs++; return nil }
	w.must(a.Complete(w.ctx, map[string]int{"n": 1}, effect), "complete")
	before := w.everything(id)
	w.want(a.Complete(w.ctx, map[string]int{"n": 1}, effect), nil, "the same result again")
	w.want(a.Complete(w.ctx, map[string]int{"n": 2}, effect), lastword.ErrFenced, "another result")
	if runs != 1 || w.everything(id) != before {
		w.Errorf("effects ran %d times, or the rows changed", runs)
	}
	// Another attempt with the same result is not the same attempt.
	_, err := w.store.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{})
	w.must(err, "rerun")
	b := w.claim(w.storeB, kind)
	w.must(b.Complete(w.ctx, map[string]int{"n": 5}, nil), "complete the rerun")
	w.want(a.Complete(w.ctx, map[string]int{"n": 5}, nil), lastword.ErrFenced, "the result of the next generation by the attempt before")
	w.want(a.Complete(w.ctx, map[string]int{"n": 1}, nil), nil, "its own result, which did stand")
	if task := w.task(id); task.Result != `{"n":5}` || task.Generation != 2 {
		w.Errorf("the task has %s at generation %d", task.Result, task.Generation)
	}
	w.cell()
}

func effects(w *world) {
	kind := w.kind()
	id, n := w.submit(kind, "x"), w.next()*10
	a := w.claim(w.store, kind)
	failure := errors.New("no")
	before := w.everything(id)
	err := a.Complete(w.ctx, "r", func(ctx context.Context, tx *sql.Tx) error {
		w.must(w.insert(ctx, tx, n), "insert")
		return failure
	})
	if !errors.Is(err, failure) || w.written(n) != 0 || w.everything(id) != before {
		w.Errorf("effects that failed: %v, %d rows, or the task was changed", err, w.written(n))
	}
	err = a.Complete(w.ctx, "r", func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "NONSENSE"); err == nil {
			w.Error("nonsense is no error")
		}
		return nil
	})
	w.want(err, lastword.ErrFailed, "effects that swallow an error")
	w.must(a.Complete(w.ctx, "r", func(ctx context.Context, tx *sql.Tx) error { return w.insert(ctx, tx, n) }), "complete")
	if got := w.task(id); w.written(n) != 1 || got.State != lastword.Succeeded || got.Result != `"r"` || got.Finished.IsZero() {
		w.Errorf("%d rows, %+v", w.written(n), got)
	}
	if got, want := w.events(id), lastword.TopicPending+"\n"+lastword.TopicSucceeded; got != want {
		w.Errorf("events %q, want %q", got, want)
	}
	// A result that cannot be stored is refused before anything.
	w.want(a.Complete(w.ctx, make(chan int), nil), lastword.ErrInvalid, "a result that is not JSON")
	w.want(a.Complete(w.ctx, strings.Repeat("x", 1<<20), nil), lastword.ErrInvalid, "a result that is too long")
	w.cell()
}

func failureBudget(w *world) {
	kind := w.kind()
	id := w.submitTask(lastword.Task{Kind: kind, MaxAttempts: 3})
	for n := 1; n <= 3; n++ {
		w.exec(`UPDATE lastword_tasks SET run_at = `+w.engine.FromNow(-1)+` WHERE id = ?`, id)
		a := w.claim(w.store, kind)
		if a.Number() != n || a.Generation() != 1 {
			w.Errorf("attempt %d of generation %d, want %d of 1", a.Number(), a.Generation(), n)
		}
		w.must(a.Fail(w.ctx, errors.New("bad luck\x00\xff")), "fail")
		want := lastword.Pending
		if n == 3 {
			want = lastword.Failed
		}
		task := w.task(id)
		if task.State != want || task.Failures != n || !strings.HasPrefix(task.Error, "bad luck") || task.Finished.IsZero() != (n < 3) {
			w.Errorf("after failure %d: %+v", n, task)
		}
		if pause := task.RunAt.Sub(task.Updated); n < 3 && (pause < 0 || pause > time.Second<<(n-1)+time.Second) {
			w.Errorf("failure %d is followed by a pause of %v", n, pause)
		}
		w.cell()
	}
	if got, want := w.events(id), lastword.TopicPending+"\n"+lastword.TopicFailed; got != want {
		w.Errorf("events %q, want %q", got, want)
	}
	id = w.submitTask(lastword.Task{Kind: kind, MaxAttempts: 3})
	w.want(w.claim(w.storeB, kind).Fail(w.ctx, nil), lastword.ErrInvalid, "a failure without a cause")
	w.exec(`UPDATE lastword_tasks SET state = 'pending', attempt_id = NULL WHERE id = ?`, id)
	w.must(w.claim(w.store, kind).Fail(w.ctx, lastword.Permanent(errors.New("never"))), "fail")
	if task := w.task(id); task.State != lastword.Failed || task.Failures != 1 {
		w.Errorf("after a permanent failure: %+v", task)
	}
	id = w.submit(kind, "x")
	w.must(w.claim(w.store, kind).Fail(w.ctx, lastword.RetryAfter(time.Hour, errors.New("later"))), "fail")
	if task := w.task(id); task.State != lastword.Pending || task.RunAt.Sub(task.Updated) < 59*time.Minute {
		w.Errorf("after RetryAfter of an hour: %+v", task)
	}
	w.cell()
}

func givenBack(w *world) {
	kind := w.kind()
	id := w.submitTask(lastword.Task{Kind: kind, MaxAttempts: 1})
	for n := 1; n <= 3; n++ {
		a := w.claim(w.store, kind) // at once
		w.must(a.Return(w.ctx), "return")
	}
	if task := w.task(id); task.State != lastword.Pending || task.Failures != 0 || task.Generation != 1 {
		w.Errorf("given back: %+v", task)
	}
	attempts, err := w.store.Attempts(w.ctx, id)
	w.must(err, "attempts")
	for _, a := range attempts {
		if a.Outcome != "returned" || a.Ended.IsZero() || len(a.NonceStart) != 6 {
			w.Errorf("attempt %+v", a)
		}
	}
	if len(attempts) != 3 || w.events(id) != lastword.TopicPending {
		w.Errorf("%d attempts, events %q", len(attempts), w.events(id))
	}
	w.cell()
}

func keys(w *world) {
	kind, other := w.kind(), w.kind()
	task := lastword.Task{Kind: kind, Key: "order 7"}
	id := w.submitTask(task)
	duplicate := func(what string, want error) {
		_, err := w.store.Submit(w.ctx, nil, task)
		w.want(err, want, "submit with a key whose task is %s", what)
		w.cell()
	}
	duplicate("pending", lastword.ErrConflict)
	a := w.claim(w.store, kind)
	duplicate("running", lastword.ErrConflict)
	w.submitTask(lastword.Task{Kind: other, Key: "order 7"}) // another kind, another key
	w.submitTask(lastword.Task{Kind: kind, Key: "order 8"})
	w.submitTask(lastword.Task{Kind: kind})
	w.submitTask(lastword.Task{Kind: kind}) // no key, no conflict
	w.must(a.Complete(w.ctx, "x", nil), "complete")
	duplicate("over", nil)
	before := w.everything(id)
	_, err := w.store.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{})
	w.want(err, lastword.ErrConflict, "rerun of a task whose key is live again")
	if w.everything(id) != before {
		w.Error("the refused rerun changed something")
	}
	w.cell()
}

func rerun(w *world) {
	for _, state := range []lastword.State{lastword.Pending, lastword.Running, lastword.Succeeded, lastword.Failed, lastword.Cancelled} {
		kind := w.kind()
		id := w.submit(kind, "plan 1")
		generation := int64(1)
		var a *lastword.Attempt
		if state != lastword.Pending && state != lastword.Cancelled {
			a = w.claim(w.store, kind)
		}
		switch state {
		case lastword.Succeeded:
			w.must(a.Complete(w.ctx, "r", nil), "complete")
		case lastword.Failed:
			w.must(a.Fail(w.ctx, lastword.Permanent(errors.New("e"))), "fail")
		case lastword.Cancelled:
			w.must(w.store.Cancel(w.ctx, nil, id, 1, "", ""), "cancel")
			generation = 2
		}
		_, err := w.store.Rerun(w.ctx, nil, id, generation+1, lastword.RerunOptions{})
		w.want(err, lastword.ErrConflict, "rerun of a generation that is not there yet")
		next, err := w.storeB.Rerun(w.ctx, nil, id, generation, lastword.RerunOptions{Payload: "plan 2", Actor: "alice", Reason: "better plan", RequestID: "r-1"})
		if err != nil || next != generation+1 {
			w.Fatalf("rerun of a %s task: %d, %v", state, next, err)
		}
		_, err = w.store.Rerun(w.ctx, nil, id, generation, lastword.RerunOptions{})
		w.want(err, lastword.ErrConflict, "the same rerun again")
		if state == lastword.Running {
			_, err = a.Extend(w.ctx)
			w.want(err, lastword.ErrFenced, "heartbeat of the attempt before")
		}
		b := w.claim(w.storeB, kind)
		var payload string
		w.must(b.Payload(&payload), "payload")
		task := w.task(id)
		if payload != "plan 2" || b.Generation() != next || b.Number() != 1 || task.Failures != 0 || task.Result != "" || task.Error != "" {
			w.Errorf("rerun of a %s task: payload %q, %+v", state, payload, task)
		}
		generations, err := w.store.Generations(w.ctx, id)
		w.must(err, "generations")
		if last := generations[len(generations)-1]; last.Generation != next || last.Cause != "rerun" || last.Actor != "alice" || last.Reason != "better plan" || last.RequestID != "r-1" {
			w.Errorf("generation %+v", last)
		}
		w.cell()
	}
	_, err := w.store.Rerun(w.ctx, nil, 1<<40, 1, lastword.RerunOptions{})
	w.want(err, lastword.ErrNotFound, "rerun of no task")
	kind := w.kind()
	id := w.submit(kind, "kept")
	_, err = w.store.Rerun(w.ctx, nil, id, 1, lastword.RerunOptions{Delay: time.Hour})
	w.must(err, "rerun")
	if task := w.task(id); task.Payload != `"kept"` || task.RunAt.Sub(task.Updated) < 59*time.Minute {
		w.Errorf("rerun in an hour without a payload: %+v", task)
	}
}

func cancel(w *world) {
	for _, state := range []lastword.State{lastword.Pending, lastword.Running, lastword.Succeeded} {
		kind := w.kind()
		id := w.submit(kind, "x")
		var a *lastword.Attempt
		if state != lastword.Pending {
			a = w.claim(w.store, kind)
		}
		var want error
		if state == lastword.Succeeded {
			w.must(a.Complete(w.ctx, "r", nil), "complete")
			want = lastword.ErrConflict
		}
		before := w.everything(id)
		w.want(w.store.Cancel(w.ctx, nil, id, 2, "", ""), lastword.ErrConflict, "cancel at another generation")
		w.want(w.store.Cancel(w.ctx, nil, id, 1, "bob", "not needed"), want, "cancel of a %s task", state)
		task := w.task(id)
		if want != nil && w.everything(id) != before {
			w.Errorf("a refused cancel changed something: %+v", task)
		}
		if want == nil && (task.State != lastword.Cancelled || task.Generation != 2 || task.Error != "not needed" || task.Finished.IsZero() || !strings.HasSuffix(w.events(id), lastword.TopicCancelled)) {
			w.Errorf("cancelled: %+v, events %q", task, w.events(id))
		}
		if state == lastword.Running {
			w.want(a.Complete(w.ctx, "late", nil), lastword.ErrFenced, "complete after cancel")
		}
		w.cell()
	}
	w.want(w.store.Cancel(w.ctx, nil, 1<<40, 1, "", ""), lastword.ErrNotFound, "cancel of no task")
}

func badTasks(w *world) {
	db := openDB(w.T, w.engine.Connector)
	s := w.open(db, "")
	_ = db.Close()
	for what, task := range map[string]lastword.Task{
		"no kind": {}, "a bad kind": {Kind: "a b"}, "a bad queue": {Kind: "k", Queue: "a b"}, "a long key": {Kind: "k", Key: strings.Repeat("k", 256)},
		"a key that is not UTF-8": {Kind: "k", Key: "\xff"}, "negative attempts": {Kind: "k", MaxAttempts: -1}, "a negative delay": {Kind: "k", Delay: -1},
		"a payload that is not JSON": {Kind: "k", Payload: make(chan int)}, "a payload that is too long": {Kind: "k", Payload: strings.Repeat("x", 1<<20)},
	} {
		_, err := s.Submit(w.ctx, nil, task)
		w.want(err, lastword.ErrInvalid, "%s", what)
		w.cell()
	}
}

func submitInTx(w *world) {
	kind := w.kind()
	_, err := w.store.Submit(w.ctx, nil, lastword.Task{Kind: kind, Key: "a"}, lastword.Task{Kind: kind, Key: "b"}, lastword.Task{Kind: kind, Key: "a"})
	w.want(err, lastword.ErrConflict, "a batch with a key twice")
	if n := w.count(`SELECT count(*) FROM lastword_tasks WHERE kind = ?`, kind); n != 0 {
		w.Errorf("%d tasks of a refused batch", n)
	}
	for _, commit := range []bool{false, true} {
		tx, err := w.db.BeginTx(w.ctx, nil)
		w.must(err, "begin")
		ids, err := w.store.Submit(w.ctx, tx, lastword.NewTask(kind, 1), lastword.NewTask(kind, 2))
		w.must(err, "submit")
		if len(ids) != 2 || ids[0] >= ids[1] {
			w.Errorf("ids %v", ids)
		}
		if commit {
			w.must(tx.Commit(), "commit")
		} else {
			w.must(tx.Rollback(), "rollback")
		}
		want := int64(0)
		if commit {
			want = 2
		}
		if n := w.count(`SELECT count(*) FROM lastword_tasks WHERE kind = ?`, kind); n != want {
			w.Errorf("committed %v: %d tasks", commit, n)
		}
		if n := w.count(`SELECT count(*) FROM lastword_outbox WHERE kind = ?`, kind); n != want {
			w.Errorf("committed %v: %d events", commit, n)
		}
		w.cell()
	}
}

// An id that came again would match an old delivery of the task that had it before.
func idsNotReused(w *world) {
	kind := w.kind()
	id := w.submit(kind, "x")
	w.exec(`DELETE FROM lastword_tasks WHERE id = ?`, id)
	if again := w.submit(kind, "x"); again <= id {
		w.Errorf("task %d after task %d was deleted", again, id)
	}
	w.cell()
}
