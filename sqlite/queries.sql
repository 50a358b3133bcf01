-- Every statement of lastword on SQLite. The files of the other engines have the same sections in the same order, with the
-- same parameters. A parameter is written @name; the prefix "lastword_" is replaced by the one given to Open. An empty
-- section means that this engine does without it; {now} stands for what "define" gives it. Times are milliseconds since 1970-01-01 UTC.
-- SQLite has one writer: a statement that writes has the whole database to itself until its transaction ends, so nothing here
-- locks rows or skips them, and 'now' is read after the wait for the lock.

-- define: now = CAST(round(unixepoch('subsec') * 1000) AS INTEGER)

-- ── schema ──

-- name: MigrateLock

-- name: MigrateUnlock

-- name: SchemaExists
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'lastword_schema'

-- name: SchemaVersion
SELECT coalesce(max(version), 0) FROM lastword_schema

-- name: SchemaRecord
INSERT INTO lastword_schema (version) VALUES (@version)

-- name: SessionFault

-- Durability is a setting of the connection here (PRAGMA synchronous) and cannot change inside a transaction.
-- name: Durable

-- ── transaction ──

-- What would end a transaction is refused by its text, and there are no procedures that could do it unseen.
-- name: TxBefore

-- name: TxAfter

-- name: TxMark

-- name: TxMarked

-- ── guard ──

-- A write that changes nothing: it takes the write lock however the transaction was begun, also with an attached database.
-- name: LeaseGuard
UPDATE lastword_leases SET fence = fence
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}
RETURNING 1, NULL, NULL

-- No question of time: late but not yet reaped counts.
-- name: TaskGuard
UPDATE lastword_tasks SET generation = generation
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING 1, NULL, NULL

-- In the process of its user a transaction costs no round trip, so a single guarded write is a transaction.
-- name: GuardedWrite

-- ── leases ──

-- name: LeaseRead
SELECT fence, coalesce(owner, ''), holder, coalesce(leased_until, 0), {now},
	leased_until IS NOT NULL AND leased_until > {now}, ttl_ms, acquired_at
FROM lastword_leases WHERE name = @name

-- name: LeaseInsert
INSERT INTO lastword_leases (name, fence, owner, leased_until, ttl_ms, acquired_at, updated_at, holder)
SELECT @name, 1, @owner, {now} + @ttl_ms, @ttl_ms, {now}, {now}, @holder
WHERE true
ON CONFLICT DO NOTHING
RETURNING fence, leased_until

-- name: LeaseTake
UPDATE lastword_leases
SET fence = fence + 1, owner = @owner, leased_until = {now} + @ttl_ms, ttl_ms = @ttl_ms,
	acquired_at = {now}, updated_at = {now}, holder = @holder
WHERE name = @name AND (leased_until IS NULL OR leased_until <= {now})
RETURNING fence, leased_until

-- name: LeaseRenew
UPDATE lastword_leases
SET leased_until = {now} + ttl_ms, updated_at = {now}
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}
RETURNING leased_until

-- name: LeaseHeld
SELECT leased_until FROM lastword_leases
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}

-- name: LeaseRelease
UPDATE lastword_leases SET owner = NULL, leased_until = NULL, updated_at = {now}
WHERE name = @name AND fence = @epoch AND owner = @nonce
RETURNING fence

-- name: LeaseEnd
UPDATE lastword_leases SET leased_until = {now}, updated_at = {now} WHERE name = @name AND leased_until > {now}
RETURNING fence

-- name: LeaseRevoke
UPDATE lastword_leases SET fence = fence + 1, owner = NULL, leased_until = NULL, updated_at = {now} WHERE name = @name
RETURNING fence

-- The lease stays the holder's until its minimum has passed since the grant; nothing renews it any more.
-- name: LeaseKeep
UPDATE lastword_leases SET leased_until = acquired_at + @hold_ms, updated_at = {now}
WHERE name = @name AND fence = @epoch AND owner = @nonce AND acquired_at + @hold_ms > {now}
RETURNING fence

-- name: Leases
SELECT name, fence, coalesce(substr(owner, 1, 6), ''), holder, coalesce(leased_until, 0),
	leased_until IS NOT NULL AND leased_until > {now}, ttl_ms, acquired_at
FROM lastword_leases WHERE name > @after ORDER BY name LIMIT @limit

-- ── tasks ──

-- name: TaskInsert
INSERT INTO lastword_tasks (kind, queue, key, payload, priority, run_at, state, generation, max_attempts, max_reaps, created_at, updated_at)
VALUES (@kind, @queue, nullif(@key, ''), @payload, @priority, {now} + @delay_ms, 'pending', 1, @max_attempts, @max_reaps,
	{now}, {now})
ON CONFLICT DO NOTHING
RETURNING id

