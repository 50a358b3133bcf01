// Package api holds what the HTTP API under /v1 sends and takes, and a client for it. Times are RFC 3339 in UTC, durations are
// milliseconds in fields that end in _ms, memory is bytes in fields that end in _bytes. Source code and messages come from
// strangers: escape them before they are shown.
package api

import "time"

// SubmitRequest is a program to be judged. Exactly one of Source and SourceBase64 is given.
type SubmitRequest struct {
	Problem      string `json:"problem" minLength:"1" maxLength:"255" doc:"Id of the problem, as /v1/problems lists it" example:"sum"`
	Language     string `json:"language,omitempty" maxLength:"40" doc:"Name of the language, as /v1/languages lists it; left out, the filename's ending decides" example:"python"`
	Filename     string `json:"filename,omitempty" maxLength:"1000" doc:"What the sender calls the file; at most 255 bytes of it are kept" example:"sum.py"`
	Source       string `json:"source,omitempty" doc:"The program as text, in UTF-8" example:"print(sum(map(int, input().split())))"`
	SourceBase64 []byte `json:"source_base64,omitempty" doc:"The program as any bytes, in base64, instead of source"`
}

// Submitted answers a submission that was stored; it is judged from now on.
type Submitted struct {
	ID         int64  `json:"id"`
	Generation int64  `json:"generation" doc:"1: the first judging"`
	URL        string `json:"url" doc:"Path of the submission, also in the Location header"`
}

// RejudgeRequest opens the next generation of a submission.
type RejudgeRequest struct {
	Generation int64  `json:"generation,omitempty" minimum:"0" doc:"The generation that was seen: when the submission has moved on, nothing happens and the answer is 409. 0 takes whatever it is now"`
	Reason     string `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the history"`
}

// Rejudged answers a rejudge. The attempt of the generation before, if there was one, is fenced: its verdict will be refused.
type Rejudged struct {
	ID     int64 `json:"id"`
	Before int64 `json:"before" doc:"The generation that was left"`
	Now    int64 `json:"now" doc:"The generation that has begun"`
}

// Verdict is the outcome of one generation.
type Verdict struct {
	Generation  int64     `json:"generation"`
	Verdict     string    `json:"verdict" enum:"AC,WA,TLE,MLE,OLE,RTE,CE,JE"`
	TimeMs      int64     `json:"time_ms" doc:"CPU time of the slowest test that ran"`
	MemoryBytes int64     `json:"memory_bytes" doc:"Of the test with the highest peak"`
	Test        string    `json:"test,omitempty" doc:"The deciding test"`
	Message     string    `json:"message,omitempty" doc:"For people: the compiler's words, or where the output differs"`
	ProblemHash string    `json:"problem_hash,omitempty" doc:"Version of the problem package that was judged on"`
	JudgedAt    time.Time `json:"judged_at"`
	Tests       []Test    `json:"tests,omitempty" doc:"In the order of judging; only in the answer for one submission"`
}

// Test is one run on one test.
type Test struct {
	Name        string `json:"name"`
	Verdict     string `json:"verdict"`
	TimeMs      int64  `json:"time_ms"`
	MemoryBytes int64  `json:"memory_bytes"`
	Message     string `json:"message,omitempty"`
}

// Refused is the newest refused write of a submission, in short.
type Refused struct {
	Generation int64 `json:"generation" doc:"The generation that the stale attempt wrote under"`
	Current    int64 `json:"current" doc:"The generation in force"`
	Count      int64 `json:"count" doc:"Refusals of this submission among the newest 1000 that are recorded"`
}

// Summary is one submission in short.
type Summary struct {
	ID         int64     `json:"id"`
	Problem    string    `json:"problem"`
	Language   string    `json:"language"`
	Filename   string    `json:"filename"`
	State      string    `json:"state" enum:"pending,waiting,running,succeeded,failed,cancelled,quarantined"`
	Generation int64     `json:"generation" doc:"Rises by one at each rejudge and whenever a worker was lost"`
	Progress   string    `json:"progress,omitempty" doc:"While it is judged: compiling, test 2 of 8"`
	Verdict    *Verdict  `json:"verdict" doc:"Of the newest generation; null while it is waited for"`
	Before     *Verdict  `json:"before" doc:"Of the newest earlier generation that has one"`
	Refused    *Refused  `json:"refused" doc:"The newest refused write; null when there is none"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at" doc:"Changes other than heartbeats"`
}

// Settled reports whether the generation that the summary shows gets no other verdict: it has one, or it was cancelled.
func (s Summary) Settled() bool { return s.Verdict != nil || s.State == "cancelled" }

// Submission is everything about one submission.
type Submission struct {
	Summary
	Source       string       `json:"source" doc:"As text; bytes that are not UTF-8 are replaced"`
	SourceBase64 []byte       `json:"source_base64,omitempty" doc:"The exact bytes, where source had to replace some"`
	Verdicts     []Verdict    `json:"verdicts" doc:"By generation"`
	Generations  []Generation `json:"generations"`
	Attempts     []Attempt    `json:"attempts"`
	Refusals     []Refusal    `json:"refusals" doc:"The newest first"`
}

