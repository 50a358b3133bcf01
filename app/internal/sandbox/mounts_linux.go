package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxTmp caps /tmp, which counts towards the memory limit only in ModeCgroup.
const maxTmp = 256 << 20

// rootBuilder makes the file system a payload sees, on a tmpfs. The first error sticks.
type rootBuilder struct {
	root string
	err  error
}

// buildRoot makes the new root, and enters it. Only the calling process's mount namespace is changed.
func buildRoot(s *spec) error {
	b := &rootBuilder{root: s.Root}
	b.mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	b.mount("box", s.Root, "tmpfs", unix.MS_NOSUID, "size=1m,nr_inodes=1024,mode=755")
	for _, d := range []string{"/proc", "/tmp", WorkDir, "/dev", "/etc"} {
		b.mkdir(d)
	}
	b.bind("/usr", true)
	for _, d := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if to, err := os.Readlink(d); err == nil {
			b.symlink(to, d)
		} else {
			b.bind(d, false)
		}
	}
	b.bind("/etc/alternatives", false)
	b.bind("/etc/ld.so.cache", false)
	for _, d := range []string{"null", "zero", "full", "random", "urandom"} {
		b.bind("/dev/"+d, true)
	}
	b.symlink("/proc/self/fd", "/dev/fd")
	b.symlink("/proc/self/fd/0", "/dev/stdin")
	b.symlink("/proc/self/fd/1", "/dev/stdout")
	b.symlink("/proc/self/fd/2", "/dev/stderr")
	b.symlink("/tmp", "/dev/shm")
	for _, p := range s.ReadOnly {
		b.bind(p, true)
	}
	b.write("/etc/passwd", fmt.Sprintf("box:x:%d:%d::/tmp:/bin/sh\n", s.User, s.User))
	b.write("/etc/group", fmt.Sprintf("box:x:%d:\n", s.User))
	b.seal()
	b.work(s.Work, s.Writable)
	b.mount("tmp", b.root+"/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,nr_inodes=16384,mode=1777", min(s.Limits.Memory, maxTmp)))
	b.mount("proc", b.root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	b.enter()
	return b.err
}

func (b *rootBuilder) do(what string, f func() error) {
	if b.err != nil {
		return
	}
	if err := f(); err != nil {
		b.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (b *rootBuilder) mount(src, dst, fstype string, flags uintptr, data string) {
	b.do("mount "+fstype+" "+dst, func() error { return unix.Mount(src, dst, fstype, flags, data) })
}

func (b *rootBuilder) mkdir(d string) {
	b.do("make "+d, func() error { return os.MkdirAll(b.root+d, 0o755) })
}

func (b *rootBuilder) symlink(to, name string) {
	b.do("link "+name, func() error { return os.Symlink(to, b.root+name) })
}

func (b *rootBuilder) write(name, text string) {
	b.do("write "+name, func() error { return os.WriteFile(b.root+name, []byte(text), 0o644) })
}

// bind shows a host path at the same place. One that is not there is left out, unless it is needed.
func (b *rootBuilder) bind(p string, needed bool) {
	b.do("bind "+p, func() error {
		fi, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) && !needed {
			return nil
		}
		if err != nil {
			return err
		}
		dst := b.root + p
		if fi.IsDir() {
			err = os.MkdirAll(dst, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(dst), 0o755); err == nil {
			err = os.WriteFile(dst, nil, 0o644)
		}
		if err != nil {
			return err
		}
		return unix.Mount(p, dst, "", unix.MS_BIND|unix.MS_REC, "")
	})
}

// seal makes all that is mounted so far read-only, submounts of the binds included.
func (b *rootBuilder) seal() {
	b.do("seal", func() error {
		return unix.MountSetattr(unix.AT_FDCWD, b.root, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID})
	})
}

func (b *rootBuilder) work(src string, writable bool) {
	dst := b.root + WorkDir
	b.mount(src, dst, "", unix.MS_BIND, "")
	b.do("work folder flags", func() error {
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if !writable {
			a.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		return unix.MountSetattr(unix.AT_FDCWD, dst, 0, &a)
	})
}

// enter makes the new root the root. The old one is stacked on top of it for a moment, and dropped: no folder is needed.
func (b *rootBuilder) enter() {
	b.do("enter the root", func() error {
		if err := unix.Chdir(b.root); err != nil {
			return err
		}
		if err := unix.PivotRoot(".", "."); err != nil {
			return err
		}
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return err
		}
		return unix.Chdir("/")
	})
}
