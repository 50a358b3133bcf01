-- Every statement of lastword on MySQL and MariaDB. The files of the other engines have the same sections in the same order, with the
-- same parameters. A parameter is written @name; the prefix "lastword_" is replaced by the one given to Open. An empty
-- section means that this engine does without it; {now} stands for what "define" gives it. Times come out as milliseconds since 1970-01-01 UTC.
-- There is no UPDATE … RETURNING: a section locks and reads, writes, and reads again where the caller wants to know what it
-- became. Rows that are read tell what happened; rows that are counted do not (clientFoundRows changes what is counted).
-- UTC_TIMESTAMP(3) is the start of its statement, so what must not be older than a lock stands in a statement after the lock.
-- SET assigns from left to right, each seeing those before it: what depends on a column stands before the column is changed.

-- define: now = UTC_TIMESTAMP(3)
-- define: until_ms = coalesce(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', leased_until) DIV 1000, 0)
-- define: acquired_ms = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at) DIV 1000
-- define: now_ms = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now}) DIV 1000
-- define: live = leased_until IS NOT NULL AND leased_until > {now}

-- ── schema ──

-- DDL commits by itself, so the lock belongs to the session. One per set of tables; its name may have 64 characters.
-- define: lock = CONCAT('lastword:', MD5(CONCAT(IF(INSTR('lastword_schema', '.') > 0, '', coalesce(DATABASE(), '')), '.lastword_schema')))
-- name: MigrateLock
SELECT GET_LOCK({lock}, 60)

-- name: MigrateUnlock
SELECT RELEASE_LOCK({lock})

-- A prefix with a dot names another database.
-- name: SchemaExists
SELECT count(*) FROM information_schema.tables
WHERE table_schema = IF(INSTR('lastword_schema', '.') > 0, SUBSTRING_INDEX('lastword_schema', '.', 1), DATABASE()) AND table_name = SUBSTRING_INDEX('lastword_schema', '.', -1)

-- name: SchemaVersion
SELECT coalesce(max(version), 0) FROM lastword_schema

-- name: SchemaRecord
INSERT INTO lastword_schema (version, applied_at) VALUES (@version, {now})

-- Without autocommit a single statement would wait for a COMMIT that nobody sends.
-- name: SessionFault
SELECT 'sessions begin with autocommit off' FROM DUAL WHERE @@SESSION.autocommit = 0

-- Durability is a setting of the server here (innodb_flush_log_at_trx_commit), and of no session.
-- name: Durable

-- ── transaction ──

-- Without autocommit, what follows a statement that ended the transaction waits in a new one, which is rolled back.
-- Only MariaDB reads the comments: it ends a transaction that idles for longer than the caller's deadline allows. {idle_s} is
-- that many seconds, 0 without a deadline.
-- name: TxBefore
SET @LASTWORD_AUTOCOMMIT = @@SESSION.autocommit, SESSION autocommit = 0
/*M!100600 , @LASTWORD_IDLE = @@SESSION.idle_transaction_timeout, SESSION idle_transaction_timeout =
	IF({idle_s} = 0, @@SESSION.idle_transaction_timeout, IF(@@SESSION.idle_transaction_timeout = 0, {idle_s}, LEAST(@@SESSION.idle_transaction_timeout, {idle_s}))) */

-- name: TxAfter
SET SESSION autocommit = @LASTWORD_AUTOCOMMIT
/*M!100600 , SESSION idle_transaction_timeout = @LASTWORD_IDLE */

-- A savepoint does not outlive its transaction, so TxMarked fails where a statement between the two has ended it.
-- name: TxMark
SAVEPOINT guarded_by_lastword

-- name: TxMarked
RELEASE SAVEPOINT guarded_by_lastword

-- ── guard ──

