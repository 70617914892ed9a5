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

// openFile is a file that is open for those who hold it. The last of them closes it.
type openFile struct {
	fs.File
	shared  *os.File // the same, if several may read it at once, each from where it likes; nil if reading moves its position
	holders atomic.Int32
	local   *localfile.File // the same, once somebody wants to keep it; nil if it isn't one

	// Guarded by the openFiles' lock.
	of   *representation // that keeps it; nil if none does
	slot int             // in openFiles.ring
	used bool            // since the hand, or the sweep, has passed
}

// newOpenFile returns a file that its caller holds.
func newOpenFile(file fs.File) *openFile {
	o := &openFile{File: file}
	o.holders.Store(1)
	// Only on Linux a part of a file goes out by sendfile without regard to the file's position; and on Windows a file that is
	// open can't be replaced.
	if runtime.GOOS == "linux" {
		o.shared, _ = file.(*os.File)
	}
	return o
}

// Close releases one hold on the file.
func (o *openFile) Close() error {
	switch n := o.holders.Add(-1); {
	case n < 0:
		panic("static: a file was closed by more than hold it")
	case n > 0:
		return nil
	}
	return o.File.Close()
}

// is reports whether the file has the stamp. One that was replaced or deleted has another one: its last link is gone.
func (o *openFile) is(s *stamp) bool {
	if o.local != nil {
		now, ok := o.local.Stat()
		return ok && stampOfState(now) == *s
	}
	info, err := o.Stat()
	return err == nil && stampOf(info) == *s
}

// reader returns a reader of a range. A file that isn't shared has one reader at a time.
func (o *openFile) reader(r byterange.Range) (io.Reader, error) {
	if o.shared != nil {
		return io.NewSectionReader(o.shared, r.Begin, r.Length), nil
	}
	return &io.LimitedReader{R: o.File, N: r.Length}, o.seek(r)
}

// seek moves a file that isn't shared to the beginning of a range.
func (o *openFile) seek(r byterange.Range) error {
	if r.Begin == 0 {
		return nil
	}
	_, err := o.File.(io.Seeker).Seek(r.Begin, io.SeekStart)
	return err
}

// body returns the body of an answer that is a range. It holds the file, which was the caller's, until it is closed. An error
// closes the file.
func (o *openFile) body(r byterange.Range) (io.ReadCloser, error) {
	if o.shared != nil {
		return &sharedBody{*io.NewSectionReader(o.shared, r.Begin, r.Length), o}, nil
	}
	if err := o.seek(r); err != nil {
		o.Close()
		return nil, err
	}
	return o.File, nil // which goes out by sendfile as it is
}

// sharedBody is a part of a file, and holds it.
type sharedBody struct {
	io.SectionReader
	file *openFile
}

func (b *sharedBody) Close() error { return b.file.Close() }

// FileSection returns the section for the system to send, where it can.
func (b *sharedBody) FileSection() *io.SectionReader { return &b.SectionReader }

// LocalFile returns the file, nil if it isn't known as local.
func (b *sharedBody) LocalFile() *localfile.File { return b.file.local }

// openFiles keeps files open that are asked for again and again: it is one of those who hold them. To make room it drops, by the
// CLOCK algorithm, one that wasn't used since the hand has last passed. One that isn't used for keepTime, or a little longer, is
// dropped then: an open file takes its place on the disk though it be deleted.
type openFiles struct {
	limit int // none if it isn't positive; immutable

	mu     sync.Mutex
	ring   []*openFile // each at its slot; guarded by mu
	hand   int         // guarded by mu
	timer  *time.Timer // of the next sweep; nil if there is nothing to sweep; guarded by mu
	closed bool        // nothing is kept any more; guarded by mu
}

// keepTime is for how long a file that isn't used is kept open, and no more than twice that.
const keepTime = 10 * time.Second

// get returns the open file of a representation, nil if there is none. Its caller holds it.
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

// put keeps the file of a representation.
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

// drop keeps the open files of representations no longer.
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

// dropLocked takes out a file, which the caller must close.
func (f *openFiles) dropLocked(o *openFile) {
	last := len(f.ring) - 1
	f.ring[o.slot] = f.ring[last]
	f.ring[o.slot].slot = o.slot
	f.ring[last] = nil
	f.ring = f.ring[:last]
	o.of.open, o.of = nil, nil
}

// sweep drops what wasn't used since the last sweep.
func (f *openFiles) sweep() {
	f.mu.Lock()
	var dropped []*openFile
	for i := len(f.ring) - 1; i >= 0; i-- { // what takes a place that is free was looked at
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

// close drops all, for good.
func (f *openFiles) close() {
	f.mu.Lock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.sweep()
}
