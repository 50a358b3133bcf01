package doctor

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A real PgBouncer in front of the server, where there is one to start.
func TestPooler(t *testing.T) {
	pgbouncer, err := exec.LookPath("pgbouncer")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	server := startPostgres(t)
	name, drop, err := server.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	migrated(t, name)
	for _, test := range []struct {
		mode, query string
		want        fault
	}{
		{"session", "", fault{check: "pooler", status: OK, says: "keeps its server process"}},
		{"transaction", "&default_query_exec_mode=exec", fault{check: "pooler", status: Warn, says: "another server connection"}},
	} {
		t.Run(test.mode, func(t *testing.T) {
			expect(t, connect(t, behindPooler(t, pgbouncer, name, test.mode)+test.query), test.want)
		})
	}
	t.Run("prepared statements", func(t *testing.T) { // which newer ones follow
		findings := Database(t.Context(), connect(t, behindPooler(t, pgbouncer, name, "transaction")))
		for _, f := range findings {
			if f.Check == "pooler" && (f.Status == OK || f.Status == Fail && !strings.Contains(f.Mend, "default_query_exec_mode=exec")) {
				t.Errorf("%+v", f)
			}
		}
	})
}

func behindPooler(t *testing.T, pgbouncer, name, mode string) string {
	t.Helper()
	u, err := url.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	folder, err := os.MkdirTemp("", "lastword-pooler-") // one that another user can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	config := filepath.Join(folder, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s user=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = any\npool_mode = %s\nignore_startup_parameters = extra_float_digits\n",
		u.Hostname(), u.Port(), u.User.Username(), port, mode)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{config}
	if os.Geteuid() == 0 { // it refuses to run as root
		args = []string{"-u", "nobody", config}
	}
	cmd := exec.Command(pgbouncer, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("pgbouncer does not answer")
		}
	}
	u.Host = address
	return u.String()
}
