-- The judge's own tables and statements on PostgreSQL; the file for SQLite has the same sections with the same parameters.
-- A submission's id is its task's id. A verdict belongs to one generation of it, so that no two of them can overwrite each other.

-- name: SubmissionsTable
CREATE TABLE IF NOT EXISTS judge_submissions (
	id         bigint PRIMARY KEY,
	problem    varchar(255) COLLATE "C" NOT NULL,
	language   varchar(20) COLLATE "C" NOT NULL,
	filename   text NOT NULL,
	source     bytea NOT NULL,
	created_at timestamptz NOT NULL
)

-- name: VerdictsTable
CREATE TABLE IF NOT EXISTS judge_verdicts (
	submission_id bigint NOT NULL REFERENCES judge_submissions,
	generation    bigint NOT NULL,
	verdict       varchar(3) COLLATE "C" NOT NULL CHECK (verdict IN ('AC', 'WA', 'TLE', 'MLE', 'OLE', 'RTE', 'CE', 'JE')),
	time_ms       bigint NOT NULL,
	memory_bytes  bigint NOT NULL,
	test          text NOT NULL,
	message       text NOT NULL,
	problem_hash  text NOT NULL,
	judged_at     timestamptz NOT NULL,
	PRIMARY KEY (submission_id, generation)
)

-- name: TestsTable
CREATE TABLE IF NOT EXISTS judge_tests (
	submission_id bigint NOT NULL,
	generation    bigint NOT NULL,
	number        integer NOT NULL,
	name          text NOT NULL,
	verdict       varchar(3) COLLATE "C" NOT NULL,
	time_ms       bigint NOT NULL,
	memory_bytes  bigint NOT NULL,
	message       text NOT NULL,
	PRIMARY KEY (submission_id, generation, number)
)

-- name: SubmissionInsert
INSERT INTO judge_submissions (id, problem, language, filename, source, created_at) VALUES (@id, @problem, @language, @filename, @source, clock_timestamp())

-- name: SubmissionRead
SELECT problem, language, filename, source FROM judge_submissions WHERE id = @id

-- name: SubmissionsBetween
SELECT id, problem, language, filename FROM judge_submissions WHERE id >= @low AND id <= @high

-- name: SubmissionsAfter
SELECT id FROM judge_submissions WHERE id > @after ORDER BY id LIMIT @limit

-- name: VerdictInsert
INSERT INTO judge_verdicts (submission_id, generation, verdict, time_ms, memory_bytes, test, message, problem_hash, judged_at)
VALUES (@id, @generation, @verdict, @time_ms, @memory_bytes, @test, @message, @problem_hash, clock_timestamp())

-- Only where none stands: the judge error of a task that ended without a verdict.
-- name: VerdictInsertMissing
INSERT INTO judge_verdicts (submission_id, generation, verdict, time_ms, memory_bytes, test, message, problem_hash, judged_at)
SELECT id, @generation, 'JE', 0, 0, '', @message, '', clock_timestamp() FROM judge_submissions WHERE id = @id
ON CONFLICT DO NOTHING

-- name: TestInsert
INSERT INTO judge_tests (submission_id, generation, number, name, verdict, time_ms, memory_bytes, message)
VALUES (@id, @generation, @number, @name, @verdict, @time_ms, @memory_bytes, @message)

-- name: VerdictsBetween
SELECT submission_id, generation, verdict, time_ms, memory_bytes, test, message, problem_hash, floor(extract(epoch FROM judged_at) * 1000)::bigint
FROM judge_verdicts WHERE submission_id >= @low AND submission_id <= @high ORDER BY submission_id, generation

-- name: TestsRead
SELECT generation, name, verdict, time_ms, memory_bytes, message FROM judge_tests WHERE submission_id = @id ORDER BY generation, number