-- A shared lock: takeovers wait until the transaction ends, and so do the holder's own renewals. MariaDB knows no FOR SHARE.
-- The second question of time is answered after a wait for the lock: SYSDATE is the time of its call, in the session's zone.
-- name: LeaseGuard
SELECT 1, NULL, NULL FROM lastword_leases
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}
	AND leased_until > SYSDATE(3) + INTERVAL TIMESTAMPDIFF(MICROSECOND, NOW(3), {now}) MICROSECOND
LOCK IN SHARE MODE

-- Exclusive: an attempt has one writer. No question of time: late but not yet reaped counts.
-- name: TaskGuard
SELECT 1, NULL, NULL FROM lastword_tasks
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
FOR UPDATE

-- One guarded statement would be an UPDATE of the lease STRAIGHT_JOIN its target, which cannot be made from a text that is not
-- understood. So a single guarded write is a transaction.
-- name: GuardedWrite

-- ── leases ──

-- name: LeaseRead
SELECT fence, coalesce(owner, ''), holder, {until_ms}, {now_ms}, {live}, ttl_ms, {acquired_ms}
FROM lastword_leases WHERE name = @name

-- By itself, in no transaction: who locks an absent name and then inserts it deadlocks with the next who does. The row tells who
-- has won. IGNORE could hide other faults than a row that is there; the values have been checked before.
-- name: LeaseInsert
INSERT IGNORE INTO lastword_leases (name, fence, owner, leased_until, ttl_ms, acquired_at, updated_at, holder)
VALUES (@name, 1, @owner, {now} + INTERVAL @ttl_ms * 1000 MICROSECOND, @ttl_ms, {now}, {now}, @holder)

-- Lock first, then compute leased_until: a takeover that waited would otherwise be born expired. SKIP LOCKED: expired but
-- still guarded answers at once.
-- name: LeaseTake
SELECT fence, 0 FROM lastword_leases
WHERE name = @name AND (leased_until IS NULL OR leased_until <= {now})
FOR UPDATE SKIP LOCKED
-- then
UPDATE lastword_leases
SET fence = fence + 1, owner = @owner, leased_until = {now} + INTERVAL @ttl_ms * 1000 MICROSECOND, ttl_ms = @ttl_ms, acquired_at = {now}, updated_at = {now}, holder = @holder
WHERE name = @name AND (leased_until IS NULL OR leased_until <= {now})
-- then
SELECT fence, {until_ms} FROM lastword_leases WHERE name = @name AND owner = @owner

-- The expiry is judged after the wait for the lock: a renewal that waited must not revive an expired lease.
-- name: LeaseRenew
SELECT 0 FROM lastword_leases WHERE name = @name AND fence = @epoch AND owner = @nonce FOR UPDATE
-- then
UPDATE lastword_leases SET leased_until = {now} + INTERVAL ttl_ms * 1000 MICROSECOND, updated_at = {now}
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}
-- then
SELECT {until_ms} FROM lastword_leases
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}

-- name: LeaseHeld
SELECT {until_ms} FROM lastword_leases
WHERE name = @name AND fence = @epoch AND owner = @nonce AND leased_until > {now}

-- name: LeaseRelease
SELECT fence FROM lastword_leases WHERE name = @name AND fence = @epoch AND owner = @nonce FOR UPDATE
-- then
UPDATE lastword_leases SET owner = NULL, leased_until = NULL, updated_at = {now}
WHERE name = @name AND fence = @epoch AND owner = @nonce

-- name: LeaseEnd
SELECT fence FROM lastword_leases WHERE name = @name AND {live} FOR UPDATE
-- then
UPDATE lastword_leases SET leased_until = {now}, updated_at = {now} WHERE name = @name AND {live}

-- name: LeaseRevoke
SELECT fence FROM lastword_leases WHERE name = @name FOR UPDATE
-- then
UPDATE lastword_leases SET fence = fence + 1, owner = NULL, leased_until = NULL, updated_at = {now} WHERE name = @name
-- then
SELECT fence FROM lastword_leases WHERE name = @name

