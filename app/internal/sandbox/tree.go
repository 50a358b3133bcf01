package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// treeDepth is how deep removeTree descends at once; it holds that many open folders.
const treeDepth = 50

// removeTree removes a folder that a payload may have filled: unreadable folders, many files, nesting deeper than there
// are file descriptors. No link is followed. A folder that is not there is no error. Nobody else may be writing to it.
func removeTree(dir string) error {
	if err := empty(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func empty(dir string) error {
	top, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	r := remover{top: top}
	for {
		before := r.moved
		if err := r.clear(top, ".", 0); err != nil || r.moved == before {
			return err
		}
	}
}

// remover empties a folder. What lies too deep it moves to the top, for the next round.
type remover struct {
	top   *os.Root
	moved int
}

// clear empties the folder at path below the top, which is also open as dir.
func (r *remover) clear(dir *os.Root, path string, depth int) error {
	return eachEntry(dir, func(name string, isDir bool) error {
		if !isDir {
			return dir.Remove(name)
		}
		// Chmod would follow a link, but this was just seen to be a folder. It needs to be readable, and writable even
		// for a move, which changes its "..".
		if err := dir.Chmod(name, 0o700); err != nil {
			return err
		}
		if depth == treeDepth {
			return r.moveUp(path + "/" + name)
		}
		sub, err := dir.OpenRoot(name)
		if err != nil {
			return err
		}
		err = r.clear(sub, path+"/"+name, depth+1)
		if err := errors.Join(err, sub.Close()); err != nil {
			return err
		}
		return dir.Remove(name)
	})
}

// moveUp moves a folder to an unused name at the top.
func (r *remover) moveUp(path string) error {
	for {
		r.moved++
		to := ".deep-" + strconv.Itoa(r.moved)
		if _, err := r.top.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return r.top.Rename(path, to)
		} else if err != nil {
			return err
		}
	}
}

// eachEntry calls do for every entry of a folder, which do may remove or move away.
func eachEntry(dir *os.Root, do func(name string, isDir bool) error) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		batch, err := f.ReadDir(256)
		for _, e := range batch {
			if err := do(e.Name(), e.IsDir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
