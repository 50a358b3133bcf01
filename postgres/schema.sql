-- The tables of lastword on PostgreSQL, in numbered versions that are only ever appended.
-- A statement ends with a semicolon and an empty line; the prefix "lastword_" is replaced by the one given to Open.

-- version: 1

CREATE TABLE lastword_schema (
	version    integer PRIMARY KEY,
	applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A row is never deleted by a release: its fence must not restart.
-- UNIQUE (name, fence) makes the fence part of a key, so that the guard's FOR KEY SHARE holds off a takeover but not a renewal.
-- leased_until stands in no index: renewals stay HOT.
CREATE TABLE lastword_leases (
	name         varchar(120) COLLATE "C" PRIMARY KEY,
	fence        bigint NOT NULL CHECK (fence >= 1),
	owner        varchar(64) COLLATE "C",
	leased_until timestamptz,
	ttl_ms       bigint NOT NULL,
	acquired_at  timestamptz NOT NULL,
	updated_at   timestamptz NOT NULL,
	holder       text NOT NULL,
	CONSTRAINT lastword_leases_name_fence UNIQUE (name, fence)
) WITH (fillfactor = 70);

CREATE TABLE lastword_tasks (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	kind         varchar(120) COLLATE "C" NOT NULL,
	queue        varchar(120) COLLATE "C" NOT NULL,
	key          varchar(255) COLLATE "C",
	payload      text NOT NULL,
	priority     integer NOT NULL,
	run_at       timestamptz NOT NULL,
	state        varchar(12) COLLATE "C" NOT NULL CHECK (state IN ('pending', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'quarantined')),
	generation   bigint NOT NULL CHECK (generation >= 1),
	attempt_id   varchar(64) COLLATE "C",
	leased_until timestamptz,
	lease_ms     bigint NOT NULL DEFAULT 0,
	holder       text NOT NULL DEFAULT '',
	attempt      integer NOT NULL DEFAULT 0,
	failures     integer NOT NULL DEFAULT 0,
	reaps        integer NOT NULL DEFAULT 0,
	max_attempts integer NOT NULL,
	max_reaps    integer NOT NULL,
	progress     text NOT NULL DEFAULT '',
	result       text,
	error        text NOT NULL DEFAULT '',
	created_at   timestamptz NOT NULL,
	updated_at   timestamptz NOT NULL,
	finished_at  timestamptz,
	CHECK ((state = 'running') = (attempt_id IS NOT NULL))
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX lastword_tasks_live_key ON lastword_tasks (kind, key) WHERE key IS NOT NULL AND state IN ('pending', 'waiting', 'running');

CREATE INDEX lastword_tasks_ready ON lastword_tasks (queue, priority DESC, run_at, id) WHERE state = 'pending';

-- The reaper's index has no leased_until, so that heartbeats stay HOT.
CREATE INDEX lastword_tasks_running ON lastword_tasks (id) WHERE state = 'running';

CREATE INDEX lastword_tasks_updated ON lastword_tasks (kind, id);

CREATE TABLE lastword_attempts (
	attempt_id varchar(64) COLLATE "C" PRIMARY KEY,
	task_id    bigint NOT NULL,
	generation bigint NOT NULL,
	number     integer NOT NULL,
	holder     text NOT NULL,
	claimed_at timestamptz NOT NULL,
	ended_at   timestamptz,
	outcome    varchar(12) COLLATE "C" NOT NULL DEFAULT '',
	result     text,
	error      text NOT NULL DEFAULT ''
);

CREATE INDEX lastword_attempts_task ON lastword_attempts (task_id, generation, number);

CREATE TABLE lastword_generations (
	task_id    bigint NOT NULL,
	generation bigint NOT NULL,
	cause      varchar(12) COLLATE "C" NOT NULL,
	actor      text NOT NULL,
	reason     text NOT NULL,
	request_id text NOT NULL,
	opened_at  timestamptz NOT NULL,
	PRIMARY KEY (task_id, generation)
);

CREATE TABLE lastword_outbox (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic      varchar(40) COLLATE "C" NOT NULL,
	kind       varchar(120) COLLATE "C" NOT NULL,
	task_id    bigint NOT NULL,
	generation bigint NOT NULL,
	state      varchar(8) COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dead')),
	sends      integer NOT NULL DEFAULT 0,
	next_at    timestamptz NOT NULL,
	created_at timestamptz NOT NULL,
	sent_at    timestamptz,
	error      text NOT NULL DEFAULT '',
	UNIQUE (task_id, generation, topic)
);

CREATE INDEX lastword_outbox_due ON lastword_outbox (next_at, id) WHERE state = 'pending';

-- One row a refused token. The nonce is a bearer secret: only its first six characters are kept.
CREATE TABLE lastword_refusals (
	kind          varchar(16) COLLATE "C" NOT NULL,
	name          varchar(120) COLLATE "C" NOT NULL,
	epoch         bigint NOT NULL,
	nonce_start   varchar(6) COLLATE "C" NOT NULL,
	operation     text NOT NULL,
	holder        text NOT NULL,
	current_epoch bigint NOT NULL,
	outcome       varchar(20) COLLATE "C" NOT NULL,
	reason        text NOT NULL,
	count         bigint NOT NULL,
	first_at      timestamptz NOT NULL,
	last_at       timestamptz NOT NULL,
	PRIMARY KEY (kind, name, epoch, nonce_start)
);

CREATE TABLE lastword_runs (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	lease       varchar(120) COLLATE "C" NOT NULL,
	fence       bigint NOT NULL,
	owner       varchar(64) COLLATE "C" NOT NULL,
	holder      text NOT NULL,
	state       varchar(12) COLLATE "C" NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'abandoned')),
	mode        varchar(12) COLLATE "C" NOT NULL,
	started_at  timestamptz NOT NULL,
	finished_at timestamptz,
	checks      bigint NOT NULL DEFAULT 0,
	rows_seen   bigint NOT NULL DEFAULT 0,
	orphans     bigint NOT NULL DEFAULT 0,
	detail      text NOT NULL DEFAULT '',
	error       text NOT NULL DEFAULT ''
);

