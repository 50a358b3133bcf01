-- Every statement of lastword on PostgreSQL. The files of the other engines have the same sections in the same order, with the
-- same parameters. A parameter is written @name; the prefix "lastword_" is replaced by the one given to Open. An empty
-- section means that this engine does without it; {durable} stands for what "define" gives it. Times come out as milliseconds since 1970-01-01 UTC.
-- The clock is clock_timestamp(), never now(): now() is the start of the transaction and would keep an expired lease alive.

-- define: durable = set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on' ELSE current_setting('synchronous_commit') END, true)
-- define: bound_idle = set_config('idle_in_transaction_session_timeout', least(nullif(round(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000), 0), greatest(held.term_ms / 3, 1000))::bigint::text, true)
-- define: watch_client = CASE WHEN current_setting('client_connection_check_interval', true) = '0' THEN set_config('client_connection_check_interval', '1000', true) END

-- ── schema ──

-- name: MigrateLock
SELECT pg_advisory_xact_lock(5427611)

-- The lock ends with the transaction that migrates.
-- name: MigrateUnlock

-- name: SchemaExists
SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('lastword_schema')

-- name: SchemaVersion
SELECT coalesce(max(version), 0) FROM lastword_schema

-- name: SchemaRecord
INSERT INTO lastword_schema (version) VALUES (@version)

-- name: SessionFault

-- Raised, never lowered: an acknowledged takeover that a crash undoes would hand out its fence twice.
-- name: Durable
SELECT {durable}

-- ── transaction ──

-- An error leaves a transaction that takes nothing but its rollback, and nothing in it can commit unseen: a procedure that commits
-- cannot be called in one.
-- name: TxBefore

-- name: TxAfter

-- name: TxMark

-- name: TxMarked

-- ── guard ──

-- FOR KEY SHARE on a row whose fence is part of a unique key: takeovers wait until the transaction ends, the holder's renewals do not.
-- The time is asked again outside, because the inner question may have been answered before a wait for the lock.
-- The two settings bound what an idle or vanished client may hold back; they are never set above what the user had.
-- name: LeaseGuard
SELECT 1,
	{bound_idle},
	{watch_client}
FROM (
	SELECT ttl_ms AS term_ms, leased_until FROM lastword_leases
	WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > clock_timestamp()
	FOR KEY SHARE
) held
WHERE held.leased_until > clock_timestamp()

-- Exclusive: an attempt has one writer. No question of time: late but not yet reaped counts.
-- name: TaskGuard
SELECT 1,
	{bound_idle},
	{watch_client}
FROM (
	SELECT lease_ms AS term_ms FROM lastword_tasks
	WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
	FOR UPDATE
) held

-- The guard raises (SQLSTATE LW001), so its order against the write does not matter: either it locks first, or it checks under a
-- lock that lasts until this statement's own commit. A CTE that only returns no row would let an unreferencing write through.
-- name: GuardedWrite
WITH written AS (
{statement}
RETURNING 1)
SELECT (SELECT count(*) FROM written), lastword_guard({token}::text)

-- ── leases ──

-- name: LeaseRead
SELECT fence, coalesce(owner, ''), holder, coalesce(floor(extract(epoch FROM leased_until) * 1000)::bigint, 0), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
	leased_until IS NOT NULL AND leased_until > clock_timestamp(), ttl_ms, floor(extract(epoch FROM acquired_at) * 1000)::bigint
FROM lastword_leases WHERE name = @name

-- Not ON CONFLICT DO UPDATE: it locks the row before it looks at its WHERE, so that trying a held lease would block.
-- name: LeaseInsert
INSERT INTO lastword_leases (name, fence, owner, leased_until, ttl_ms, acquired_at, updated_at, holder)
SELECT CAST(@name AS text), 1, CAST(@owner AS text), clock_timestamp() + CAST(@ttl_ms AS bigint) * interval '1 millisecond', CAST(@ttl_ms AS bigint), clock_timestamp(), clock_timestamp(), CAST(@holder AS text)
FROM (SELECT {durable}) durable
ON CONFLICT DO NOTHING
RETURNING fence, floor(extract(epoch FROM leased_until) * 1000)::bigint

