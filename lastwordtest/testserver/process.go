//go:build unix

package testserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// processesIn lists the living processes whose working folder is inside folder: database servers change to their data
// folder, and their children stay there. Zombies have none and are not listed.
func processesIn(folder string) ([]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil, err
	}
	if len(links) == 0 {
		return processesNaming(folder)
	}
	var pids []int
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || cwd != folder && !strings.HasPrefix(cwd, folder+"/") {
			continue // ended, somebody else's, or elsewhere
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// processesNaming stands in where there is no /proc (macOS): processes with the folder in their command line, and their
// children.
func processesNaming(folder string) ([]int, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,command=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	lines := strings.Split(string(out), "\n")
	named := map[string]bool{}
	for _, line := range lines {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(line, folder) {
			named[f[0]] = true
		}
	}
	var pids []int
	for _, line := range lines {
		if f := strings.Fields(line); len(f) > 2 && (named[f[0]] || named[f[1]]) {
			pid, err := strconv.Atoi(f[0])
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// undertake waits for the end of its standard input: by Close, or by the end of the test process, even by SIGKILL. Then it
// kills who still works in the folder, sweeps up what the engine left elsewhere, and removes the folder.
const undertake = `
cat >/dev/null
left() {
	if [ -d /proc/self ]; then
		find /proc/[0-9]*/cwd -prune \( -lname "$folder" -o -lname "$folder/*" \) 2>/dev/null | cut -d/ -f3
	else
		ps -axo pid=,ppid=,command= | awk '{ parent[$1] = $2 } index($0, ENVIRON["folder"]) { named[$1] = 1 }
			END { for (p in parent) if (p in named || parent[p] in named) print p }'
	fi
}
tries=0
while pids=$(left) && [ -n "$pids" ] && [ $tries -lt 100 ]; do
	kill -9 $pids 2>/dev/null
	sleep 0.1
	tries=$((tries + 1))
done
eval "$sweep"
rm -rf "$folder"
`

type undertaker struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser // held open as long as we live
}

func hireUndertaker(folder, sweep string) (*undertaker, error) {
	cmd := exec.Command("sh", "-c", undertake)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "folder=" + folder, "sweep=" + sweep}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	return &undertaker{cmd, pipe}, nil
}

func (u *undertaker) dismiss() error {
	return errors.Join(u.pipe.Close(), u.cmd.Wait())
}

// newFolder makes a folder that belongs to owner, under a temporary folder that owner can reach.
func newFolder(name string, owner *syscall.Credential) (string, error) {
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		parent, err := filepath.EvalSymlinks(parent)
		if err != nil || owner != nil && !reachable(parent) {
			continue
		}
		folder, err := os.MkdirTemp(parent, "lastword-"+name+"-")
		if err != nil {
			return "", fmt.Errorf("testserver: %w", err)
		}
		if owner != nil {
			err = os.Chown(folder, int(owner.Uid), int(owner.Gid))
		}
		return folder, err
	}
	return "", errors.New("testserver: no temporary folder that another user can reach; set TMPDIR to one (chmod 711 on each folder above it)")
}

// reachable says whether any user may go through the folder and those above it.
func reachable(folder string) bool {
	for ; ; folder = filepath.Dir(folder) {
		if info, err := os.Stat(folder); err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if folder == filepath.Dir(folder) {
			return true
		}
	}
}

// ownerFor picks the user a server runs as. Database servers refuse to run as root; others run as who they are.
func ownerFor(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("testserver: neither user %s nor nobody exists: %w", name, err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