// Generation says who opened a generation, and why.
type Generation struct {
	Generation int64     `json:"generation"`
	Cause      string    `json:"cause" enum:"submit,rerun,reap,cancel"`
	Actor      string    `json:"actor"`
	Reason     string    `json:"reason,omitempty"`
	OpenedAt   time.Time `json:"opened_at"`
}

// Attempt is one execution.
type Attempt struct {
	Generation int64      `json:"generation"`
	Number     int        `json:"number" doc:"Within its generation, from 1"`
	ID         string     `json:"id" doc:"The first six characters of the attempt's secret"`
	Holder     string     `json:"holder"`
	ClaimedAt  time.Time  `json:"claimed_at"`
	EndedAt    *time.Time `json:"ended_at" doc:"null while it runs"`
	Outcome    string     `json:"outcome,omitempty" doc:"Left out while it runs: succeeded, failed, returned, revoked, cancelled or lost"`
	Error      string     `json:"error,omitempty"`
}

// Refusal is a write that was refused because its token was not in force any more. Nothing of it was written.
type Refusal struct {
	Kind     string    `json:"kind" enum:"lease,task"`
	Name     string    `json:"name" doc:"The lease's name, or the submission's id"`
	Epoch    int64     `json:"epoch" doc:"Of the refused token: a generation, or a lease's fence"`
	ID       string    `json:"id" doc:"The first six characters of the token's secret"`
	Current  int64     `json:"current" doc:"The epoch in force then; 0 when there was none"`
	Holder   string    `json:"holder" doc:"The process that was refused"`
	Sentence string    `json:"sentence" doc:"Who tried what, and why it was refused"`
	Count    int64     `json:"count"`
	FirstAt  time.Time `json:"first_at"`
	LastAt   time.Time `json:"last_at"`
}

// Problem is a problem package that the server judges on.
type Problem struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Tests       int      `json:"tests"`
	TimeMs      int64    `json:"time_ms" doc:"CPU time allowed for one test"`
	MemoryBytes int64    `json:"memory_bytes" doc:"Memory allowed"`
	CodeBytes   int64    `json:"code_bytes" doc:"Size allowed for the source"`
	Hash        string   `json:"hash" doc:"SHA-256 of everything in the package that can change a verdict"`
	Warnings    []string `json:"warnings,omitempty"`
}

// Language is a language as the server's machine has it.
type Language struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Extensions []string `json:"extensions"`
	Installed  string   `json:"installed,omitempty" doc:"The toolchain's version"`
	Missing    string   `json:"missing,omitempty" doc:"Why it cannot be used, and the mend"`
}

// Lease is a lease as others see it.
type Lease struct {
	Name       string     `json:"name"`
	Fence      int64      `json:"fence"`
	Holder     string     `json:"holder" doc:"Of the newest grant, also after its release"`
	Live       bool       `json:"live"`
	Until      *time.Time `json:"until" doc:"null when it was released"`
	TTLMs      int64      `json:"ttl_ms"`
	AcquiredAt time.Time  `json:"acquired_at"`
}

// Status is the state of the server.
type Status struct {
	Version     string `json:"version"`
	Database    string `json:"database" enum:"sqlite,postgres"`
	SandboxMode string `json:"sandbox_mode"`
	Holder      string `json:"holder" doc:"How this process signs what it does"`
	Problems    int    `json:"problems"`
	Languages   int    `json:"languages" doc:"That can be used"`
	Waiting     int    `json:"waiting" doc:"Submissions that wait to be judged; counted up to 1000"`
	Running     int    `json:"running" doc:"Submissions that are judged now; counted up to 1000"`
	Refused     int64  `json:"refused" doc:"Writes that this process refused since it began"`
	Unrecorded  int64  `json:"unrecorded" doc:"Of those, not recorded in the table"`
	Listeners   int    `json:"listeners" doc:"On /v1/events"`
}

// Page is a part of the list of submissions, the newest first.
type Page struct {
	Submissions []Summary `json:"submissions"`
	Next        int64     `json:"next,omitempty" doc:"Ask again with before = this for older ones; left out when there are none"`
}

// Snapshot is the first event on /v1/events: what stands now.
type Snapshot struct {
	Now         time.Time `json:"now" doc:"The server's clock"`
	Submissions []Summary `json:"submissions" doc:"The newest 100"`
}

// Problems is the answer of /v1/problems.
type Problems struct {
	Problems []Problem `json:"problems"`
}

// Languages is the answer of /v1/languages.
type Languages struct {
	Languages []Language `json:"languages"`
}

// Leases is a part of the list of leases, by name.
type Leases struct {
	Leases []Lease `json:"leases"`
	Next   string  `json:"next,omitempty" doc:"Ask again with after = this for more; left out when there are none"`
}

// Refusals is the answer of /v1/refusals.
type Refusals struct {
	Refusals []Refusal `json:"refusals" doc:"The newest first"`
}
