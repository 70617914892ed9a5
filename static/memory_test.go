package static

import (
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
)

func newEntry(name string, size int) *entry {
	return &entry{name: name, representations: []*representation{{body: make([]byte, size)}}}
}

// check fails the test if the cache's state is inconsistent.
func (m *memory) check(t *testing.T) {
	t.Helper()
	bytes := int64(0)
	for i, e := range m.ring {
		if e.slot != i || m.entries[e.name] != e {
			t.Fatalf("%s is at %d and believes to be at %d", e.name, i, e.slot)
		}
		bytes += e.cost()
	}
	if bytes != m.bytes || bytes > m.limit || len(m.ring) != len(m.entries) {
		t.Fatalf("%d bytes in %d entries, %d slots; it counts %d of %d", bytes, len(m.entries), len(m.ring), m.bytes, m.limit)
	}
}

func TestMemory(t *testing.T) {
	m := memory{limit: 4 * (entryBytes + 100)}
	for i := range 4 {
		m.put(newEntry(fmt.Sprint(i), 100))
		m.check(t)
	}
	for _, name := range []string{"0", "2"} {
		if m.get([]byte(name)) == nil {
			t.Fatalf("%s isn't there", name)
		}
	}
	m.put(newEntry("4", 100))
	m.check(t)
	m.put(newEntry("5", 100))
	m.check(t)
	for name, want := range map[string]bool{"0": true, "2": true, "4": true, "5": true, "1": false, "3": false} {
		if (m.entries[name] != nil) != want {
			t.Errorf("%s: there %v, want %v: those that weren't used go first", name, !want, want)
		}
	}
	other := newEntry("0", 50)
	m.put(other)
	m.check(t)
	if m.get([]byte("0")) != other {
		t.Error("the newer one of a name isn't there")
	}
	m.put(newEntry("huge", int(m.limit)))
	m.check(t)
	if m.get([]byte("huge")) != nil || m.get([]byte("2")) == nil {
		t.Error("what is larger than all that may be kept is kept, or others were dropped for it")
	}
	m.put(newEntry("0", int(m.limit)))
	if m.get([]byte("0")) != nil {
		t.Error("the older one of a name stays when the newer one is too large")
	}
	m.drop(other)
	m.drop(nil)
	m.check(t)
}

// memory stays within its limit, whatever the sequence of calls.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0x81, 4, 0x42, 5, 1, 200})
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := memory{limit: 10 * entryBytes}
		for _, step := range steps {
			name := fmt.Sprint(step & 31)
			switch step >> 5 {
			case 0, 1, 2, 3:
				m.put(newEntry(name, int(step>>5)*entryBytes))
			case 4, 5:
				if e := m.get([]byte(name)); e != nil && e.name != name {
					t.Fatalf("asked for %s, got %s", name, e.name)
				}
			case 6, 7:
				m.drop(m.entries[name])
			}
			m.check(t)
		}
	})
}

// hookedFS calls open before a file is opened.
type hookedFS struct {
	fs.FS
	open func(name string)
}

func (h hookedFS) Open(name string) (fs.File, error) {
	h.open(name)
	return h.FS.Open(name)
}

// Simultaneous requests for one file wait for the first of them to load it. If the first request panics, a later one loads the file
// again.
func TestLoadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := fstest.MapFS{"a": {Data: []byte("a")}, "b": {Data: []byte("b")}, "broken": {}}
		release, entered := make(chan struct{}), make(chan struct{})
		var opened [2]atomic.Int32 // how often a and b were opened
		var panics atomic.Bool
		panics.Store(true)
		f := New(hookedFS{tree, func(name string) {
			switch name {
			case "a":
				opened[0].Add(1)
				<-release
			case "b":
				opened[1].Add(1)
			case "broken":
				if panics.Load() {
					close(entered)
					synctest.Wait()
					panic("broken")
				}
			}
		}}, Options{})
		entries := make(chan *entry, 10)
		for range cap(entries) {
			go func() {
				e, err := f.entry("a")
				if err != nil {
					t.Error(err)
				}
				entries <- e
			}()
		}
		synctest.Wait()
		if _, err := f.entry("b"); err != nil {
			t.Errorf("another one: %v", err)
		}
		close(release)
		want := <-entries
		for range cap(entries) - 1 {
			if e := <-entries; e == nil || e != want {
				t.Errorf("got %p; another one has got %p", e, want)
			}
		}
		if a, b := opened[0].Load(), opened[1].Load(); a == 0 || a != b {
			t.Errorf("opened %d times for %d at once, %d times for one", a, cap(entries), b)
		}

		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			f.entry("broken")
		}()
		<-entered
		if _, err := f.entry("broken"); err != errLoadPanicked {
			t.Errorf("beside a panic: %v", err)
		}
		if value := <-panicked; value != "broken" {
			t.Errorf("the panic is %v", value)
		}
		panics.Store(false)
		if _, err := f.entry("broken"); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	})
}

// However many files are requested, the cache doesn't exceed CacheBytes. For large files, or with a negative CacheBytes, it holds only
// the metadata.
func TestCacheBytes(t *testing.T) {
	tree := fstest.MapFS{}
	for i := range 3000 {
		tree[fmt.Sprint(i)] = &fstest.MapFile{Data: make([]byte, 10*i%5000)}
	}
	for _, options := range []Options{{CacheBytes: 100 << 10}, {CacheBytes: -1}, {CacheFileBytes: 1}, {CacheBytes: 1}} {
		f := New(tree, options)
		for name := range tree {
			e, err := f.entry(name)
			if err != nil {
				t.Fatal(err)
			}
			size := len(tree[name].Data)
			if body := e.representations[0].body; body != nil && (len(body) != size || int64(size) > f.fileSize) {
				t.Fatalf("%+v: %d bytes of %d in memory", options, len(body), size)
			}
		}
		f.memory.check(t)
		if options.CacheBytes != 1 && len(f.memory.entries) < 10 {
			t.Errorf("%+v: only %d entries", options, len(f.memory.entries))
		}
	}
}