-- Lock first, then compute leased_until: a takeover that waited would otherwise be born expired. SKIP LOCKED: expired but
-- still guarded answers at once.
-- name: LeaseTake
WITH free AS MATERIALIZED (
	SELECT name, {durable} AS durable
	FROM lastword_leases
	WHERE name = @name AND (leased_until IS NULL OR leased_until <= clock_timestamp())
	FOR UPDATE SKIP LOCKED
)
UPDATE lastword_leases l
SET fence = l.fence + 1, owner = @owner, leased_until = clock_timestamp() + CAST(@ttl_ms AS bigint) * interval '1 millisecond', ttl_ms = @ttl_ms,
	acquired_at = clock_timestamp(), updated_at = clock_timestamp(), holder = @holder
FROM free WHERE l.name = free.name AND free.durable IS NOT NULL
RETURNING l.fence, floor(extract(epoch FROM l.leased_until) * 1000)::bigint

-- The expiry is judged on the row as it was read under the lock: a renewal that waited must not revive an expired lease.
-- name: LeaseRenew
WITH mine AS MATERIALIZED (
	SELECT name, leased_until FROM lastword_leases WHERE name = @name AND fence = @epoch AND owner = @nonce FOR NO KEY UPDATE
)
UPDATE lastword_leases l
SET leased_until = clock_timestamp() + l.ttl_ms * interval '1 millisecond', updated_at = clock_timestamp()
FROM mine WHERE l.name = mine.name AND mine.leased_until > clock_timestamp()
RETURNING floor(extract(epoch FROM l.leased_until) * 1000)::bigint

-- name: LeaseHeld
SELECT floor(extract(epoch FROM leased_until) * 1000)::bigint FROM lastword_leases
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > clock_timestamp()

-- name: LeaseRelease
UPDATE lastword_leases SET owner = NULL, leased_until = NULL, updated_at = clock_timestamp()
WHERE name = @name AND fence = @epoch AND owner = @nonce
RETURNING fence

-- Ended first, in a transaction of its own: new guards fail from then on, so that the takeover below cannot be starved by guards that
-- overlap (milliseconds under six of them, against seconds).
-- name: LeaseEnd
UPDATE lastword_leases SET leased_until = clock_timestamp(), updated_at = clock_timestamp() WHERE name = @name AND leased_until > clock_timestamp()
RETURNING fence

-- name: LeaseRevoke
WITH revoked AS MATERIALIZED (
	SELECT name, {durable} AS durable FROM lastword_leases WHERE name = @name FOR UPDATE
)
UPDATE lastword_leases l SET fence = l.fence + 1, owner = NULL, leased_until = NULL, updated_at = clock_timestamp()
FROM revoked WHERE l.name = revoked.name AND revoked.durable IS NOT NULL
RETURNING l.fence

-- The lease stays the holder's until its minimum has passed since the grant; nothing renews it any more.
-- name: LeaseKeep
UPDATE lastword_leases SET leased_until = acquired_at + CAST(@hold_ms AS bigint) * interval '1 millisecond', updated_at = clock_timestamp()
WHERE name = @name AND fence = @epoch AND owner = @nonce AND acquired_at + CAST(@hold_ms AS bigint) * interval '1 millisecond' > clock_timestamp()
RETURNING fence

-- name: Leases
SELECT name, fence, coalesce(substr(owner, 1, 6), ''), holder, coalesce(floor(extract(epoch FROM leased_until) * 1000)::bigint, 0),
	leased_until IS NOT NULL AND leased_until > clock_timestamp(), ttl_ms, floor(extract(epoch FROM acquired_at) * 1000)::bigint
FROM lastword_leases WHERE name > @after ORDER BY name LIMIT @limit

-- ── tasks ──

-- name: TaskInsert
INSERT INTO lastword_tasks (kind, queue, key, payload, priority, run_at, state, generation, max_attempts, max_reaps, created_at, updated_at)
VALUES (@kind, @queue, CAST(nullif(CAST(@key AS text), '') AS varchar), @payload, @priority, clock_timestamp() + CAST(@delay_ms AS bigint) * interval '1 millisecond', 'pending', 1, @max_attempts, @max_reaps, clock_timestamp(), clock_timestamp())
ON CONFLICT DO NOTHING
RETURNING id