CREATE INDEX lastword_runs_open ON lastword_runs (lease) WHERE state = 'running';

-- The guard for clients in any language and for pipelines: it raises, so that whatever was sent behind it is not committed.
-- The text is that of Token.String: kind/name@epoch.nonce.
CREATE FUNCTION lastword_guard(token text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $guard$
DECLARE
	kind   text := split_part(token, '/', 1);
	rest   text := substr(token, length(split_part(token, '/', 1)) + 2);
	name_  text := substring(rest from '^(.*)@[0-9]+\.[^@]*$');
	epoch_ bigint := substring(rest from '@([0-9]+)\.[^@]*$')::bigint;
	nonce_ text := substring(rest from '@[0-9]+\.([^@]*)$');
	until_ timestamptz;
BEGIN
	IF kind = 'lease' THEN
		SELECT leased_until INTO until_ FROM lastword_leases
			WHERE name = name_ AND fence = epoch_ AND owner = nonce_ AND leased_until > clock_timestamp() FOR KEY SHARE;
		IF FOUND AND until_ > clock_timestamp() THEN RETURN true; END IF;
	ELSIF kind = 'task' THEN
		PERFORM 1 FROM lastword_tasks
			WHERE id = name_::bigint AND generation = epoch_ AND attempt_id = nonce_ AND state = 'running' FOR UPDATE;
		IF FOUND THEN RETURN true; END IF;
	ELSE
		RAISE EXCEPTION 'lastword: not a token of kind lease or task' USING ERRCODE = 'LW002';
	END IF;
	RAISE EXCEPTION 'lastword: fenced: %/%@% is not in force', kind, name_, epoch_ USING ERRCODE = 'LW001';
END $guard$;

