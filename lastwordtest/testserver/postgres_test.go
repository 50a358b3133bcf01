//go:build unix

package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asChild makes this test binary a process that starts a server, names its folder, and waits to be killed.
const asChild = "LASTWORD_TESTSERVER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	pg, err := StartPostgres(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(pg.folder)
	select {}
}

func start(t *testing.T) *Postgres {
	t.Helper()
	t.Setenv("LASTWORD_TEST_POSTGRES", "")
	pg, err := StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func ask(t *testing.T, pg *Postgres, url, sql string) string {
	t.Helper()
	answer, err := pg.query(t.Context(), url, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewDatabase(t *testing.T) {
	pg := start(t)
	one, dropOne, err := pg.NewDatabase(t.Context())
	ok(t, err)
	two, dropTwo, err := pg.NewDatabase(t.Context())
	ok(t, err)
	defer dropTwo()
	ask(t, pg, one, `CREATE TABLE seen (n int)`)
	if got := ask(t, pg, two, `SELECT count(*) FROM pg_tables WHERE tablename = 'seen'`); got != "0" {
		t.Errorf("the second database sees %s tables of the first", got)
	}
	for setting, want := range map[string]string{"fsync": "on", "max_connections": "200", "server_encoding": "UTF8"} {
		if got := ask(t, pg, two, `SHOW `+setting); got != want {
			t.Errorf("%s = %s, want %s", setting, got, want)
		}
	}
	dropOne()
	if got := ask(t, pg, pg.URL(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'lw_%'`); got != "1" {
		t.Errorf("%s databases are left, want 1", got)
	}
}

func TestKillKeepsWhatWasAcknowledged(t *testing.T) {
	pg := start(t)
	url, drop, err := pg.NewDatabase(t.Context())
	ok(t, err)
	defer drop()
	ask(t, pg, url, `CREATE TABLE kept (n int)`)
	for n := range 3 {
		ask(t, pg, url, fmt.Sprintf(`INSERT INTO kept VALUES (%d)`, n))
		ok(t, pg.Kill(t.Context()))
		if pids, err := processesIn(pg.folder); err != nil || len(pids) > 0 {
			t.Fatalf("after Kill: processes %v, %v", pids, err)
		}
		if _, err := pg.query(t.Context(), url, `SELECT 1`); err == nil {
			t.Fatal("a killed server answers")
		}
		ok(t, pg.Restart(t.Context()))
		if got, want := ask(t, pg, url, `SELECT count(*) FROM kept`), fmt.Sprint(n+1); got != want {
			t.Fatalf("%s rows after the kill, want %s", got, want)
		}
	}
	ok(t, pg.Stop(t.Context()))
	ok(t, pg.Stop(t.Context()))
	ok(t, pg.Restart(t.Context()))
	ok(t, pg.Restart(t.Context()))
	if got := ask(t, pg, url, `SELECT count(*) FROM kept`); got != "3" {
		t.Fatalf("%s rows after Stop and Restart, want 3", got)
	}
}

func TestFreeze(t *testing.T) {
	pg := start(t)
	// An open session, whose process must stand still as well.
	session := exec.Command(pg.psql, "-X", "-q", "-A", "-t", "-d", pg.URL())
	in, err := session.StdinPipe()
	ok(t, err)
	out, err := session.StdoutPipe()
	ok(t, err)
	ok(t, session.Start())
	answers := make(chan string)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			answers <- lines.Text()
		}
		close(answers)
	}()
	say := func(sql string) {
		_, err := fmt.Fprintln(in, sql)
		ok(t, err)
	}
	say(`SELECT 'before';`)
	if got := <-answers; got != "before" {
		t.Fatalf("the session says %q", got)
	}

	ok(t, pg.Freeze(t.Context()))
	say(`SELECT 'during';`)
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if answer, err := pg.query(soon, pg.URL(), `SELECT 1`); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers a new client: %q, %v", answer, err)
	}
	select {
	case answer := <-answers:
		t.Errorf("a frozen server answers an open session: %q", answer)
	default:
	}

	ok(t, pg.Thaw(t.Context()))
	if got := <-answers; got != "during" {
		t.Errorf("after the thaw the session says %q", got)
	}
	if got := ask(t, pg, pg.URL(), `SELECT 1`); got != "1" {
		t.Errorf("after the thaw a new client hears %q", got)
	}
	ok(t, in.Close())
	ok(t, session.Wait())

	ok(t, pg.Freeze(t.Context()))
	ok(t, pg.Stop(t.Context()))
	ok(t, pg.Restart(t.Context()))
	ok(t, pg.Freeze(t.Context()))
	ok(t, pg.Kill(t.Context()))
	if err := pg.Freeze(t.Context()); err == nil {
		t.Error("a killed server can be frozen")
	}
}

func TestRestartWaitsForItsPort(t *testing.T) {
	pg := start(t)
	ok(t, pg.Stop(t.Context()))
	other := start(t)
	ok(t, other.Stop(t.Context()))
	other.port = pg.port
	ok(t, other.Restart(t.Context()))
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = other.Kill(context.Background())
	}()
	ok(t, pg.Restart(t.Context()))

	// One who never gets it says why, and in time.
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := other.Restart(soon); err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("restart on a port in use: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	for _, state := range []string{"running", "frozen", "killed"} {
		pg := start(t)
		segment := sharedMemory(t, pg.folder)
		switch state {
		case "frozen":
			ok(t, pg.Freeze(t.Context()))
		case "killed":
			ok(t, pg.Kill(t.Context()))
		}
		ok(t, pg.Close())
		gone(t, pg.folder, segment, 0)
		ok(t, pg.Close())
		if err := pg.Restart(t.Context()); err == nil {
			t.Error("a closed server starts again")
		}
	}
}

func TestServerDiesWithTheTestProcess(t *testing.T) {
	for _, state := range []string{"running", "frozen"} {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), asChild+"=1", "LASTWORD_TEST_POSTGRES=")
		out, err := child.StdoutPipe()
		ok(t, err)
		ok(t, child.Start())
		folder, err := bufio.NewReader(out).ReadString('\n')
		ok(t, err)
		folder = strings.TrimSpace(folder)
		pids, err := processesIn(folder)
		if err != nil || len(pids) < 2 {
			t.Fatalf("the child says %q, where processes %v run (%v)", folder, pids, err)
		}
		segment := sharedMemory(t, folder)
		if state == "frozen" {
			for _, pid := range pids {
				process, err := os.FindProcess(pid)
				ok(t, err)
				ok(t, process.Signal(syscall.SIGSTOP))
			}
		}
		ok(t, child.Process.Kill())
		_ = child.Wait() // "signal: killed"
		gone(t, folder, segment, 10*time.Second)
	}
}

func TestGivenServer(t *testing.T) {
	private := start(t)
	t.Setenv("LASTWORD_TEST_POSTGRES", private.URL())
	pg, err := StartPostgres(t.Context())
	ok(t, err)
	url, drop, err := pg.NewDatabase(t.Context())
	ok(t, err)
	ask(t, pg, url, `SELECT 1`)
	drop()
	for name, fault := range map[string]func(context.Context) error{
		"Stop": pg.Stop, "Kill": pg.Kill, "Freeze": pg.Freeze, "Thaw": pg.Thaw, "Restart": pg.Restart,
	} {
		if err := fault(t.Context()); !errors.Is(err, ErrGiven) {
			t.Errorf("%s of a given server: %v", name, err)
		}
	}
	ok(t, pg.Close())
	ask(t, private, private.URL(), `SELECT 1`)

	t.Setenv("LASTWORD_TEST_POSTGRES", "host=localhost")
	if _, err := StartPostgres(t.Context()); err == nil {
		t.Error("a given server that is no URL is accepted")
	}
}

// sharedMemory returns the id of the segment that the server in folder holds.
func sharedMemory(t *testing.T, folder string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	ok(t, err)
	return strings.Fields(strings.Split(string(text), "\n")[6])[1]
}

// gone waits until neither processes nor the folder nor the shared memory are left.
func gone(t *testing.T, folder, segment string, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		pids, err := processesIn(folder)
		ok(t, err)
		_, err = os.Stat(folder)
		segments, _ := os.ReadFile("/proc/sysvipc/shm") // Linux has it
		held := strings.Contains(string(segments), " "+segment+" ")
		if len(pids) == 0 && errors.Is(err, os.ErrNotExist) && !held {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: processes %v, folder %v, shared memory %v", pids, err, held)
		}
	}
}
