package static

import (
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/byterange"
	"github.com/filohttp/filo/internal/localfile"
)

// openFile is an open file with a count of its holders. The last holder closes it.
type openFile struct {
	fs.File
	shared  *os.File // the same file, if several goroutines may read it at once, each at its own position; nil if reading moves the file's position
	holders atomic.Int32
	local   *localfile.File // the same file, set when openFiles first keeps it; nil if it isn't a local file

	// Guarded by the openFiles' lock.
	of   *representation // the representation whose field open is this file; nil if openFiles doesn't keep the file
	slot int             // the file's index in openFiles.ring
	used bool            // whether the file was used since the hand or the sweep last passed it
}

// newOpenFile returns a file with its caller as the only holder.
func newOpenFile(file fs.File) *openFile {
	o := &openFile{File: file}
	o.holders.Store(1)
	// Only on Linux can sendfile send a part of a file independently of the file's position, so that several goroutines can share
	// the file. Besides, on Windows an open file can't be replaced.
	if runtime.GOOS == "linux" {
		o.shared, _ = file.(*os.File)
	}
	return o
}

// Close releases one hold on the file.
func (o *openFile) Close() error {
	switch n := o.holders.Add(-1); {
	case n < 0:
		panic("static: a file was closed by more callers than hold it")
	case n > 0:
		return nil
	}
	return o.File.Close()
}

// is reports whether the file has the stamp. Replacing or deleting the file changes its stamp, because the loss of the last link
// updates the time of change.
func (o *openFile) is(s *stamp) bool {
	if o.local != nil {
		now, ok := o.local.Stat()
		return ok && stampOfState(now) == *s
	}
	info, err := o.Stat()
	return err == nil && stampOf(info) == *s
}

// reader returns a reader of a range. A file that isn't shared may have only one reader at a time.
func (o *openFile) reader(r byterange.Range) (io.Reader, error) {
	if o.shared != nil {
		return io.NewSectionReader(o.shared, r.Begin, r.Length), nil
	}
	return &io.LimitedReader{R: o.File, N: r.Length}, o.seek(r.Begin)
}

// seek moves the position of a file that isn't shared.
func (o *openFile) seek(position int64) error {
	_, err := o.File.(io.Seeker).Seek(position, io.SeekStart)
	return err
}

// body returns a range of the file as the body of a response. The body takes over the caller's hold on the file, and releases it when it
// is closed. If body returns an error, it has already released the hold.
func (o *openFile) body(r byterange.Range) (io.ReadCloser, error) {
	if o.shared != nil {
		return &sharedBody{*io.NewSectionReader(o.shared, r.Begin, r.Length), o}, nil
	}
	if r.Begin > 0 { // the file was just opened, and may not be an io.Seeker if all of it is sent
		if err := o.seek(r.Begin); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o.File, nil // sendfile can send it directly
}

// sharedBody is a part of a file. It is one of the file's holders.
type sharedBody struct {
	io.SectionReader
	file *openFile
}

func (b *sharedBody) Close() error { return b.file.Close() }

// FileSection returns the section, so that the server can send it with sendfile.
func (b *sharedBody) FileSection() *io.SectionReader { return &b.SectionReader }

// LocalFile returns the file, nil if it isn't known to be local.
func (b *sharedBody) LocalFile() *localfile.File { return b.file.local }

// openFiles keeps frequently requested files open, as one of their holders. To make room, it drops a file with the CLOCK algorithm: one
// that wasn't used since the hand last passed it. In addition, it drops files that weren't used for one to two times keepTime, because an
// open file occupies space on the disk even after it was deleted.
type openFiles struct {
	limit int // the maximum number of files in ring; if it isn't positive, no file is kept; immutable

	mu     sync.Mutex
	ring   []*openFile // each at its slot; guarded by mu
	hand   int         // guarded by mu
	timer  *time.Timer // for the next sweep; nil if there is nothing to sweep; guarded by mu
	closed bool        // nothing is kept any more; guarded by mu
}

// keepTime is the minimum time for which a file that isn't used stays open; it stays open for at most twice that.
const keepTime = 10 * time.Second

// get returns the open file of a representation, nil if there is none. The caller becomes a holder of the file.
func (f *openFiles) get(r *representation) *openFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := r.open
	if o != nil {
		o.used = true
		o.holders.Add(1)
	}
	return o
}

// put keeps the file of a representation open, if the file can be shared and the limit allows that.
func (f *openFiles) put(r *representation, o *openFile) {
	if o.shared == nil || f.limit <= 0 {
		return
	}
	o.local = localfile.Of(o.shared)
	f.mu.Lock()
	if f.closed || r.open != nil {
		f.mu.Unlock()
		return
	}
	var dropped *openFile
	for len(f.ring) >= f.limit {
		f.hand %= len(f.ring)
		if dropped = f.ring[f.hand]; !dropped.used {
			f.dropLocked(dropped)
			break
		}
		dropped.used = false
		f.hand++
	}
	o.holders.Add(1)
	o.of, o.slot, o.used, r.open = r, len(f.ring), true, o
	f.ring = append(f.ring, o)
	if f.timer == nil {
		f.timer = time.AfterFunc(keepTime, f.sweep)
	}
	f.mu.Unlock()
	if dropped != nil {
		dropped.Close() // without the lock: a disk may be slow
	}
}

// drop stops keeping the open files of these representations.
func (f *openFiles) drop(representations ...*representation) {
	for _, r := range representations {
		f.mu.Lock()
		o := r.open
		if o != nil {
			f.dropLocked(o)
		}
		f.mu.Unlock()
		if o != nil {
			o.Close()
		}
	}
}

// dropLocked removes a file, which the caller must close.
func (f *openFiles) dropLocked(o *openFile) {
	last := len(f.ring) - 1
	f.ring[o.slot] = f.ring[last]
	f.ring[o.slot].slot = o.slot
	f.ring[last] = nil
	f.ring = f.ring[:last]
	o.of.open, o.of = nil, nil
}

// sweep drops the files that weren't used since the last sweep.
func (f *openFiles) sweep() {
	f.mu.Lock()
	var dropped []*openFile
	for i := len(f.ring) - 1; i >= 0; i-- { // backwards, so that a file that dropLocked moves into a free slot was already checked
		if o := f.ring[i]; o.used && !f.closed {
			o.used = false
		} else {
			f.dropLocked(o)
			dropped = append(dropped, o)
		}
	}
	if f.timer = nil; len(f.ring) > 0 {
		f.timer = time.AfterFunc(keepTime, f.sweep)
	}
	f.mu.Unlock()
	for _, o := range dropped {
		o.Close()
	}
}

// close drops all files; none is kept afterwards.
func (f *openFiles) close() {
	f.mu.Lock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.sweep()
}
