//go:build linux

package static

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/localfile"

	"github.com/filohttp/filo/internal/byterange"
)

// check fails the test if the state of the openFiles is inconsistent.
func (f *openFiles) check(t *testing.T, want int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.ring {
		if o.slot != i || o.of == nil || o.of.open != o || o.holders.Load() < 1 {
			t.Fatalf("file %d of %d: slot %d, %d holders", i, len(f.ring), o.slot, o.holders.Load())
		}
	}
	if len(f.ring) != want || (f.timer != nil) != (want > 0) {
		t.Fatalf("%d files are kept, timer %v; want %d", len(f.ring), f.timer != nil, want)
	}
}

// isOpen reports whether a file is open.
func isOpen(file *os.File) bool {
	_, err := file.Stat()
	return !errors.Is(err, fs.ErrClosed)
}

// openTemporary returns an open file, and a representation that may keep it.
func openTemporary(t *testing.T) (*representation, *openFile) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return new(representation), newOpenFile(file)
}

// Files are kept up to the limit. Unused files are dropped first, and a dropped file is closed when it has no other holder.
func TestOpenFiles(t *testing.T) {
	f := openFiles{limit: 2}
	var of [4]*representation
	var files [4]*openFile
	for i := range files {
		of[i], files[i] = openTemporary(t)
	}
	for i := range 2 {
		f.put(of[i], files[i])
		files[i].Close()
	}
	f.check(t, 2)
	held := f.get(of[0])
	if held != files[0] || f.get(of[2]) != nil {
		t.Fatal("what is kept isn't found, or something else is")
	}
	// Both files were used, so the hand clears their used flags, reaches the first one again, and drops it.
	f.put(of[2], files[2])
	files[2].Close()
	f.check(t, 2)
	if f.get(of[0]) != nil {
		t.Error("the limit is kept, but by another one than the hand has come to")
	}
	if !isOpen(held.shared) {
		t.Error("a file was closed that somebody holds")
	}
	if held.Close(); isOpen(held.shared) {
		t.Error("a file that nobody holds is open")
	}
	f.put(of[2], files[3])
	files[3].Close()
	if f.check(t, 2); isOpen(files[3].shared) {
		t.Error("two files of a representation are kept")
	}
	f.drop(of[1], of[3])
	if f.check(t, 1); isOpen(files[1].shared) {
		t.Error("a file that was dropped is open")
	}
	f.close()
	if f.check(t, 0); isOpen(files[2].shared) {
		t.Error("a file is open at the end")
	}
	var late *openFile
	of[3], late = openTemporary(t)
	f.put(of[3], late)
	late.Close()
	if f.check(t, 0); isOpen(late.shared) {
		t.Error("a file was kept after the end")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a file was closed twice without a panic")
			}
		}()
		late.Close()
	}()
}

// A kept file of a local file system is recognized as local, and then shows whether it has changed.
func TestOpenFileIsLocal(t *testing.T) {
	r, o := openTemporary(t)
	if _, err := o.shared.WriteString("some content"); err != nil {
		t.Fatal(err)
	}
	info, err := o.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r.see(info, time.Now())
	f := openFiles{limit: 1}
	f.put(r, o)
	defer f.close()
	defer o.Close()
	if (o.local == nil) != (localfile.Of(o.shared) == nil) {
		t.Error("whether the file is local isn't known")
	}
	if !o.is(&r.stamp) {
		t.Error("the file has changed")
	}
	if err := o.shared.Truncate(3); err != nil {
		t.Fatal(err)
	}
	if o.is(&r.stamp) {
		t.Error("the file hasn't changed")
	}
}

// A file that isn't requested is closed within two times keepTime. A file that is requested stays open.
func TestOpenFilesAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFiles{limit: 10}
		idle, idleFile := openTemporary(t)
		busy, busyFile := openTemporary(t)
		for r, o := range map[*representation]*openFile{idle: idleFile, busy: busyFile} {
			f.put(r, o)
			o.Close()
		}
		for range 4 {
			time.Sleep(keepTime / 2)
			f.get(busy).Close()
		}
		time.Sleep(keepTime / 4)
		f.get(busy).Close()
		synctest.Wait()
		if f.check(t, 1); isOpen(idleFile.shared) || !isOpen(busyFile.shared) {
			t.Error("the one that was used should be open, and only that")
		}
		time.Sleep(3 * keepTime)
		synctest.Wait()
		if f.check(t, 0); isOpen(busyFile.shared) {
			t.Error("a file is open that wasn't used for long")
		}
	})
}

// Even if many goroutines use the files concurrently, no file stays open forever, and none is closed too early.
func TestOpenFilesOfMany(t *testing.T) {
	const names = 8
	dir := t.TempDir()
	for i := range names {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(strings.Repeat(fmt.Sprint(i), 100)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := openFiles{limit: names / 2}
	var of [names]representation
	var mu sync.Mutex
	var all []*openFile
	var users sync.WaitGroup
	for user := range 4 {
		users.Go(func() {
			for i := range 2000 {
				n := (i*i + user) % names
				o := f.get(&of[n])
				if o == nil {
					file, err := os.Open(filepath.Join(dir, fmt.Sprint(n)))
					if err != nil {
						t.Error(err)
						return
					}
					o = newOpenFile(file)
					mu.Lock()
					all = append(all, o)
					mu.Unlock()
					f.put(&of[n], o)
				}
				body, err := o.body(byterange.Range{Begin: 10, Length: 1})
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := io.ReadAll(body); string(b) != fmt.Sprint(n) || err != nil {
					t.Errorf("file %d has %q, %v", n, b, err)
				}
				body.Close()
				switch i % 50 {
				case 7:
					f.drop(&of[n])
				case 9:
					f.sweep()
				}
			}
		})
	}
	users.Wait()
	f.check(t, len(f.ring))
	if len(f.ring) > f.limit {
		t.Errorf("%d files are kept, of %d", len(f.ring), f.limit)
	}
	f.close()
	f.check(t, 0)
	for _, o := range all {
		if isOpen(o.shared) || o.holders.Load() != 0 {
			t.Fatal("a file was lost")
		}
	}
}
