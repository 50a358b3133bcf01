-- The tables of lastword on MySQL and MariaDB, in numbered versions that are only ever appended.
-- A statement ends with a semicolon and an empty line; the prefix "lastword_" is replaced by the one given to Open.
-- Each statement here commits by itself, and a migration that was interrupted is run again from the start of its version: so each must do
-- no harm when it is run a second time.
-- Text compares byte for byte. Indexes have no prefix: their names belong to their table.

-- version: 1

CREATE TABLE IF NOT EXISTS lastword_schema (
	version    int PRIMARY KEY,
	applied_at datetime(3) NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A row is never deleted by a release: its fence must not restart.
CREATE TABLE IF NOT EXISTS lastword_leases (
	name         varchar(120) PRIMARY KEY,
	fence        bigint NOT NULL CHECK (fence >= 1),
	owner        varchar(64),
	leased_until datetime(3),
	ttl_ms       bigint NOT NULL,
	acquired_at  datetime(3) NOT NULL,
	updated_at   datetime(3) NOT NULL,
	holder       text NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- There are no partial indexes here: live_key is NULL for tasks that have ended, and NULLs do not collide. The key is kept as
-- bytes, because text that differs in spaces at its end only is equal. urgency turns the order of priorities round, so that one
-- ascending index serves the claim: MariaDB before 10.8 has no descending ones, and a claim that sorts locks the whole queue.
CREATE TABLE IF NOT EXISTS lastword_tasks (
	id           bigint AUTO_INCREMENT PRIMARY KEY,
	kind         varchar(120) NOT NULL,
	queue        varchar(120) NOT NULL,
	`key`        varbinary(255),
	payload      mediumtext NOT NULL,
	priority     int NOT NULL,
	run_at       datetime(3) NOT NULL,
	state        varchar(12) NOT NULL CHECK (state IN ('pending', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'quarantined')),
	generation   bigint NOT NULL CHECK (generation >= 1),
	attempt_id   varchar(64),
	leased_until datetime(3),
	lease_ms     bigint NOT NULL DEFAULT 0,
	holder       text NOT NULL DEFAULT (''),
	attempt      int NOT NULL DEFAULT 0,
	failures     int NOT NULL DEFAULT 0,
	reaps        int NOT NULL DEFAULT 0,
	max_attempts int NOT NULL,
	max_reaps    int NOT NULL,
	progress     text NOT NULL DEFAULT (''),
	result       mediumtext,
	error        text NOT NULL DEFAULT (''),
	created_at   datetime(3) NOT NULL,
	updated_at   datetime(3) NOT NULL,
	finished_at  datetime(3),
	live_key     varbinary(255) AS (CASE WHEN state IN ('pending', 'waiting', 'running') THEN `key` END) VIRTUAL,
	urgency      bigint AS (-CAST(priority AS SIGNED)) VIRTUAL,
	UNIQUE INDEX live_key (kind, live_key),
	INDEX ready (state, queue, urgency, run_at, id),
	INDEX running (state, id),
	INDEX kind (kind, id),
	CHECK ((state = 'running') = (attempt_id IS NOT NULL))
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS lastword_attempts (
	attempt_id varchar(64) PRIMARY KEY,
	task_id    bigint NOT NULL,
	generation bigint NOT NULL,
	number     int NOT NULL,
	holder     text NOT NULL,
	claimed_at datetime(3) NOT NULL,
	ended_at   datetime(3),
	outcome    varchar(12) NOT NULL DEFAULT '',
	result     mediumtext,
	error      text NOT NULL DEFAULT (''),
	INDEX task (task_id, generation, number)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS lastword_generations (
	task_id    bigint NOT NULL,
	generation bigint NOT NULL,
	cause      varchar(12) NOT NULL,
	actor      text NOT NULL,
	reason     text NOT NULL,
	request_id text NOT NULL,
	opened_at  datetime(3) NOT NULL,
	PRIMARY KEY (task_id, generation)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS lastword_outbox (
	id         bigint AUTO_INCREMENT PRIMARY KEY,
	topic      varchar(40) NOT NULL,
	kind       varchar(120) NOT NULL,
	task_id    bigint NOT NULL,
	generation bigint NOT NULL,
	state      varchar(8) NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dead')),
	sends      int NOT NULL DEFAULT 0,
	next_at    datetime(3) NOT NULL,
	created_at datetime(3) NOT NULL,
	sent_at    datetime(3),
	error      text NOT NULL DEFAULT (''),
	UNIQUE INDEX event (task_id, generation, topic),
	INDEX due (state, next_at, id)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row a refused token. The nonce is a bearer secret: only its first six characters are kept.
CREATE TABLE IF NOT EXISTS lastword_refusals (
	kind          varchar(16) NOT NULL,
	name          varchar(120) NOT NULL,
	epoch         bigint NOT NULL,
	nonce_start   varchar(6) NOT NULL,
	operation     text NOT NULL,
	holder        text NOT NULL,
	current_epoch bigint NOT NULL,
	outcome       varchar(20) NOT NULL,
	reason        text NOT NULL,
	count         bigint NOT NULL,
	first_at      datetime(3) NOT NULL,
	last_at       datetime(3) NOT NULL,
	PRIMARY KEY (kind, name, epoch, nonce_start)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS lastword_runs (
	id          bigint AUTO_INCREMENT PRIMARY KEY,
	lease       varchar(120) NOT NULL,
	fence       bigint NOT NULL,
	owner       varchar(64) NOT NULL,
	holder      text NOT NULL,
	state       varchar(12) NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'abandoned')),
	mode        varchar(12) NOT NULL,
	started_at  datetime(3) NOT NULL,
	finished_at datetime(3),
	checks      bigint NOT NULL DEFAULT 0,
	rows_seen   bigint NOT NULL DEFAULT 0,
	orphans     bigint NOT NULL DEFAULT 0,
	detail      mediumtext NOT NULL DEFAULT (''),
	error       text NOT NULL DEFAULT (''),
	INDEX open (state, lease)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- There is no CREATE OR REPLACE PROCEDURE that both servers know.
DROP PROCEDURE IF EXISTS lastword_guard;

-- The guard for clients in any language, also ahead of other statements in one text: it raises, so that what stands behind it does not run.
-- SQLSTATE 45LW1 is fenced, 45LW2 is no token. CALL it first in the transaction, and roll back when it raises.
-- The token is the text of Token.String: kind/name@epoch.nonce.
CREATE PROCEDURE lastword_guard(token varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
	SQL SECURITY INVOKER
	COMMENT 'raises unless the token is in force, and locks its row until the transaction ends'
BEGIN
	-- A space is refused, because text that differs in spaces at its end only is equal.
	DECLARE kind_, name_, nonce_ varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
	DECLARE tail varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
	DECLARE epoch_ varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
	DECLARE message varchar(128) CHARACTER SET utf8mb4;
	DECLARE found int DEFAULT 0;
	SET kind_ = SUBSTRING_INDEX(token, '/', 1);
	SET tail = SUBSTRING_INDEX(token, '@', -1);
	SET name_ = SUBSTRING(token, CHAR_LENGTH(kind_) + 2, CHAR_LENGTH(token) - CHAR_LENGTH(kind_) - CHAR_LENGTH(tail) - 2);
	SET epoch_ = SUBSTRING_INDEX(tail, '.', 1);
	SET nonce_ = SUBSTRING(tail, CHAR_LENGTH(epoch_) + 2);
	IF token IS NULL OR INSTR(token, ' ') > 0 OR kind_ NOT IN ('lease', 'task') OR epoch_ NOT REGEXP '^[1-9][0-9]{0,18}$' OR kind_ = 'task' AND name_ NOT REGEXP '^[1-9][0-9]{0,18}$' THEN
		SIGNAL SQLSTATE '45LW2' SET MESSAGE_TEXT = 'lastword: not a token of kind lease or task';
	END IF;
	IF kind_ = 'lease' THEN
		SELECT 1 INTO found FROM lastword_leases
		WHERE name = name_ AND fence = CAST(epoch_ AS UNSIGNED) AND owner = nonce_ AND leased_until > UTC_TIMESTAMP(3)
			AND leased_until > SYSDATE(3) + INTERVAL TIMESTAMPDIFF(MICROSECOND, NOW(3), UTC_TIMESTAMP(3)) MICROSECOND
		LOCK IN SHARE MODE;
	ELSE
		SELECT 1 INTO found FROM lastword_tasks
		WHERE id = CAST(name_ AS UNSIGNED) AND generation = CAST(epoch_ AS UNSIGNED) AND attempt_id = nonce_ AND state = 'running'
		FOR UPDATE;
	END IF;
	IF found = 0 THEN
		SET message = LEFT(CONCAT('lastword: fenced: ', kind_, '/', name_, '@', epoch_, ' is not in force'), 128);
		SIGNAL SQLSTATE '45LW1' SET MESSAGE_TEXT = message;
	END IF;
END;

