-- The tables of lastword on SQLite, in numbered versions that are only ever appended.
-- A statement ends with a semicolon and an empty line; the prefix "lastword_" is replaced by the one given to Open.
-- Times are whole milliseconds since 1970-01-01 UTC.

-- version: 1

CREATE TABLE lastword_schema (
	version    INTEGER PRIMARY KEY,
	applied_at INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
);

-- A row is never deleted by a release: its fence must not restart.
CREATE TABLE lastword_leases (
	name         TEXT NOT NULL PRIMARY KEY,
	fence        INTEGER NOT NULL CHECK (fence >= 1),
	owner        TEXT,
	leased_until INTEGER,
	ttl_ms       INTEGER NOT NULL,
	acquired_at  INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL,
	holder       TEXT NOT NULL,
	UNIQUE (name, fence)
);

-- AUTOINCREMENT: an id used again would match an old delivery of the task that had it before.
CREATE TABLE lastword_tasks (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	kind         TEXT NOT NULL,
	queue        TEXT NOT NULL,
	key          TEXT,
	payload      TEXT NOT NULL,
	priority     INTEGER NOT NULL,
	run_at       INTEGER NOT NULL,
	state        TEXT NOT NULL CHECK (state IN ('pending', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'quarantined')),
	generation   INTEGER NOT NULL CHECK (generation >= 1),
	attempt_id   TEXT,
	leased_until INTEGER,
	lease_ms     INTEGER NOT NULL DEFAULT 0,
	holder       TEXT NOT NULL DEFAULT '',
	attempt      INTEGER NOT NULL DEFAULT 0,
	failures     INTEGER NOT NULL DEFAULT 0,
	reaps        INTEGER NOT NULL DEFAULT 0,
	max_attempts INTEGER NOT NULL,
	max_reaps    INTEGER NOT NULL,
	progress     TEXT NOT NULL DEFAULT '',
	result       TEXT,
	error        TEXT NOT NULL DEFAULT '',
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL,
	finished_at  INTEGER,
	CHECK ((state = 'running') = (attempt_id IS NOT NULL))
);

CREATE UNIQUE INDEX lastword_tasks_live_key ON lastword_tasks (kind, key) WHERE key IS NOT NULL AND state IN ('pending', 'waiting', 'running');

CREATE INDEX lastword_tasks_ready ON lastword_tasks (queue, priority DESC, run_at, id) WHERE state = 'pending';

CREATE INDEX lastword_tasks_running ON lastword_tasks (id) WHERE state = 'running';

CREATE INDEX lastword_tasks_updated ON lastword_tasks (kind, id);

CREATE TABLE lastword_attempts (
	attempt_id TEXT NOT NULL PRIMARY KEY,
	task_id    INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	number     INTEGER NOT NULL,
	holder     TEXT NOT NULL,
	claimed_at INTEGER NOT NULL,
	ended_at   INTEGER,
	outcome    TEXT NOT NULL DEFAULT '',
	result     TEXT,
	error      TEXT NOT NULL DEFAULT ''
);

CREATE INDEX lastword_attempts_task ON lastword_attempts (task_id, generation, number);

CREATE TABLE lastword_generations (
	task_id    INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	cause      TEXT NOT NULL,
	actor      TEXT NOT NULL,
	reason     TEXT NOT NULL,
	request_id TEXT NOT NULL,
	opened_at  INTEGER NOT NULL,
	PRIMARY KEY (task_id, generation)
);

CREATE TABLE lastword_outbox (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	topic      TEXT NOT NULL,
	kind       TEXT NOT NULL,
	task_id    INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	state      TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dead')),
	sends      INTEGER NOT NULL DEFAULT 0,
	next_at    INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	sent_at    INTEGER,
	error      TEXT NOT NULL DEFAULT '',
	UNIQUE (task_id, generation, topic)
);

CREATE INDEX lastword_outbox_due ON lastword_outbox (next_at, id) WHERE state = 'pending';

-- One row a refused token. The nonce is a bearer secret: only its first six characters are kept.
CREATE TABLE lastword_refusals (
	kind          TEXT NOT NULL,
	name          TEXT NOT NULL,
	epoch         INTEGER NOT NULL,
	nonce_start   TEXT NOT NULL,
	operation     TEXT NOT NULL,
	holder        TEXT NOT NULL,
	current_epoch INTEGER NOT NULL,
	outcome       TEXT NOT NULL,
	reason        TEXT NOT NULL,
	count         INTEGER NOT NULL,
	first_at      INTEGER NOT NULL,
	last_at       INTEGER NOT NULL,
	PRIMARY KEY (kind, name, epoch, nonce_start)
);

CREATE TABLE lastword_runs (
	id          INTEGER PRIMARY KEY AUTOINCREMENT,
	lease       TEXT NOT NULL,
	fence       INTEGER NOT NULL,
	owner       TEXT NOT NULL,
	holder      TEXT NOT NULL,
	state       TEXT NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'abandoned')),
	mode        TEXT NOT NULL,
	started_at  INTEGER NOT NULL,
	finished_at INTEGER,
	checks      INTEGER NOT NULL DEFAULT 0,
	rows_seen   INTEGER NOT NULL DEFAULT 0,
	orphans     INTEGER NOT NULL DEFAULT 0,
	detail      TEXT NOT NULL DEFAULT '',
	error       TEXT NOT NULL DEFAULT ''
);

CREATE INDEX lastword_runs_open ON lastword_runs (lease) WHERE state = 'running';