-- name: TaskRead
SELECT id, kind, queue, coalesce(key, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error,
	created_at, updated_at, coalesce(finished_at, 0), coalesce(leased_until, 0), run_at, {now}
FROM lastword_tasks WHERE id = @id

-- name: Tasks
SELECT id, kind, queue, coalesce(key, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error,
	created_at, updated_at, coalesce(finished_at, 0), coalesce(leased_until, 0), run_at, {now}
FROM lastword_tasks
WHERE (@kind = '' OR kind = @kind) AND (@state = '' OR state = @state) AND id < @before
ORDER BY id DESC LIMIT @limit

-- name: TasksAfter
SELECT id, kind, queue, coalesce(key, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error,
	created_at, updated_at, coalesce(finished_at, 0), coalesce(leased_until, 0), run_at, {now}
FROM lastword_tasks
WHERE (@kind = '' OR kind = @kind) AND (@state = '' OR state = @state) AND id > @after
ORDER BY id LIMIT @limit

-- name: TaskClaim
UPDATE lastword_tasks
SET state = 'running', attempt_id = (SELECT value FROM json_each(@attempts) WHERE key = picked.place - 1), attempt = attempt + 1,
	leased_until = {now} + @lease_ms, lease_ms = @lease_ms, holder = @holder, progress = '',
	updated_at = {now}
FROM (
	SELECT id AS picked_id, row_number() OVER (ORDER BY priority DESC, run_at, id) AS place FROM lastword_tasks
	WHERE queue = @queue AND state = 'pending' AND run_at <= {now}
		AND kind IN (SELECT value FROM json_each(@kinds))
	ORDER BY priority DESC, run_at, id LIMIT @limit
) AS picked
WHERE id = picked.picked_id
RETURNING id, kind, payload, generation, attempt_id, attempt, failures, max_attempts

-- name: TaskExtend
UPDATE lastword_tasks SET leased_until = {now} + lease_ms
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING leased_until

-- name: TaskProgress
UPDATE lastword_tasks SET progress = @progress, updated_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING 1

-- name: TaskComplete
UPDATE lastword_tasks SET state = 'succeeded', result = @result, error = '', attempt_id = NULL, leased_until = NULL,
	updated_at = {now}, finished_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING kind

-- name: TaskFail
UPDATE lastword_tasks
SET state = CASE WHEN @retry = 1 AND failures + 1 < max_attempts THEN 'pending' ELSE 'failed' END,
	run_at = {now} + @delay_ms, failures = failures + 1, error = @error, attempt_id = NULL, leased_until = NULL,
	updated_at = {now},
	finished_at = CASE WHEN @retry = 1 AND failures + 1 < max_attempts THEN NULL ELSE {now} END
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING kind, state

-- name: TaskReturn
UPDATE lastword_tasks SET state = 'pending', run_at = {now}, attempt_id = NULL, leased_until = NULL, progress = '',
	updated_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING kind

-- name: TaskRerun
UPDATE lastword_tasks
SET state = 'pending', generation = generation + 1, payload = CASE WHEN @replace = 1 THEN @payload ELSE payload END, run_at = {now} + @delay_ms,
	attempt_id = NULL, leased_until = NULL, attempt = 0, failures = 0, reaps = 0, progress = '', result = NULL, error = '',
	updated_at = {now}, finished_at = NULL
WHERE id = @id AND generation = @epoch
RETURNING kind, generation

-- name: TaskCancel
UPDATE lastword_tasks
SET state = 'cancelled', generation = generation + 1, attempt_id = NULL, leased_until = NULL, error = @reason,
	updated_at = {now}, finished_at = {now}
WHERE id = @id AND generation = @epoch AND state IN ('pending', 'waiting', 'running')
RETURNING kind, generation

-- name: TasksExpired
SELECT id, generation, attempt_id FROM lastword_tasks WHERE state = 'running' AND leased_until <= {now} ORDER BY id LIMIT @limit

-- name: TaskReap
UPDATE lastword_tasks
SET state = CASE WHEN reaps >= max_reaps THEN 'quarantined' ELSE 'pending' END, generation = generation + 1, reaps = reaps + 1, run_at = {now},
	attempt_id = NULL, leased_until = NULL, attempt = 0, progress = '', error = CASE WHEN reaps >= max_reaps THEN 'its workers were lost ' || (reaps + 1) || ' times' ELSE '' END,
	updated_at = {now}, finished_at = CASE WHEN reaps >= max_reaps THEN {now} END
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' AND leased_until <= {now}
RETURNING kind, generation, state

-- ── history ──

-- name: AttemptsOpen
INSERT INTO lastword_attempts (attempt_id, task_id, generation, number, holder, claimed_at)
SELECT attempt_id, id, generation, attempt, holder, {now} FROM lastword_tasks
WHERE state = 'running' AND attempt_id IN (SELECT value FROM json_each(@attempts)) AND id IN (SELECT value FROM json_each(@ids))

-- name: AttemptClose
UPDATE lastword_attempts SET ended_at = {now}, outcome = @outcome, result = nullif(@result, ''), error = @error
WHERE attempt_id = @nonce AND ended_at IS NULL

-- name: AttemptsRevoke
UPDATE lastword_attempts SET ended_at = {now}, outcome = @outcome, error = @error WHERE task_id = @id AND ended_at IS NULL

-- name: AttemptRead
SELECT outcome, coalesce(result, '') FROM lastword_attempts WHERE attempt_id = @nonce AND task_id = @id AND generation = @epoch

-- name: Attempts
SELECT generation, number, substr(attempt_id, 1, 6), holder, claimed_at, coalesce(ended_at, 0), outcome, coalesce(result, ''), error
FROM lastword_attempts WHERE task_id = @id ORDER BY generation, claimed_at, number

-- name: GenerationOpen
INSERT INTO lastword_generations (task_id, generation, cause, actor, reason, request_id, opened_at) VALUES (@id, @generation, @cause, @actor, @reason, @request_id, {now})

-- name: Generations
SELECT generation, cause, actor, reason, request_id, opened_at
FROM lastword_generations WHERE task_id = @id ORDER BY generation

-- ── outbox ──

-- name: OutboxInsert
INSERT INTO lastword_outbox (topic, kind, task_id, generation, next_at, created_at)
VALUES (@topic, @kind, @id, @generation, {now}, {now})

-- name: OutboxClaim
UPDATE lastword_outbox SET sends = sends + 1, next_at = {now} + @visible_ms
WHERE id IN (SELECT id FROM lastword_outbox WHERE state = 'pending' AND next_at <= {now} ORDER BY next_at, id LIMIT @limit)
RETURNING id, topic, kind, task_id, generation, sends

-- name: OutboxSent
UPDATE lastword_outbox SET state = 'sent', sent_at = {now}, error = '' WHERE id = @id AND state = 'pending' AND sends = @sends

-- name: OutboxFailed
UPDATE lastword_outbox SET state = CASE WHEN sends >= @max_sends THEN 'dead' ELSE 'pending' END, error = @error, next_at = {now} + @delay_ms
WHERE id = @id AND state = 'pending' AND sends = @sends
RETURNING state

-- ── refusals ──

-- name: RefusalUpsert
INSERT INTO lastword_refusals (kind, name, epoch, nonce_start, operation, holder, current_epoch, outcome, reason, count, first_at, last_at)
VALUES (@kind, @name, @epoch, @nonce_start, @operation, @holder, @current_epoch, @outcome, @reason, @count,
	{now}, {now})
ON CONFLICT (kind, name, epoch, nonce_start) DO UPDATE
SET operation = excluded.operation, holder = excluded.holder, current_epoch = excluded.current_epoch, outcome = excluded.outcome, reason = excluded.reason,
	count = lastword_refusals.count + excluded.count, last_at = excluded.last_at

-- name: RefusalTrim
DELETE FROM lastword_refusals WHERE last_at < (SELECT last_at FROM lastword_refusals ORDER BY last_at DESC LIMIT 1 OFFSET @keep)

-- name: Refusals
SELECT kind, name, epoch, nonce_start, operation, holder, current_epoch, outcome, reason, count, first_at, last_at
FROM lastword_refusals WHERE (@kind = '' OR kind = @kind) AND (@name = '' OR name = @name) ORDER BY last_at DESC LIMIT @limit

-- ── reconciliation ──

-- name: RunStart
INSERT INTO lastword_runs (lease, fence, owner, holder, state, mode, started_at)
VALUES (@lease, @epoch, @nonce, @holder, 'running', @mode, {now})
RETURNING id

-- name: RunFailedStart
INSERT INTO lastword_runs (lease, fence, owner, holder, state, mode, started_at, finished_at, error)
VALUES (@lease, 0, '', @holder, 'failed', @mode, {now}, {now}, @error)
RETURNING id

-- name: RunsAbandon
UPDATE lastword_runs SET state = 'abandoned', finished_at = {now}, error = 'its owner lost the lease; closed by fence ' || @epoch
WHERE lease = @lease AND state = 'running' AND (fence <> @epoch OR owner <> @nonce)

-- name: RunProgress
UPDATE lastword_runs SET checks = @checks, rows_seen = @rows_seen, orphans = @orphans, detail = @detail
WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce
RETURNING id

-- name: RunFinish
UPDATE lastword_runs SET state = @state, finished_at = {now}, checks = @checks, rows_seen = @rows_seen, orphans = @orphans, detail = @detail, error = @error
WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce
RETURNING id

-- name: Runs
SELECT id, lease, fence, holder, state, mode, started_at, coalesce(finished_at, 0), checks, rows_seen, orphans, detail, error
FROM lastword_runs WHERE (@lease = '' OR lease = @lease) AND id < @before ORDER BY id DESC LIMIT @limit
