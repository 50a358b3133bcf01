package problem

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// readTree lists the package's regular files and finds what must not be in a
// package at all: links that lead out or nowhere, and files that are no files.
// Opening a pipe would block, so nothing is opened before this has looked.
func (l *loader) readTree() {
	err := fs.WalkDir(l.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			l.reject(name, "cannot be read: "+reason(err), "correct its permissions")
		case e.Type() == fs.ModeSymlink:
			l.readLink(name)
		case e.Type().IsRegular():
			l.files = append(l.files, name)
		case !e.IsDir():
			l.reject(name, "is neither a file nor a folder", "remove it")
		}
		return nil
	})
	if err != nil {
		l.fail("", 0, "cannot list the folder: "+reason(err), "correct its permissions")
	}
}

func (l *loader) readLink(name string) {
	info, err := l.root.Stat(name)
	switch {
	case os.IsNotExist(err):
		l.reject(name, "is a link to nothing", "put the file in its place")
	case err != nil:
		l.reject(name, "is a link out of the package or in a circle", "put the file in its place")
	case info.Mode().IsRegular():
		l.files = append(l.files, name)
	case info.IsDir() && !strings.HasPrefix(name, "data/") && name != "data":
		// Harmless elsewhere; only data/ is walked into.
	case info.IsDir():
		// A link to a folder may close a circle, and its tests would count twice.
		l.reject(name, "is a link to a folder", "put the folder in its place")
	default:
		l.reject(name, "is a link to neither a file nor a folder", "remove it")
	}
}

// reject reports a path that must not be looked at any further.
func (l *loader) reject(name, what, mend string) {
	l.bad[name] = true
	l.fail(name, 0, what, mend)
}

// readFile reads a small text file of the package. ok is false when it is not
// there or was reported.
func (l *loader) readFile(name string, limit int64) (content []byte, ok bool) {
	if l.bad[name] {
		return nil, false
	}
	info, err := l.root.Stat(name)
	if os.IsNotExist(err) {
		return nil, false
	}
	if err == nil && info.IsDir() {
		l.reject(name, "is a folder", "put a file in its place")
		return nil, false
	}
	var f *os.File
	if err == nil {
		f, err = l.root.Open(name)
	}
	if err == nil {
		defer f.Close()
		content, err = io.ReadAll(io.LimitReader(f, limit+1))
	}
	if err != nil {
		l.reject(name, "cannot be read: "+reason(err), "correct its permissions")
		return nil, false
	}
	if int64(len(content)) > limit {
		l.reject(name, fmt.Sprintf("is larger than %d KiB", limit>>10), "shorten it")
		return nil, false
	}
	return content, true
}

// list gives a folder's entries by name; ok is false when it is not there or
// was reported.
func (l *loader) list(dir string) (entries []fs.DirEntry, ok bool) {
	if l.bad[dir] {
		return nil, false
	}
	info, err := l.root.Stat(dir)
	if os.IsNotExist(err) {
		return nil, false
	}
	if err == nil && !info.IsDir() {
		l.reject(dir, "is a file", "put a folder in its place")
		return nil, false
	}
	if err == nil {
		entries, err = fs.ReadDir(l.root.FS(), dir)
	}
	if err != nil {
		l.reject(dir, "cannot be read: "+reason(err), "correct its permissions")
		return nil, false
	}
	return entries, true
}

// readContents reads the files that can change a verdict once, for the hash and
// for what the format forbids but the judge can bear.
func (l *loader) readContents() {
	judged := map[string]bool{}
	for _, t := range l.pkg.Tests {
		judged["data/"+t.Name+".in"] = true
		judged["data/"+t.Name+".ans"] = true
	}
	names := slices.DeleteFunc(slices.Clone(l.files), func(name string) bool {
		return name != settingsFile && name != timeFile && !strings.HasPrefix(name, "data/")
	})
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		content := sha256.New()
		text := &textScan{}
		if err := l.copyFile(io.MultiWriter(content, text), name); err != nil {
			if !l.bad[name] {
				l.reject(name, "cannot be read: "+reason(err), "correct its permissions")
			}
			continue
		}
		// A content of fixed length behind a path that cannot hold a NUL byte:
		// no two sets of files give the same stream.
		sum.Write([]byte(name + "\x00"))
		sum.Write(content.Sum(nil))
		if what := text.faults(); judged[name] && what != "" {
			l.warn(name, what+" (given to the program unchanged; of no account in an answer)")
		}
	}
	l.pkg.Hash = hex.EncodeToString(sum.Sum(nil))
}

func (l *loader) copyFile(w io.Writer, name string) error {
	f, err := l.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// textScan watches a text pass by for what the format forbids in text files.
type textScan struct {
	head []byte
	last byte
	size int64
	crlf bool
}

func (t *textScan) Write(p []byte) (int, error) {
	for i := 0; i < len(p) && len(t.head) < 3; i++ {
		t.head = append(t.head, p[i])
	}
	if len(p) > 0 {
		t.crlf = t.crlf || t.last == '\r' && p[0] == '\n' || bytes.Contains(p, []byte("\r\n"))
		t.last = p[len(p)-1]
	}
	t.size += int64(len(p))
	return len(p), nil
}

func (t *textScan) faults() string {
	var all []string
	if string(t.head) == mark {
		all = append(all, "begins with a byte-order mark")
	}
	if t.crlf {
		all = append(all, "has CRLF line ends")
	}
	if t.size > 0 && t.last != '\n' {
		all = append(all, "does not end with a newline")
	}
	return strings.Join(all, ", ")
}

// mark is the UTF-8 byte-order mark.
const mark = "\xef\xbb\xbf"

// stem is a name without its last extension.
func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }
