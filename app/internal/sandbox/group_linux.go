package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	cgfs "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"
)

// hierarchy is where the cgroups of boxes go: one parent folder at the root of each hierarchy, so that the next process
// finds there what this one leaves behind.
type hierarchy struct {
	unified bool
	parents map[string]string // by v1 controller; under "" for v2
	swap    bool              // swap can be limited too
	home    string            // v2: the own cgroup's folder
}

func openHierarchy() (*hierarchy, error) {
	h := &hierarchy{unified: cgroups.IsCgroup2UnifiedMode(), parents: map[string]string{}}
	parent := strings.TrimSuffix(folderPrefix, "-")
	if h.unified {
		own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			return nil, err
		}
		h.home = filepath.Join(fs2.UnifiedMountpoint, own[""])
		h.parents[""] = filepath.Join(fs2.UnifiedMountpoint, parent)
		h.swap = true
		return h, h.checkControllers()
	}
	for _, c := range []string{"memory", "pids", "cpuacct"} {
		mount, err := cgroups.FindCgroupMountpoint("", c)
		if err != nil {
			return nil, fmt.Errorf("cgroup v1 controller %s is not mounted (mount it, or boot with cgroup v2)", c)
		}
		h.parents[c] = filepath.Join(mount, parent)
		if c == "memory" {
			h.swap = cgroups.PathExists(filepath.Join(mount, "memory.memsw.limit_in_bytes"))
		}
	}
	return h, nil
}

func (h *hierarchy) checkControllers() error {
	have, err := os.ReadFile(filepath.Join(fs2.UnifiedMountpoint, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if !strings.Contains(" "+strings.TrimSpace(string(have))+" ", " "+c+" ") {
			return fmt.Errorf("cgroup v2 controller %s is not available (enable it in the parent's cgroup.subtree_control)", c)
		}
	}
	return nil
}

// group is the cgroup of one run, in all its hierarchies.
type group struct {
	mgr   cgroups.Manager
	paths map[string]string
	h     *hierarchy
	procs int64
	cpu   *os.File
	files []*os.File // for the init process: to join, then to leave
	join  int
}

// newGroup makes the cgroup. Nothing is in it until the payload's parent thread joins.
func (h *hierarchy) newGroup(name string, l Limits) (*group, error) {
	g := &group{h: h, paths: map[string]string{}, procs: int64(l.Processes)}
	for c, p := range h.parents {
		g.paths[c] = filepath.Join(p, name)
	}
	if err := g.create(l); err != nil {
		_ = g.destroy()
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return g, nil
}

func (g *group) create(l Limits) error {
	// The thread that forks the payload is in the group, too. In v1 it is that one thread and it stays; in v2 it is
	// the whole init process until it has forked, see settle.
	procs := g.procs + 1
	if g.h.unified {
		procs = g.procs + 32
	}
	res := &cgroups.Resources{Memory: l.Memory, PidsLimit: &procs, SkipDevices: true}
	if g.h.swap {
		res.MemorySwap = l.Memory // memory and swap together: no swap
	}
	cfg := &cgroups.Cgroup{Resources: res}
	var err error
	if g.h.unified {
		g.mgr, err = fs2.NewManager(cfg, g.paths[""])
	} else {
		g.mgr, err = cgfs.NewManager(cfg, maps.Clone(g.paths))
	}
	if err != nil {
		return err
	}
	// Another process may remove the empty parent between its making and ours.
	for try := 0; ; try++ {
		if err = g.mgr.Apply(-1); !errors.Is(err, fs.ErrNotExist) || try == 3 {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := g.mgr.Set(res); err != nil {
		return err
	}
	return g.openFiles()
}

func (g *group) openFiles() error {
	cpu := filepath.Join(g.paths["cpuacct"], "cpuacct.usage")
	file := "tasks" // v1 moves the single thread, which spares the kernel a global lock
	if g.h.unified {
		cpu, file = filepath.Join(g.paths[""], "cpu.stat"), cgroups.CgroupProcesses
	}
	var err error
	if g.cpu, err = os.Open(cpu); err != nil {
		return err
	}
	dirs := []string{g.paths["memory"], g.paths["pids"], g.paths["cpuacct"]}
	if g.h.unified {
		dirs = []string{g.paths[""], g.h.home}
	}
	for _, d := range dirs {
		f, err := os.OpenFile(filepath.Join(d, file), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		g.files = append(g.files, f)
	}
	g.join = len(dirs)
	if g.h.unified {
		g.join = 1
	}
	return nil
}

// settle takes back the room for the init process once that has left.
func (g *group) settle() error {
	if !g.h.unified {
		return nil
	}
	return os.WriteFile(filepath.Join(g.paths[""], "pids.max"), strconv.AppendInt(nil, g.procs, 10), 0)
}

// cpuTime is what all processes of the group used, dead ones too.
func (g *group) cpuTime() (time.Duration, error) {
	var buf [256]byte
	n, err := g.cpu.ReadAt(buf[:], 0)
	if n == 0 {
		return 0, err
	}
	text, unit := string(buf[:n]), time.Nanosecond
	if g.h.unified {
		text, unit = strings.TrimPrefix(text, "usage_usec "), time.Microsecond
	}
	line, _, _ := strings.Cut(text, "\n")
	v, err := strconv.ParseInt(line, 10, 64)
	return time.Duration(v) * unit, err
}

// memory is the highest use so far.
func (g *group) memory() (int64, error) {
	file := filepath.Join(g.paths["memory"], "memory.max_usage_in_bytes")
	if g.h.unified {
		file = filepath.Join(g.paths[""], "memory.peak")
		if !cgroups.PathExists(file) { // kernel before 5.19
			return 0, nil
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func (g *group) oomKills() (uint64, error) { return g.mgr.OOMKillCount() }

// destroy kills whatever is left in the group and removes it. It tries for about a second.
func (g *group) destroy() error {
	for _, f := range append(g.files, g.cpu) {
		f.Close()
	}
	var errs []error
	for _, p := range g.paths {
		errs = append(errs, removeGroup(p))
	}
	return errors.Join(errs...)
}

// removeGroup empties and removes one cgroup folder.
func removeGroup(dir string) error {
	err := unix.Rmdir(dir)
	for deadline := time.Now().Add(time.Second); ; {
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup %s stays: %w", dir, err)
		}
		pids, _ := cgroups.GetAllPids(dir)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond) // the kernel tells nobody when a killed process has left
		err = cgroups.RemovePath(dir)
	}
}

// sweep removes the groups of dead processes, and with them whatever still runs there.
func (h *hierarchy) sweep(me owner, log *slog.Logger) {
	h.eachGroup(func(name, dir string) {
		if o, ok := parseOwner(name); ok && o.dead(me) {
			if err := removeGroup(dir); err != nil {
				log.Warn("sandbox: a killed process's cgroup stays", "error", err)
			}
		}
	})
}

// close removes the parents if no other process has groups there.
func (h *hierarchy) close() {
	for _, p := range h.parents {
		_ = unix.Rmdir(p)
	}
}

// removeOf tries once more to remove what a run of the named sandbox could not.
func (h *hierarchy) removeOf(sandbox string) {
	h.eachGroup(func(name, dir string) {
		if strings.HasPrefix(name, sandbox+"-") {
			_ = removeGroup(dir)
		}
	})
}

func (h *hierarchy) eachGroup(do func(name, dir string)) {
	for _, p := range h.parents {
		entries, _ := os.ReadDir(p)
		for _, e := range entries {
			if e.IsDir() {
				do(e.Name(), filepath.Join(p, e.Name()))
			}
		}
	}
}
