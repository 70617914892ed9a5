package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// upload is a file that is uploaded in pieces. Its bytes are in one file, which is renamed when it is complete. Its record is in another file in the
// same folder. The size of the first file is how much has arrived, so an upload survives a restart of the process.
type upload struct {
	record
	id string

	// The store's mu guards the fields below. But while the upload is acquired, only the goroutine that has acquired it reads and changes offset.
	busy   bool
	offset int64
	active time.Time // when the last bytes arrived
}

// record is the part of an upload that is stored on disk.
type record struct {
	Name     string `json:"name"`
	Length   int64  `json:"length"`
	Metadata string `json:"metadata,omitempty"` // as the client sent it
	Stored   string `json:"stored,omitempty"`   // the name of the complete file
}

// whole reports whether all bytes have arrived and the file has its name. The store still remembers such an upload for a while, since the client might
// not have received the answer.
func (u *upload) whole() bool { return u.Stored != "" }

func (u *upload) bytesPath() string  { return path.Join(partsDir, u.id+".part") }
func (u *upload) recordPath() string { return path.Join(partsDir, u.id+".json") }

var (
	errUnknown = filo.Error(404, "there is no such upload; it may have expired")
	errBusy    = filo.Error(423, "the upload is being sent on another connection")
)

// create adds an upload that has no bytes yet.
func (s *store) create(r record) (*upload, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	if r.Length > s.limits.fileBytes {
		return nil, filo.Error(413, fmt.Sprintf("a file may have %d bytes", s.limits.fileBytes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.place(r.Length); err != nil {
		return nil, err
	}
	u := &upload{record: r, id: rand.Text(), active: time.Now()}
	f, err := s.root.OpenFile(u.bytesPath(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = s.writeRecord(u)
	}
	if err == nil && u.Length == 0 {
		err = s.finish(u)
	}
	if err != nil {
		s.forget(u)
		return nil, diskError(err)
	}
	s.uploads[u.id] = u
	return u, nil
}

// place makes room for one more upload, or returns an error that says why there is none. The caller holds mu.
func (s *store) place(size int64) error {
	unfinished := 0
	var oldest *upload // the oldest complete upload, which can be forgotten
	for _, u := range s.uploads {
		switch {
		case !u.whole():
			unfinished++
		case oldest == nil || u.active.Before(oldest.active):
			oldest = u
		}
	}
	if unfinished >= maxUnfinished {
		return filo.Error(503, fmt.Sprintf("there are %d unfinished uploads already, which is the limit", unfinished))
	}
	if len(s.uploads) >= maxUploads {
		s.forget(oldest)
	}
	return s.room(size)
}

// acquire returns an upload for exclusive use by the caller, until the caller calls release.
func (s *store) acquire(id string) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	switch {
	case u == nil:
		return nil, errUnknown
	case u.busy:
		return nil, errBusy
	}
	u.busy = true
	return u, nil
}

func (s *store) release(u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.busy = false
}

// abandon removes an upload. A file that has already been completed stays.
func (s *store) abandon(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	switch {
	case u == nil:
		return errUnknown
	case u.busy:
		return errBusy
	}
	s.forget(u)
	return nil
}

// forget removes an upload and its files in partsDir. The caller holds mu.
func (s *store) forget(u *upload) {
	delete(s.uploads, u.id)
	s.root.Remove(u.bytesPath())
	s.root.Remove(u.recordPath())
}

// expire removes the uploads for which no bytes have arrived for too long.
func (s *store) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		if !u.busy && now.Sub(u.active) > s.limits.expiry {
			s.forget(u)
		}
	}
}

// add appends the body to an acquired upload. If reading the body fails, the bytes before the failure are kept. If the body is longer than announced,
// none of it is kept. add uses no more memory than the buffer of io.Copy.
func (s *store) add(u *upload, body io.Reader) (err error) {
	f, err := s.root.OpenFile(u.bytesPath(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	if _, err := f.Seek(u.offset, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(f, body)
	if errors.Is(err, filo.ErrBodyTooLarge) {
		return errors.Join(err, f.Truncate(u.offset))
	}
	all := u.offset+n == u.Length
	if err == nil && all {
		err = f.Sync() // once a file has its name, its content must survive a power failure
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u.active = time.Now()
	if err == nil && all {
		err = s.finish(u)
	}
	// For a client, an upload is complete when its offset equals its length. So the last piece counts only once the file has its name.
	if !all || u.whole() {
		u.offset += n
	}
	return diskError(err)
}

// put stores a whole body as a file. If the body breaks off, put stores nothing.
func (s *store) put(r record, body io.Reader) (file, error) {
	u, err := s.create(r)
	if err == nil {
		u, err = s.acquire(u.id)
	}
	if err != nil {
		return file{}, err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(u) // deferred, so that it also runs after a panic
	}()
	if !u.whole() {
		if err := s.add(u, body); err != nil {
			return file{}, err
		}
	}
	return file{u.Stored, u.Length, u.active.UTC()}, nil
}

// finish gives a complete upload its name. The caller holds mu, so the name stays free.
func (s *store) finish(u *upload) error {
	name, err := freeName(s.root, u.Name)
	if err != nil {
		return err
	}
	u.Stored = name
	err = s.writeRecord(u)
	if err == nil {
		err = s.root.Rename(u.bytesPath(), name)
	}
	if err != nil {
		u.Stored = ""
		return fmt.Errorf("name a whole upload: %w", err)
	}
	s.changed()
	return nil
}

func (s *store) writeRecord(u *upload) error {
	text, err := json.Marshal(u.record)
	if err != nil {
		return err
	}
	return s.root.WriteFile(u.recordPath(), text, 0o644)
}

// load restores the uploads of an earlier process. It removes files that belong to no valid upload, such as those left by a crash.
func (s *store) load() error {
	if err := s.root.Mkdir(partsDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := fs.ReadDir(s.root.FS(), partsDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if id, isRecord := strings.CutSuffix(e.Name(), ".json"); isRecord {
			if err := s.loadUpload(id); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if s.uploads[strings.TrimSuffix(e.Name(), path.Ext(e.Name()))] == nil {
			if err := s.root.RemoveAll(path.Join(partsDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *store) loadUpload(id string) error {
	u := &upload{id: id}
	text, err := s.root.ReadFile(u.recordPath())
	if err != nil {
		return err
	}
	if json.Unmarshal(text, &u.record) != nil || checkName(u.Name) != nil {
		return nil
	}
	info, err := s.root.Lstat(u.bytesPath())
	switch {
	case err == nil && info.Size() <= u.Length:
		u.Stored = "" // the part file still exists, so the upload hasn't been renamed
		u.offset = info.Size()
	case errors.Is(err, fs.ErrNotExist) && u.whole():
		u.offset = u.Length
		info, err = s.root.Lstat(u.recordPath())
	default:
		return nil
	}
	if err != nil {
		return err
	}
	u.active = info.ModTime()
	s.uploads[id] = u
	if u.offset == u.Length && !u.whole() {
		return s.finish(u)
	}
	return nil
}
