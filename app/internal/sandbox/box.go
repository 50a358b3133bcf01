package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// ErrTooLarge is returned by Box.Read for a file above the caller's cap, ErrNotFile for anything but a regular file.
var (
	ErrTooLarge = errors.New("file is larger than allowed")
	ErrNotFile  = errors.New("not a regular file")
)

// Box is a work folder and the right to run commands over it. Its methods may be called one after the other, as often as
// wanted; several boxes may be used at the same time.
type Box struct {
	sb   *Sandbox
	dir  string   // holds the work folder and the mount point of the new root
	work *os.Root // what the payload may have filled: every access goes through it, so that no link leads out
	uid  int      // owner of the work folder, the user the payload runs as
}

const (
	workName = "work"
	rootName = "root"
)

// NewBox makes an empty box.
func (s *Sandbox) NewBox() (*Box, error) {
	n := s.boxes.Add(1)
	b := &Box{sb: s, uid: s.plat.boxUser(n)}
	b.dir = filepath.Join(s.dir, strconv.FormatInt(n, 10))
	if err := b.create(); err != nil {
		return nil, errors.Join(fmt.Errorf("new box: %w", err), removeTree(b.dir))
	}
	return b, nil
}

func (b *Box) create() error {
	work, root := filepath.Join(b.dir, workName), filepath.Join(b.dir, rootName)
	for _, d := range []string{b.dir, work, root} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if b.uid != os.Geteuid() {
		// The group lets the box's user pass through; it owns nothing but the work folder.
		if err := os.Chown(b.dir, -1, b.uid); err != nil {
			return err
		}
		if err := os.Chmod(b.dir, 0o710); err != nil {
			return err
		}
		if err := os.Chmod(root, 0o711); err != nil {
			return err
		}
		if err := os.Chown(work, b.uid, b.uid); err != nil {
			return err
		}
	}
	var err error
	b.work, err = os.OpenRoot(work)
	return err
}

// Put writes a file into the work folder, replacing whatever has the name, with the given permissions. The name may hold
// folders ("lib/a.h"), which are made. The box's user owns all of it.
func (b *Box) Put(name string, data []byte, mode fs.FileMode) error {
	if err := b.put(name, data, mode); err != nil {
		return fmt.Errorf("box: put %s: %w", name, err)
	}
	return nil
}

func (b *Box) put(name string, data []byte, mode fs.FileMode) error {
	if err := b.putDir(path.Dir(path.Clean(name))); err != nil {
		return err
	}
	// Never open what is there: it may be a pipe or a link that the payload left.
	if err := b.work.RemoveAll(name); err != nil {
		return err
	}
	f, err := b.work.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode.Perm())
	}
	if err == nil && b.uid != os.Geteuid() {
		err = f.Chown(b.uid, b.uid)
	}
	return errors.Join(err, f.Close())
}

func (b *Box) putDir(dir string) error {
	if dir == "." {
		return nil
	}
	if err := b.putDir(path.Dir(dir)); err != nil {
		return err
	}
	err := b.work.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && b.uid != os.Geteuid() {
		err = b.work.Lchown(dir, b.uid, b.uid)
	}
	return err
}

// Read returns a regular file of the work folder of at most limit bytes. It follows no link in the last element, none
// that leaves the folder anywhere, and does not block on a pipe: those give an error, ErrNotFile or ErrTooLarge where
// that is the reason.
func (b *Box) Read(name string, limit int64) ([]byte, error) {
	data, err := b.read(name, limit)
	if err != nil {
		return nil, fmt.Errorf("box: read %s: %w", name, err)
	}
	return data, nil
}

func (b *Box) read(name string, limit int64) ([]byte, error) {
	// A look before opening: opening a device can have effects.
	if fi, err := b.work.Lstat(name); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, ErrNotFile
	}
	f, err := b.work.OpenFile(name, os.O_RDONLY|openNoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, ErrNotFile
	} else if fi.Size() > limit {
		return nil, ErrTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, ErrTooLarge
	}
	return data, err
}

// Run executes a command and returns when every process of it is dead. Whatever the program does is in the Result; an
// error means that the sandbox itself failed, or that ctx ended, and is then context.Cause(ctx). A program of the work
// folder that cannot be executed counts as exit code 126 (127 if it is not there). Run may be called again, also
// after an error.
func (b *Box) Run(ctx context.Context, c Command) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, fmt.Errorf("sandbox: %w", err)
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	c.Limits = c.Limits.withDefaults()
	if c.Env == nil {
		c.Env = defaultEnv()
	}
	run := b.runIsolated
	if b.sb.mode == ModeNone {
		run = b.runBare
	}
	r, err := run(ctx, c)
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return r, err
	}
	return r, fmt.Errorf("sandbox: %w", err)
}

// Close removes the work folder and everything in it. Calling it again does nothing.
func (b *Box) Close() error {
	return errors.Join(b.work.Close(), removeTree(b.dir))
}
