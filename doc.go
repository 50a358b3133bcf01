// Package lastword gives SQL databases fenced leases (singleton jobs) and fenced tasks (queues, judges, agent runs), and the check that
// makes both safe: the guard, run in the same transaction as the write it protects.
//
// A lease decides who may start. The fence decides who has the last word.
//
// # The idea
//
// Every grant of a right has a [Token]: (kind, name, epoch, nonce). The epoch (a lease's fence, a task's generation) never falls; the
// nonce is random and never repeated. Before a write, [Store.Tx], [Store.Exec] or [Store.Guard] locks the row that granted the token, inside the
// write's own transaction, and finds it unchanged; else the write is refused with [ErrFenced]. The lock lasts until the
// transaction ends, so nobody can take over between the check and the commit.
//
// Time, by the database's clock, only says when another may take over. Safety never rests on it, nor on any worker's clock.
//
// # Where to begin
//
// [Migrate] makes the tables and [Open] gives a [Store] on the caller's *sql.DB. [Store.WithLease] runs a singleton job.
// [Store.Submit] and a [Worker] with [Handle] run tasks. A write that must not come from a stale worker goes through the guard.
//
// # Outcomes
//
// A guarded write succeeds, or ends in one of five errors: [ErrFenced], [ErrExpired], [ErrContended], [ErrUnknown] and [ErrFailed].
// Only after ErrUnknown may it have been committed.
//
// # What is not promised
//
// Effects outside of the database are not protected by the guard: a mail that was sent is sent. The guard orders the decision; the
// receiver has to refuse or to recognise what comes twice.
package lastword
