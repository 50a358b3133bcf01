package sandbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// folderPrefix starts the name of every folder the package makes in Options.Dir, and is the name of its cgroup parent
// with the last dash cut off.
const folderPrefix = "lastword-sandbox-"

// owner names a process for good: a PID alone is given out again. The PID namespace is part of it because two containers
// may share a folder or a cgroup mount.
type owner struct {
	ns    uint64 // inode of the PID namespace; 0 where there are none
	pid   int
	start uint64 // in clock ticks since boot; 0 where it is not known
}

func (o owner) String() string { return fmt.Sprintf("%d-%d-%d", o.ns, o.pid, o.start) }

// parseOwner reads the owner off the front of a folder's or cgroup's name, where more may follow after a dash.
func parseOwner(name string) (owner, bool) {
	var o owner
	n, _ := fmt.Sscanf(name, "%d-%d-%d-", &o.ns, &o.pid, &o.start)
	return o, n == 3 && strings.HasPrefix(name, o.String()+"-")
}

// dead says that the owner certainly ended. Of another PID namespace nothing can be said.
func (o owner) dead(self owner) bool {
	return o.ns == self.ns && !alive(o)
}

// sweepFolders removes the folders of dead processes.
func sweepFolders(top string, log *slog.Logger) {
	me, err := self()
	if err != nil {
		return
	}
	entries, err := os.ReadDir(top)
	if err != nil {
		log.Warn("sandbox: no sweep of work folders", "error", err)
		return
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), folderPrefix)
		if !ok || !e.IsDir() {
			continue
		}
		if o, ok := parseOwner(name); ok && o.dead(me) {
			if err := removeTree(filepath.Join(top, e.Name())); err != nil {
				log.Warn("sandbox: a killed process's folder stays", "error", err)
			}
		}
	}
}
