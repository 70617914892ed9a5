package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/filohttp/filo"
)

const (
	// maxFiles is the maximum number of stored files.
	maxFiles = 1000
	// maxUploads is how many uploads the store remembers, and maxUnfinished how many of them may be unfinished.
	maxUploads    = 1000
	maxUnfinished = 100
	// partsDir holds the unfinished uploads. Because of its dot, no file can have this name, and package static serves nothing below it.
	partsDir = ".uploads"
)

type limits struct {
	fileBytes  int64         // of one file
	totalBytes int64         // of all files; unfinished uploads count with their announced length
	expiry     time.Duration // how long an upload is kept after its last byte arrived
	stall      time.Duration // how long an upload may pause while its request runs
}

// store keeps files in one directory, which belongs to one process at a time. Every access goes through an os.Root, so that no name and no symbolic
// link leads outside the directory.
type store struct {
	root    *os.Root
	limits  limits
	changed func() // called when a file was added or removed; set before the store is used
	done    chan struct{}
	cleaned sync.WaitGroup

	mu      sync.Mutex
	uploads map[string]*upload // by id
}

// file describes a stored file in answers.
type file struct {
	Name     string    `json:"name"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// openStore creates the directory if needed, and restores the uploads that an earlier process has left unfinished.
func openStore(dir string, limits limits) (*store, error) {
	if limits.fileBytes < 0 || limits.totalBytes < 0 || limits.expiry <= 0 || limits.stall <= 0 {
		return nil, errors.New("-max-bytes and -max-total mustn't be negative, -expire and -stall must be positive")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &store{root: root, limits: limits, changed: func() {}, done: make(chan struct{}), uploads: make(map[string]*upload)}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	s.cleaned.Go(s.clean)
	return s, nil
}

func (s *store) close() error {
	close(s.done)
	s.cleaned.Wait()
	return s.root.Close()
}

// clean removes expired uploads periodically, until the store is closed.
func (s *store) clean() {
	ticker := time.NewTicker(max(s.limits.expiry/10, time.Second))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.expire(now)
		case <-s.done:
			return
		}
	}
}

// list returns the complete files, the newest first.
func (s *store) list() ([]file, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	files := []file{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since ReadDir
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && checkName(e.Name()) == nil {
			files = append(files, file{e.Name(), info.Size(), info.ModTime().UTC()})
		}
	}
	slices.SortStableFunc(files, func(a, b file) int { return b.Modified.Compare(a.Modified) })
	return files, nil
}

// remove deletes a file.
func (s *store) remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	info, err := s.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = s.root.Remove(name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return filo.Error(404, "there is no such file")
	case err != nil:
		return err
	}
	s.changed()
	return nil
}

// room returns an error unless there is room for a further file of that size. The caller holds mu.
func (s *store) room(size int64) error {
	files, err := s.list()
	if err != nil {
		return err
	}
	count, total := len(files), size
	for _, f := range files {
		total += f.Size
	}
	for _, u := range s.uploads {
		if !u.whole() {
			count++
			total += u.Length
		}
	}
	switch {
	case count >= maxFiles:
		return filo.Error(507, fmt.Sprintf("there are %d files already, which is the limit", count))
	case total > s.limits.totalBytes || total < 0:
		return filo.Error(507, fmt.Sprintf("all files together may have %d bytes", s.limits.totalBytes))
	}
	return nil
}

// diskError turns the error of a full disk into a 507 for the client.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &filo.HTTPError{Status: 507, Detail: "the disk is full", Err: err}
	}
	return err
}
