package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/filohttp/filo"
)

// tempPrefix begins the name of a file that is still being written. No upload can have such a name, since
// validName refuses a leading dot.
const tempPrefix = ".upload-"

// maxName keeps names within what common file systems take (255 bytes).
const maxName = 200

// store keeps uploads in one directory. Every access goes through an os.Root, so that no name, and no
// symbolic link that somebody left there, leads outside.
type store struct {
	root     *os.Root
	maxBytes int64 // of one upload; negative: no limit
	fsync    bool
}

// file is how an upload is described in answers.
type file struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// openStore makes dir if needed and removes what an earlier process left half written, so a directory
// belongs to one process at a time.
func openStore(dir string, maxBytes int64, fsync bool) (*store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &store{root: root, maxBytes: maxBytes, fsync: fsync}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if err := root.Remove(e.Name()); err != nil {
				return nil, errors.Join(err, root.Close())
			}
		}
	}
	return s, nil
}

func (s *store) close() { s.root.Close() }

// handle is the example's whole site: GET /files lists, PUT or POST /files/{name} stores.
func (s *store) handle(c *filo.Ctx) error {
	path, method := c.Path(), c.Method()
	if path == "/files" || path == "/files/" {
		if method != http.MethodGet && method != http.MethodHead {
			c.Response.Header.Set("Allow", "GET, HEAD")
			return filo.Error(http.StatusMethodNotAllowed, "send a file to /files/{name}")
		}
		return s.list(c)
	}
	name, ok := strings.CutPrefix(path, "/files/")
	if !ok {
		return filo.Error(http.StatusNotFound, "there is GET /files, and PUT or POST /files/{name}")
	}
	if method != http.MethodPut && method != http.MethodPost {
		c.Response.Header.Set("Allow", "PUT, POST")
		return filo.Error(http.StatusMethodNotAllowed, "allowed here: PUT, POST")
	}
	if !validName(name) {
		return filo.Error(http.StatusBadRequest, fmt.Sprintf(
			"a file's name is 1 to %d letters, digits, '.', '-' or '_', and doesn't begin with a dot", maxName))
	}
	return s.put(c, name)
}

// validName is narrower than any file system, so that a name means the same everywhere.
func validName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' {
		return false
	}
	for _, b := range []byte(name) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '.', b == '-', b == '_':
		default:
			return false
		}
	}
	return true
}

// put writes the body to a temporary file and renames it when it is whole: a reader sees the old file or
// the new one, never a part. Of several uploads to one name the last to end wins.
func (s *store) put(c *filo.Ctx, name string) error {
	c.SetMaxBodyBytes(s.maxBytes)
	temp := tempPrefix + rand.Text()
	kept := false
	defer func() {
		// Also after a panic. Nothing is left of an upload that broke off.
		if !kept {
			s.root.Remove(temp)
		}
	}()
	size, err := s.write(temp, c.BodyReader())
	if err != nil {
		return err
	}
	_, err = s.root.Lstat(name)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := s.root.Rename(temp, name); err != nil {
		return fmt.Errorf("rename upload: %w", err)
	}
	kept = true
	if s.fsync {
		if err := s.syncDir(); err != nil {
			return err
		}
	}
	if isNew {
		c.Response.Header.Set("Location", "/files/"+name)
		return c.JSON(http.StatusCreated, file{name, size})
	}
	return c.JSON(http.StatusOK, file{name, size})
}

// write stores the body in a new file. The buffer that io.Copy borrows from the server, of up to 64 KB, is all
// the memory that an upload takes here, whatever its size.
func (s *store) write(name string, body io.Reader) (size int64, err error) {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, diskError("create upload", err)
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	size, err = io.Copy(f, body)
	if err != nil {
		return 0, diskError(fmt.Sprintf("after %d bytes of the upload", size), err)
	}
	if s.fsync {
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("sync upload: %w", err)
		}
	}
	return size, nil
}

// diskError returns the error of an upload. A disk may be full of bytes or of files.
func diskError(during string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return &filo.HTTPError{Status: http.StatusInsufficientStorage, Detail: "the disk is full", Err: err}
	}
	return fmt.Errorf("%s: %w", during, err)
}

// syncDir makes the rename itself durable.
func (s *store) syncDir() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// list answers with the whole uploads, in the order of their names as ReadDir gives it.
func (s *store) list(c *filo.Ctx) error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	files := []file{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // an upload that ended or broke off since ReadDir
		}
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() && validName(e.Name()) {
			files = append(files, file{e.Name(), info.Size()})
		}
	}
	return c.JSON(http.StatusOK, files)
}