-- The lease stays the holder's until its minimum has passed since the grant; nothing renews it any more.
-- name: LeaseKeep
SELECT fence FROM lastword_leases
WHERE name = @name AND fence = @epoch AND owner = @nonce AND acquired_at + INTERVAL @hold_ms * 1000 MICROSECOND > {now} FOR UPDATE
-- then
UPDATE lastword_leases SET leased_until = acquired_at + INTERVAL @hold_ms * 1000 MICROSECOND, updated_at = {now}
WHERE name = @name AND fence = @epoch AND owner = @nonce

-- name: Leases
SELECT name, fence, coalesce(substr(owner, 1, 6), ''), holder, {until_ms}, {live}, ttl_ms, {acquired_ms}
FROM lastword_leases WHERE name > @after ORDER BY name LIMIT @limit

-- ── tasks ──

-- define: task_ms = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) DIV 1000, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at) DIV 1000, coalesce(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', finished_at) DIV 1000, 0), {until_ms}, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', run_at) DIV 1000
-- define: task = id, kind, queue, coalesce(`key`, ''), payload, priority, state, generation, coalesce(attempt_id, ''), holder, attempt, failures, reaps, progress, coalesce(result, ''), error, {task_ms}, {now_ms}

-- Not IGNORE, which hides every fault. A live task with the same key leaves the row as it is, and 0 as the last id.
-- name: TaskInsert
INSERT INTO lastword_tasks (kind, queue, `key`, payload, priority, run_at, state, generation, max_attempts, max_reaps, created_at, updated_at)
VALUES (@kind, @queue, CASE WHEN length(@key) > 0 THEN @key END, @payload, @priority, {now} + INTERVAL @delay_ms * 1000 MICROSECOND, 'pending', 1, @max_attempts, @max_reaps, {now}, {now})
ON DUPLICATE KEY UPDATE id = id + LAST_INSERT_ID(0)
-- then
SELECT LAST_INSERT_ID() FROM DUAL WHERE LAST_INSERT_ID() > 0

-- name: TaskRead
SELECT {task}
FROM lastword_tasks WHERE id = @id

-- name: Tasks
SELECT {task}
FROM lastword_tasks
WHERE (@kind = '' OR kind = @kind) AND (@state = '' OR state = @state) AND id < @before
ORDER BY id DESC LIMIT @limit

-- name: TasksAfter
SELECT {task}
FROM lastword_tasks
WHERE (@kind = '' OR kind = @kind) AND (@state = '' OR state = @state) AND id > @after
ORDER BY id LIMIT @limit