-- name: TaskRead
SELECT id, kind, queue, coalesce(key, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error,
	floor(extract(epoch FROM created_at) * 1000)::bigint, floor(extract(epoch FROM updated_at) * 1000)::bigint, coalesce(floor(extract(epoch FROM finished_at) * 1000)::bigint, 0),
	coalesce(floor(extract(epoch FROM leased_until) * 1000)::bigint, 0), floor(extract(epoch FROM run_at) * 1000)::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM lastword_tasks WHERE id = @id

-- name: Tasks
SELECT id, kind, queue, coalesce(key, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error,
	floor(extract(epoch FROM created_at) * 1000)::bigint, floor(extract(epoch FROM updated_at) * 1000)::bigint, coalesce(floor(extract(epoch FROM finished_at) * 1000)::bigint, 0),
	coalesce(floor(extract(epoch FROM leased_until) * 1000)::bigint, 0), floor(extract(epoch FROM run_at) * 1000)::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM lastword_tasks
WHERE (CAST(@kind AS text) = '' OR kind = @kind) AND (CAST(@state AS text) = '' OR state = @state) AND id < @before
ORDER BY id DESC LIMIT @limit

-- name: TasksAfter
SELECT id, kind, queue, coalesce(key, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error,
	floor(extract(epoch FROM created_at) * 1000)::bigint, floor(extract(epoch FROM updated_at) * 1000)::bigint, coalesce(floor(extract(epoch FROM finished_at) * 1000)::bigint, 0),
	coalesce(floor(extract(epoch FROM leased_until) * 1000)::bigint, 0), floor(extract(epoch FROM run_at) * 1000)::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM lastword_tasks
WHERE (CAST(@kind AS text) = '' OR kind = @kind) AND (CAST(@state AS text) = '' OR state = @state) AND id > @after
ORDER BY id LIMIT @limit

-- name: TaskClaim
WITH picked AS MATERIALIZED (
	SELECT id FROM lastword_tasks
	WHERE queue = @queue AND state = 'pending' AND run_at <= clock_timestamp()
		AND kind IN (SELECT json_array_elements_text(CAST(@kinds AS text)::json))
	ORDER BY priority DESC, run_at, id LIMIT @limit
	FOR UPDATE SKIP LOCKED
), numbered AS (
	SELECT id, row_number() OVER (ORDER BY id) AS place FROM picked
), minted AS (
	SELECT value AS attempt_id, ordinality AS place FROM json_array_elements_text(CAST(@attempts AS text)::json) WITH ORDINALITY
)
UPDATE lastword_tasks t
SET state = 'running', attempt_id = minted.attempt_id, attempt = t.attempt + 1, leased_until = clock_timestamp() + CAST(@lease_ms AS bigint) * interval '1 millisecond',
	lease_ms = @lease_ms, holder = @holder, progress = '', updated_at = clock_timestamp()
FROM numbered JOIN minted USING (place)
WHERE t.id = numbered.id
RETURNING t.id, t.kind, t.payload, t.generation, t.attempt_id, t.attempt, t.failures, t.max_attempts

-- name: TaskExtend
UPDATE lastword_tasks SET leased_until = clock_timestamp() + lease_ms * interval '1 millisecond'
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING floor(extract(epoch FROM leased_until) * 1000)::bigint

-- name: TaskProgress
UPDATE lastword_tasks SET progress = @progress, updated_at = clock_timestamp()
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING 1

-- name: TaskComplete
UPDATE lastword_tasks SET state = 'succeeded', result = @result, error = '', attempt_id = NULL, leased_until = NULL, updated_at = clock_timestamp(), finished_at = clock_timestamp()
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING kind

-- name: TaskFail
UPDATE lastword_tasks
SET state = CASE WHEN CAST(@retry AS integer) = 1 AND failures + 1 < max_attempts THEN 'pending' ELSE 'failed' END,
	run_at = clock_timestamp() + CAST(@delay_ms AS bigint) * interval '1 millisecond', failures = failures + 1, error = @error, attempt_id = NULL, leased_until = NULL,
	updated_at = clock_timestamp(), finished_at = CASE WHEN CAST(@retry AS integer) = 1 AND failures + 1 < max_attempts THEN NULL ELSE clock_timestamp() END
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING kind, state

-- Given back: free at once, and no failure is counted.
-- name: TaskReturn
UPDATE lastword_tasks SET state = 'pending', run_at = clock_timestamp(), attempt_id = NULL, leased_until = NULL, progress = '', updated_at = clock_timestamp()
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
RETURNING kind

-- name: TaskRerun
UPDATE lastword_tasks
SET state = 'pending', generation = generation + 1, payload = CASE WHEN CAST(@replace AS integer) = 1 THEN CAST(@payload AS text) ELSE payload END, run_at = clock_timestamp() + CAST(@delay_ms AS bigint) * interval '1 millisecond',
	attempt_id = NULL, leased_until = NULL, attempt = 0, failures = 0, reaps = 0, progress = '', result = NULL, error = '', updated_at = clock_timestamp(), finished_at = NULL
WHERE id = @id AND generation = @epoch
RETURNING kind, generation

-- name: TaskCancel
UPDATE lastword_tasks
SET state = 'cancelled', generation = generation + 1, attempt_id = NULL, leased_until = NULL, error = @reason, updated_at = clock_timestamp(), finished_at = clock_timestamp()
WHERE id = @id AND generation = @epoch AND state IN ('pending', 'waiting', 'running')
RETURNING kind, generation

-- name: TasksExpired
SELECT id, generation, attempt_id FROM lastword_tasks WHERE state = 'running' AND leased_until <= clock_timestamp() ORDER BY id LIMIT @limit

-- All that the choice rested on is tested again here, on the row as locked: a verdict or a renewal in between wins. A locked row is skipped:
-- its attempt is writing.
-- name: TaskReap
WITH lost AS MATERIALIZED (
	SELECT id FROM lastword_tasks
	WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' AND leased_until <= clock_timestamp()
	FOR UPDATE SKIP LOCKED
)
UPDATE lastword_tasks t
SET state = CASE WHEN t.reaps >= t.max_reaps THEN 'quarantined' ELSE 'pending' END, generation = t.generation + 1, reaps = t.reaps + 1, run_at = clock_timestamp(),
	attempt_id = NULL, leased_until = NULL, attempt = 0, progress = '', error = CASE WHEN t.reaps >= t.max_reaps THEN 'its workers were lost ' || (t.reaps + 1) || ' times' ELSE '' END,
	updated_at = clock_timestamp(), finished_at = CASE WHEN t.reaps >= t.max_reaps THEN clock_timestamp() END
FROM lost WHERE t.id = lost.id
RETURNING t.kind, t.generation, t.state

-- ── history ──

-- name: AttemptsOpen
INSERT INTO lastword_attempts (attempt_id, task_id, generation, number, holder, claimed_at)
SELECT attempt_id, id, generation, attempt, holder, clock_timestamp() FROM lastword_tasks
WHERE state = 'running' AND attempt_id IN (SELECT json_array_elements_text(CAST(@attempts AS text)::json)) AND id IN (SELECT json_array_elements_text(CAST(@ids AS text)::json)::bigint)

-- name: AttemptClose
UPDATE lastword_attempts SET ended_at = clock_timestamp(), outcome = @outcome, result = CAST(nullif(CAST(@result AS text), '') AS text), error = @error
WHERE attempt_id = @nonce AND ended_at IS NULL

-- name: AttemptsRevoke
UPDATE lastword_attempts SET ended_at = clock_timestamp(), outcome = @outcome, error = @error WHERE task_id = @id AND ended_at IS NULL

-- name: AttemptRead
SELECT outcome, coalesce(result, '') FROM lastword_attempts WHERE attempt_id = @nonce AND task_id = @id AND generation = @epoch

-- name: Attempts
SELECT generation, number, substr(attempt_id, 1, 6), holder, floor(extract(epoch FROM claimed_at) * 1000)::bigint, coalesce(floor(extract(epoch FROM ended_at) * 1000)::bigint, 0), outcome, coalesce(result, ''), error
FROM lastword_attempts WHERE task_id = @id ORDER BY generation, claimed_at, number

-- name: GenerationOpen
INSERT INTO lastword_generations (task_id, generation, cause, actor, reason, request_id, opened_at) VALUES (@id, @generation, @cause, @actor, @reason, @request_id, clock_timestamp())

-- name: Generations
SELECT generation, cause, actor, reason, request_id, floor(extract(epoch FROM opened_at) * 1000)::bigint
FROM lastword_generations WHERE task_id = @id ORDER BY generation

-- ── outbox ──

-- name: OutboxInsert
INSERT INTO lastword_outbox (topic, kind, task_id, generation, next_at, created_at) VALUES (@topic, @kind, @id, @generation, clock_timestamp(), clock_timestamp())

-- name: OutboxClaim
WITH due AS MATERIALIZED (
	SELECT id FROM lastword_outbox WHERE state = 'pending' AND next_at <= clock_timestamp() ORDER BY next_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
)
UPDATE lastword_outbox o SET sends = o.sends + 1, next_at = clock_timestamp() + CAST(@visible_ms AS bigint) * interval '1 millisecond'
FROM due WHERE o.id = due.id
RETURNING o.id, o.topic, o.kind, o.task_id, o.generation, o.sends

-- name: OutboxSent
UPDATE lastword_outbox SET state = 'sent', sent_at = clock_timestamp(), error = '' WHERE id = @id AND state = 'pending' AND sends = @sends

-- name: OutboxFailed
UPDATE lastword_outbox SET state = CASE WHEN sends >= @max_sends THEN 'dead' ELSE 'pending' END, error = @error, next_at = clock_timestamp() + CAST(@delay_ms AS bigint) * interval '1 millisecond'
WHERE id = @id AND state = 'pending' AND sends = @sends
RETURNING state

-- ── refusals ──

-- name: RefusalUpsert
INSERT INTO lastword_refusals (kind, name, epoch, nonce_start, operation, holder, current_epoch, outcome, reason, count, first_at, last_at)
VALUES (@kind, @name, @epoch, @nonce_start, @operation, @holder, @current_epoch, @outcome, @reason, @count, clock_timestamp(), clock_timestamp())
ON CONFLICT (kind, name, epoch, nonce_start) DO UPDATE
SET operation = excluded.operation, holder = excluded.holder, current_epoch = excluded.current_epoch, outcome = excluded.outcome, reason = excluded.reason,
	count = lastword_refusals.count + excluded.count, last_at = excluded.last_at

-- name: RefusalTrim
DELETE FROM lastword_refusals WHERE last_at < (SELECT last_at FROM lastword_refusals ORDER BY last_at DESC OFFSET @keep LIMIT 1)

-- name: Refusals
SELECT kind, name, epoch, nonce_start, operation, holder, current_epoch, outcome, reason, count, floor(extract(epoch FROM first_at) * 1000)::bigint, floor(extract(epoch FROM last_at) * 1000)::bigint
FROM lastword_refusals WHERE (CAST(@kind AS text) = '' OR kind = @kind) AND (CAST(@name AS text) = '' OR name = @name) ORDER BY last_at DESC LIMIT @limit

-- ── reconciliation ──

-- name: RunStart
INSERT INTO lastword_runs (lease, fence, owner, holder, state, mode, started_at)
VALUES (@lease, @epoch, @nonce, @holder, 'running', @mode, clock_timestamp())
RETURNING id

-- name: RunFailedStart
INSERT INTO lastword_runs (lease, fence, owner, holder, state, mode, started_at, finished_at, error)
VALUES (@lease, 0, '', @holder, 'failed', @mode, clock_timestamp(), clock_timestamp(), @error)
RETURNING id

-- name: RunsAbandon
UPDATE lastword_runs SET state = 'abandoned', finished_at = clock_timestamp(), error = 'its owner lost the lease; closed by fence ' || CAST(@epoch AS bigint)
WHERE lease = @lease AND state = 'running' AND (fence <> @epoch OR owner <> @nonce)

-- name: RunProgress
UPDATE lastword_runs SET checks = @checks, rows_seen = @rows_seen, orphans = @orphans, detail = @detail
WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce
RETURNING id

-- name: RunFinish
UPDATE lastword_runs SET state = @state, finished_at = clock_timestamp(), checks = @checks, rows_seen = @rows_seen, orphans = @orphans, detail = @detail, error = @error
WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce
RETURNING id

-- name: Runs
SELECT id, lease, fence, holder, state, mode, floor(extract(epoch FROM started_at) * 1000)::bigint, coalesce(floor(extract(epoch FROM finished_at) * 1000)::bigint, 0), checks, rows_seen, orphans, detail, error
FROM lastword_runs WHERE (CAST(@lease AS text) = '' OR lease = @lease) AND id < @before ORDER BY id DESC LIMIT @limit
