package static

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"golang.org/x/net/http/httpguts"
)

// entry holds the metadata of a file and its encodings. Its fields don't change, except the atomic ones, and those that memory's lock
// guards.
type entry struct {
	name         string
	hidden       bool
	contentType  filo.Field
	cacheControl *filo.Field // nil: none
	// representations are the file itself and those of its encodings that exist, in the order of preference.
	representations []*representation
	stamps          [1 + len(encodings)]stamp // of the file and its encodings; zero for an encoding that doesn't exist
	// unsettled says that a stamp isn't settled: the file may change and keep its stamp. So a content in memory may be out of
	// date, and an entity tag is weak.
	unsettled bool

	checked atomic.Int64 // when the files were last checked, as sinceStart returns it
	used    atomic.Bool  // whether the entry was used since the hand of memory last passed it
	slot    int          // the entry's index in memory.ring; guarded by memory.mu
}

// entryBytes is roughly how much memory an entry needs for each representation, without its content.
const entryBytes = 1 << 10

func (e *entry) cost() int64 {
	cost := int64(entryBytes * len(e.representations))
	for _, r := range e.representations {
		cost += int64(len(r.body))
	}
	return cost
}

// fresh returns the entry of a name in memory, nil if there is none or if the caller must check the file.
func (f *Files) fresh(name []byte) *entry {
	e := f.memory.get(name)
	if e == nil || f.options.Frozen {
		return e
	}
	if f.options.CacheCheck < 0 {
		return nil
	}
	now, checked := sinceStart(), e.checked.Load()
	if now-checked >= int64(f.options.CacheCheck) && e.checked.CompareAndSwap(checked, now) {
		return nil
	}
	return e
}

var start = time.Now()

// sinceStart returns the monotonic time.
func sinceStart() int64 { return int64(time.Since(start)) }

// loaded is the result of loading a file.
type loaded struct {
	entry *entry
	err   error
}

// errLoadPanicked is the result for goroutines that wait for a load that has panicked.
var errLoadPanicked = errors.New("static: a panic while the file was read")

// entry returns the current entry of a file, after a check on the disk. Simultaneous callers share one check.
func (f *Files) entry(name string) (*entry, error) {
	loading, first := f.loading.Join([]byte(name))
	if !first {
		<-loading.Done
		return loading.Value.entry, loading.Value.err
	}
	defer loading.End()
	loading.Value.err = errLoadPanicked
	e, err := f.current(name)
	loading.Value = loaded{e, err}
	return e, err
}

// current checks a file on the disk, and loads it unless the entry in memory is up to date.
func (f *Files) current(name string) (*entry, error) {
	known := f.memory.get([]byte(name))
	if known != nil && (f.options.Frozen || f.unchanged(known)) {
		known.checked.Store(sinceStart())
		return known, nil
	}
	if known != nil {
		f.open.drop(known.representations...)
	}
	now := sinceStart()
	e, err := f.load(name)
	if err != nil {
		f.memory.drop(known)
		return nil, err
	}
	e.checked.Store(now)
	f.memory.put(e)
	return e, nil
}

// unchanged reports whether the files of an entry are still the same.
func (f *Files) unchanged(e *entry) bool {
	if e.unsettled {
		return false
	}
	for i := range e.stamps {
		name := e.name
		if i > 0 {
			if !f.options.Precompressed {
				break
			}
			name += encodings[i-1].suffix
		}
		now := stamp{}
		if info, err := f.source.stat(name); err == nil && info.Mode().IsRegular() {
			now = stampOf(info)
		}
		if i > 0 && now.outdated(&e.stamps[0]) {
			now = stamp{}
		}
		if now != e.stamps[i] {
			return false
		}
	}
	return true
}

// load reads a file and its encodings.
func (f *Files) load(name string) (*entry, error) {
	e := &entry{name: name, hidden: hidden(name)}
	if err := f.setCacheControl(e); err != nil {
		return nil, err
	}
	plain, err := f.loadRepresentation(e, nil)
	if err != nil {
		return nil, err
	}
	if err := f.setContentType(e, plain); err != nil {
		return nil, err
	}
	e.representations = append(e.representations, plain)
	e.stamps[0] = plain.stamp
	if f.options.Precompressed {
		for i := range encodings {
			r, err := f.loadRepresentation(e, &encodings[i])
			if err != nil || r.stamp.outdated(&plain.stamp) {
				continue // the encoded file doesn't exist, or can't be used
			}
			e.representations = append(e.representations, r)
			e.stamps[1+i] = r.stamp
		}
	}
	for _, r := range e.representations {
		e.unsettled = e.unsettled || !r.settled && (r.body != nil || r.stamp.modified != 0)
		r.describe(e)
	}
	return e, nil
}

func (f *Files) setCacheControl(e *entry) error {
	if f.options.CacheControl == nil {
		return nil
	}
	value := f.options.CacheControl(e.name)
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("static: Options.CacheControl of %q returned %q, which isn't a valid field value", e.name, value)
	}
	if value != "" {
		field := filo.NewField("Cache-Control", value)
		e.cacheControl = &field
	}
	return nil
}

// setContentType derives the media type from the file's name, or from its content if the name has no known type.
func (f *Files) setContentType(e *entry, plain *representation) error {
	mediaType := typeByName(e.name)
	if mediaType == "" {
		begin, err := plain.body, error(nil)
		if begin == nil {
			begin, err = f.readBegin(plain.file)
		}
		if err != nil {
			return err
		}
		mediaType = typeByContent(begin[:min(len(begin), sniffedBytes)])
	}
	e.contentType = filo.NewField("Content-Type", mediaType)
	return nil
}
