package judge

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/reconcile"
)

// Checks are the judge's comparisons of its own tables with the tasks.
func (a *Archive) Checks() []reconcile.Check {
	return []reconcile.Check{
		{Name: "submission without task", Page: a.pageOfSubmissions},
		{Name: "ended task without verdict", Page: a.pageOfTasks},
	}
}

func after(q reconcile.PageQuery) (int64, error) {
	if q.After == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(q.After, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cursor %q is no id: %w", q.After, err)
	}
	return id, nil
}

// pageOfSubmissions walks the submissions and asks for the tasks of the same range.
func (a *Archive) pageOfSubmissions(ctx context.Context, q reconcile.PageQuery) (*reconcile.Page, error) {
	cursor, err := after(q)
	if err != nil {
		return nil, err
	}
	var ids []int64
	err = a.all(ctx, "SubmissionsAfter", lastword.Args{"after": cursor, "limit": q.Limit}, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil || len(ids) == 0 {
		return &reconcile.Page{}, err
	}
	tasks := map[int64]bool{}
	for last := cursor; last < ids[len(ids)-1]; {
		batch, err := a.store.TasksAfter(ctx, last, lastword.TaskFilter{Kind: TaskKind, Limit: q.Limit})
		if err != nil {
			return nil, err
		}
		if len(batch) == 0 {
			break
		}
		for _, task := range batch {
			tasks[task.ID] = true
		}
		last = batch[len(batch)-1].ID
	}
	page := &reconcile.Page{}
	for _, id := range ids {
		page.Rows = append(page.Rows, reconcile.Row{Key: reconcile.IntKey(id), Orphan: !tasks[id]})
	}
	return page, nil
}

// pageOfTasks walks the tasks; one that has ended owes a verdict of its generation, unless it was cancelled.
func (a *Archive) pageOfTasks(ctx context.Context, q reconcile.PageQuery) (*reconcile.Page, error) {
	cursor, err := after(q)
	if err != nil {
		return nil, err
	}
	tasks, err := a.store.TasksAfter(ctx, cursor, lastword.TaskFilter{Kind: TaskKind, Limit: q.Limit})
	if err != nil || len(tasks) == 0 {
		return &reconcile.Page{}, err
	}
	verdicts, err := a.verdicts(ctx, tasks[0].ID, tasks[len(tasks)-1].ID)
	if err != nil {
		return nil, err
	}
	page := &reconcile.Page{}
	for _, task := range tasks {
		judged := false
		for _, v := range verdicts[task.ID] {
			judged = judged || v.Generation == task.Generation
		}
		owes := task.State.Terminal() && task.State != lastword.Cancelled
		page.Rows = append(page.Rows, reconcile.Row{Key: reconcile.IntKey(task.ID), Orphan: owes && !judged})
	}
	return page, nil
}