-- What was picked stands in a variable of the session (@ and capitals). The index gives the order, so that no more than what is
-- picked, and what lies before it with other kinds, is locked.
-- name: TaskClaim
SET @LASTWORD_PICKED = (SELECT JSON_ARRAYAGG(id) FROM (
	SELECT id FROM lastword_tasks FORCE INDEX (ready)
	WHERE state = 'pending' AND queue = @queue AND run_at <= {now} AND JSON_CONTAINS(@kinds, JSON_QUOTE(kind))
	ORDER BY urgency, run_at, id LIMIT @limit
	FOR UPDATE SKIP LOCKED
) picked)
-- then
UPDATE JSON_TABLE(@LASTWORD_PICKED, '$[*]' COLUMNS (place FOR ORDINALITY, id bigint PATH '$')) picked
	STRAIGHT_JOIN JSON_TABLE(CAST(@attempts AS CHAR), '$[*]' COLUMNS (place FOR ORDINALITY, attempt_id varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) minted ON minted.place = picked.place
	STRAIGHT_JOIN lastword_tasks t ON t.id = picked.id
SET t.state = 'running', t.attempt_id = minted.attempt_id, t.attempt = t.attempt + 1, t.leased_until = {now} + INTERVAL @lease_ms * 1000 MICROSECOND,
	t.lease_ms = @lease_ms, t.holder = @holder, t.progress = '', t.updated_at = {now}
WHERE t.state = 'pending'
-- then
SELECT t.id, t.kind, t.payload, t.generation, t.attempt_id, t.attempt, t.failures, t.max_attempts
FROM JSON_TABLE(@LASTWORD_PICKED, '$[*]' COLUMNS (place FOR ORDINALITY, id bigint PATH '$')) picked
	STRAIGHT_JOIN JSON_TABLE(CAST(@attempts AS CHAR), '$[*]' COLUMNS (place FOR ORDINALITY, attempt_id varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) minted ON minted.place = picked.place
	STRAIGHT_JOIN lastword_tasks t ON t.id = picked.id AND t.attempt_id = minted.attempt_id
WHERE t.state = 'running'

-- name: TaskExtend
SELECT 0 FROM lastword_tasks WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' FOR UPDATE
-- then
UPDATE lastword_tasks SET leased_until = {now} + INTERVAL lease_ms * 1000 MICROSECOND
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
-- then
SELECT {until_ms} FROM lastword_tasks WHERE id = @id

-- name: TaskProgress
SELECT 1 FROM lastword_tasks WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' FOR UPDATE
-- then
UPDATE lastword_tasks SET progress = @progress, updated_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'

-- name: TaskComplete
SELECT kind FROM lastword_tasks WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' FOR UPDATE
-- then
UPDATE lastword_tasks SET state = 'succeeded', result = @result, error = '', attempt_id = NULL, leased_until = NULL, updated_at = {now}, finished_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'

-- name: TaskFail
SELECT kind, state FROM lastword_tasks WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' FOR UPDATE
-- then
UPDATE lastword_tasks
SET state = CASE WHEN @retry = 1 AND failures + 1 < max_attempts THEN 'pending' ELSE 'failed' END,
	finished_at = CASE WHEN @retry = 1 AND failures + 1 < max_attempts THEN NULL ELSE {now} END,
	run_at = {now} + INTERVAL @delay_ms * 1000 MICROSECOND, failures = failures + 1, error = @error, leased_until = NULL, updated_at = {now}, attempt_id = NULL
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
-- then
SELECT kind, state FROM lastword_tasks WHERE id = @id

-- Given back: free at once, and no failure is counted.
-- name: TaskReturn
SELECT kind FROM lastword_tasks WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' FOR UPDATE
-- then
UPDATE lastword_tasks SET state = 'pending', run_at = {now}, attempt_id = NULL, leased_until = NULL, progress = '', updated_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'

-- name: TaskRerun
SELECT kind, generation FROM lastword_tasks WHERE id = @id AND generation = @epoch FOR UPDATE
-- then
UPDATE lastword_tasks
SET state = 'pending', generation = generation + 1, payload = CASE WHEN @replace = 1 THEN @payload ELSE payload END, run_at = {now} + INTERVAL @delay_ms * 1000 MICROSECOND,
	attempt_id = NULL, leased_until = NULL, attempt = 0, failures = 0, reaps = 0, progress = '', result = NULL, error = '', updated_at = {now}, finished_at = NULL
WHERE id = @id AND generation = @epoch
-- then
SELECT kind, generation FROM lastword_tasks WHERE id = @id

-- name: TaskCancel
SELECT kind, generation FROM lastword_tasks WHERE id = @id AND generation = @epoch AND state IN ('pending', 'waiting', 'running') FOR UPDATE
-- then
UPDATE lastword_tasks
SET state = 'cancelled', generation = generation + 1, attempt_id = NULL, leased_until = NULL, error = @reason, updated_at = {now}, finished_at = {now}
WHERE id = @id AND generation = @epoch AND state IN ('pending', 'waiting', 'running')
-- then
SELECT kind, generation FROM lastword_tasks WHERE id = @id

-- name: TasksExpired
SELECT id, generation, attempt_id FROM lastword_tasks WHERE state = 'running' AND leased_until <= {now} ORDER BY id LIMIT @limit

-- All that the choice rested on is tested again here, on the row as locked: a verdict or a renewal in between wins. A locked row is skipped:
-- its attempt is writing.
-- name: TaskReap
SELECT kind, generation, state FROM lastword_tasks
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running' AND leased_until <= {now}
FOR UPDATE SKIP LOCKED
-- then
UPDATE lastword_tasks
SET state = CASE WHEN reaps >= max_reaps THEN 'quarantined' ELSE 'pending' END, finished_at = CASE WHEN reaps >= max_reaps THEN {now} END,
	error = CASE WHEN reaps >= max_reaps THEN CONCAT('its workers were lost ', reaps + 1, ' times') ELSE '' END,
	generation = generation + 1, reaps = reaps + 1, run_at = {now}, attempt_id = NULL, leased_until = NULL, attempt = 0, progress = '', updated_at = {now}
WHERE id = @id AND generation = @epoch AND attempt_id = @nonce AND state = 'running'
-- then
SELECT kind, generation, state FROM lastword_tasks WHERE id = @id

-- ── history ──

-- name: AttemptsOpen
INSERT INTO lastword_attempts (attempt_id, task_id, generation, number, holder, claimed_at)
SELECT t.attempt_id, t.id, t.generation, t.attempt, t.holder, {now}
FROM JSON_TABLE(CAST(@ids AS CHAR), '$[*]' COLUMNS (id bigint PATH '$')) claimed
	STRAIGHT_JOIN lastword_tasks t ON t.id = claimed.id
	STRAIGHT_JOIN JSON_TABLE(CAST(@attempts AS CHAR), '$[*]' COLUMNS (attempt_id varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) minted ON minted.attempt_id = t.attempt_id
WHERE t.state = 'running'

-- name: AttemptClose
UPDATE lastword_attempts SET ended_at = {now}, outcome = @outcome, result = nullif(@result, ''), error = @error
WHERE attempt_id = @nonce AND ended_at IS NULL

-- name: AttemptsRevoke
UPDATE lastword_attempts SET ended_at = {now}, outcome = @outcome, error = @error WHERE task_id = @id AND ended_at IS NULL

-- name: AttemptRead
SELECT outcome, coalesce(result, '') FROM lastword_attempts WHERE attempt_id = @nonce AND task_id = @id AND generation = @epoch

-- name: Attempts
SELECT generation, number, substr(attempt_id, 1, 6), holder, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', claimed_at) DIV 1000, coalesce(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ended_at) DIV 1000, 0), outcome, coalesce(result, ''), error
FROM lastword_attempts WHERE task_id = @id ORDER BY generation, claimed_at, number

-- name: GenerationOpen
INSERT INTO lastword_generations (task_id, generation, cause, actor, reason, request_id, opened_at) VALUES (@id, @generation, @cause, @actor, @reason, @request_id, {now})

-- name: Generations
SELECT generation, cause, actor, reason, request_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', opened_at) DIV 1000
FROM lastword_generations WHERE task_id = @id ORDER BY generation

-- ── outbox ──

-- name: OutboxInsert
INSERT INTO lastword_outbox (topic, kind, task_id, generation, next_at, created_at) VALUES (@topic, @kind, @id, @generation, {now}, {now})

-- name: OutboxClaim
SET @LASTWORD_PICKED = (SELECT JSON_ARRAYAGG(id) FROM (
	SELECT id FROM lastword_outbox FORCE INDEX (due) WHERE state = 'pending' AND next_at <= {now} ORDER BY next_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
) picked)
-- then
UPDATE JSON_TABLE(@LASTWORD_PICKED, '$[*]' COLUMNS (id bigint PATH '$')) picked STRAIGHT_JOIN lastword_outbox o ON o.id = picked.id
SET o.sends = o.sends + 1, o.next_at = {now} + INTERVAL @visible_ms * 1000 MICROSECOND
-- then
SELECT o.id, o.topic, o.kind, o.task_id, o.generation, o.sends
FROM JSON_TABLE(@LASTWORD_PICKED, '$[*]' COLUMNS (id bigint PATH '$')) picked STRAIGHT_JOIN lastword_outbox o ON o.id = picked.id

-- name: OutboxSent
UPDATE lastword_outbox SET state = 'sent', sent_at = {now}, error = '' WHERE id = @id AND state = 'pending' AND sends = @sends

-- name: OutboxFailed
SELECT state FROM lastword_outbox WHERE id = @id AND state = 'pending' AND sends = @sends FOR UPDATE
-- then
UPDATE lastword_outbox SET state = CASE WHEN sends >= @max_sends THEN 'dead' ELSE 'pending' END, error = @error, next_at = {now} + INTERVAL @delay_ms * 1000 MICROSECOND
WHERE id = @id AND state = 'pending' AND sends = @sends
-- then
SELECT state FROM lastword_outbox WHERE id = @id

-- ── refusals ──

-- name: RefusalUpsert
INSERT INTO lastword_refusals (kind, name, epoch, nonce_start, operation, holder, current_epoch, outcome, reason, count, first_at, last_at)
VALUES (@kind, @name, @epoch, @nonce_start, @operation, @holder, @current_epoch, @outcome, @reason, @count, {now}, {now})
ON DUPLICATE KEY UPDATE operation = VALUES(operation), holder = VALUES(holder), current_epoch = VALUES(current_epoch), outcome = VALUES(outcome), reason = VALUES(reason),
	count = count + VALUES(count), last_at = VALUES(last_at)

-- The inner name is a copy: a table cannot be read by the DELETE from it.
-- name: RefusalTrim
DELETE FROM lastword_refusals WHERE last_at < (SELECT last_at FROM (SELECT last_at FROM lastword_refusals ORDER BY last_at DESC LIMIT 1 OFFSET @keep) oldest)

-- name: Refusals
SELECT kind, name, epoch, nonce_start, operation, holder, current_epoch, outcome, reason, count, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', first_at) DIV 1000, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', last_at) DIV 1000
FROM lastword_refusals WHERE (@kind = '' OR kind = @kind) AND (@name = '' OR name = @name) ORDER BY last_at DESC LIMIT @limit

-- ── reconciliation ──

-- name: RunStart
INSERT INTO lastword_runs (lease, fence, owner, holder, state, mode, started_at)
VALUES (@lease, @epoch, @nonce, @holder, 'running', @mode, {now})
-- then
SELECT LAST_INSERT_ID()

-- name: RunFailedStart
INSERT INTO lastword_runs (lease, fence, owner, holder, state, mode, started_at, finished_at, error)
VALUES (@lease, 0, '', @holder, 'failed', @mode, {now}, {now}, @error)
-- then
SELECT LAST_INSERT_ID()

-- name: RunsAbandon
UPDATE lastword_runs SET state = 'abandoned', finished_at = {now}, error = CONCAT('its owner lost the lease; closed by fence ', @epoch)
WHERE lease = @lease AND state = 'running' AND (fence <> @epoch OR owner <> @nonce)

-- name: RunProgress
SELECT id FROM lastword_runs WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce FOR UPDATE
-- then
UPDATE lastword_runs SET checks = @checks, rows_seen = @rows_seen, orphans = @orphans, detail = @detail
WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce

-- name: RunFinish
SELECT id FROM lastword_runs WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce FOR UPDATE
-- then
UPDATE lastword_runs SET state = @state, finished_at = {now}, checks = @checks, rows_seen = @rows_seen, orphans = @orphans, detail = @detail, error = @error
WHERE id = @id AND state = 'running' AND fence = @epoch AND owner = @nonce

-- name: Runs
SELECT id, lease, fence, holder, state, mode, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', started_at) DIV 1000, coalesce(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', finished_at) DIV 1000, 0), checks, rows_seen, orphans, detail, error
FROM lastword_runs WHERE (@lease = '' OR lease = @lease) AND id < @before ORDER BY id DESC LIMIT @limit
