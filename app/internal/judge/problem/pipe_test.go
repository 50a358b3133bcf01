//go:build unix

package problem

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Opening a pipe blocks until someone writes: it must be refused unopened.
func TestPipe(t *testing.T) {
	dir := minimal().with(files{"data/secret/1.in": ""}).write(t, filepath.Join(t.TempDir(), "sum"))
	if err := syscall.Mkfifo(filepath.Join(dir, "data/secret/1.in"), 0o644); err != nil {
		t.Skip(err)
	}
	if _, err := Open(dir); err == nil || err.Error() != "sum/data/secret/1.in: is neither a file nor a folder; remove it" {
		t.Error(err)
	}
}
