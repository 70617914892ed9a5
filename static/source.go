package static

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/filohttp/filo"
)

// source is a tree of files.
type source interface {
	// open opens a file or a directory. It never blocks, not even for a FIFO or a device.
	open(name string) (fs.File, error)
	stat(name string) (fs.FileInfo, error)
	// httpError turns an error of open or stat into one for the client.
	httpError(err error) error
	close() error
}

// anyFS is an fs.FS.
type anyFS struct{ fs fs.FS }

// open checks the type first: opening a FIFO of an os.DirFS would wait for somebody to write to it.
func (s anyFS) open(name string) (fs.File, error) {
	info, err := fs.Stat(s.fs, name)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() && !mode.IsDir() {
		return nil, fs.ErrNotExist
	}
	return s.fs.Open(name)
}

func (s anyFS) stat(name string) (fs.FileInfo, error) { return fs.Stat(s.fs, name) }
func (s anyFS) httpError(err error) error             { return httpError(err) }
func (s anyFS) close() error                          { return nil }

// rootDir is a directory that no path leads out of.
type rootDir struct {
	root *os.Root
	// escapes is the error of os.Root for a path that leads out of it; package os exports no name for it.
	escapes error
}

func newRootDir(root *os.Root) *rootDir {
	s := &rootDir{root: root}
	var e *fs.PathError
	if _, err := root.Lstat(".."); errors.As(err, &e) {
		s.escapes = e.Err
	}
	return s
}

func (s *rootDir) open(name string) (fs.File, error) { return s.root.OpenFile(name, openFlags, 0) }

func (s *rootDir) stat(name string) (fs.FileInfo, error) { return s.root.Stat(name) }

func (s *rootDir) httpError(err error) error {
	if s.escapes != nil && errors.Is(err, s.escapes) {
		return &filo.HTTPError{Status: 404, Err: err}
	}
	return httpError(err)
}

func (s *rootDir) close() error { return s.root.Close() }

// errDirectory is the error for a directory where a file was expected.
var errDirectory = errors.New("static: is a directory")

// openRegular opens a regular file.
func openRegular(s source, name string) (fs.File, fs.FileInfo, error) {
	file, err := s.open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := regular(file.Stat())
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// statRegular returns the properties of a regular file.
func statRegular(s source, name string) (fs.FileInfo, error) {
	return regular(s.stat(name))
}

// regular adds an error if the properties aren't those of a regular file.
func regular(info fs.FileInfo, err error) (fs.FileInfo, error) {
	if err == nil && !info.Mode().IsRegular() {
		if err = fs.ErrNotExist; info.IsDir() {
			err = errDirectory
		}
	}
	return info, err
}

// httpError turns the error of a file into one for the client. It returns other errors unchanged: those that already have a status, and
// failures of the server, which become a 500.
func httpError(err error) error {
	var e *filo.HTTPError
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid), errors.Is(err, errDirectory),
		errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP),
		errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENXIO): // ENXIO is the error for a socket
		return &filo.HTTPError{Status: 404, Err: err}
	case errors.Is(err, fs.ErrPermission):
		return &filo.HTTPError{Status: 403, Err: err}
	}
	return err
}
