-- The judge's own tables and statements on SQLite; the file for PostgreSQL has the same sections with the same parameters.
-- A submission's id is its task's id. A verdict belongs to one generation of it, so that no two of them can overwrite each other.

-- define: now = CAST(round(unixepoch('subsec') * 1000) AS INTEGER)

-- name: SubmissionsTable
CREATE TABLE IF NOT EXISTS judge_submissions (
	id         INTEGER PRIMARY KEY,
	problem    TEXT NOT NULL,
	language   TEXT NOT NULL,
	filename   TEXT NOT NULL,
	source     BLOB NOT NULL,
	created_at INTEGER NOT NULL
)

-- name: VerdictsTable
CREATE TABLE IF NOT EXISTS judge_verdicts (
	submission_id INTEGER NOT NULL REFERENCES judge_submissions,
	generation    INTEGER NOT NULL,
	verdict       TEXT NOT NULL CHECK (verdict IN ('AC', 'WA', 'TLE', 'MLE', 'OLE', 'RTE', 'CE', 'JE')),
	time_ms       INTEGER NOT NULL,
	memory_bytes  INTEGER NOT NULL,
	test          TEXT NOT NULL,
	message       TEXT NOT NULL,
	problem_hash  TEXT NOT NULL,
	judged_at     INTEGER NOT NULL,
	PRIMARY KEY (submission_id, generation)
)

-- name: TestsTable
CREATE TABLE IF NOT EXISTS judge_tests (
	submission_id INTEGER NOT NULL,
	generation    INTEGER NOT NULL,
	number        INTEGER NOT NULL,
	name          TEXT NOT NULL,
	verdict       TEXT NOT NULL,
	time_ms       INTEGER NOT NULL,
	memory_bytes  INTEGER NOT NULL,
	message       TEXT NOT NULL,
	PRIMARY KEY (submission_id, generation, number)
)

-- name: SubmissionInsert
INSERT INTO judge_submissions (id, problem, language, filename, source, created_at) VALUES (@id, @problem, @language, @filename, @source, {now})

-- name: SubmissionRead
SELECT problem, language, filename, source FROM judge_submissions WHERE id = @id

-- name: SubmissionsBetween
SELECT id, problem, language, filename FROM judge_submissions WHERE id >= @low AND id <= @high

-- name: SubmissionsAfter
SELECT id FROM judge_submissions WHERE id > @after ORDER BY id LIMIT @limit

-- name: VerdictInsert
INSERT INTO judge_verdicts (submission_id, generation, verdict, time_ms, memory_bytes, test, message, problem_hash, judged_at)
VALUES (@id, @generation, @verdict, @time_ms, @memory_bytes, @test, @message, @problem_hash, {now})

-- Only where none stands: the judge error of a task that ended without a verdict.
-- name: VerdictInsertMissing
INSERT INTO judge_verdicts (submission_id, generation, verdict, time_ms, memory_bytes, test, message, problem_hash, judged_at)
SELECT id, @generation, 'JE', 0, 0, '', @message, '', {now} FROM judge_submissions WHERE id = @id
ON CONFLICT DO NOTHING

-- name: TestInsert
INSERT INTO judge_tests (submission_id, generation, number, name, verdict, time_ms, memory_bytes, message)
VALUES (@id, @generation, @number, @name, @verdict, @time_ms, @memory_bytes, @message)

-- name: VerdictsBetween
SELECT submission_id, generation, verdict, time_ms, memory_bytes, test, message, problem_hash, judged_at
FROM judge_verdicts WHERE submission_id >= @low AND submission_id <= @high ORDER BY submission_id, generation

-- name: TestsRead
SELECT generation, name, verdict, time_ms, memory_bytes, message FROM judge_tests WHERE submission_id = @id ORDER BY generation, number
