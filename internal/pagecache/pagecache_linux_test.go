//go:build amd64 || arm64

package pagecache

import (
	"bytes"
	"os"
	"syscall"
	"testing"
)

// open returns a File of so many bytes, and the file, all of it in memory. Without one the test is skipped: the kernel is old.
func open(t *testing.T, size int) (*File, *os.File) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := file.Write(bytes.Repeat([]byte("x"), size)); err != nil {
		t.Fatal(err)
	}
	f := Of(file)
	if f == nil {
		t.Skip("no cachestat, or a file system that isn't known as local")
	}
	return f, file
}

func TestStat(t *testing.T) {
	f, file := open(t, 1000)
	got, ok := f.Stat()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if want := (State{info.Size(), info.ModTime().UnixNano(), st.Ctim.Nano(), st.Dev, st.Ino}); got != want || !ok {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	file.Close()
	if _, ok := f.Stat(); ok {
		t.Error("a file that is closed has a state")
	}
}

// A part is in memory if each of its pages is, also where it begins or ends within one, and not beyond the file's end.
func TestHas(t *testing.T) {
	size := 8*pageSize + 100
	f, file := open(t, int(size))
	for _, part := range [][2]int64{{0, 1}, {0, size}, {size - 1, 1}, {pageSize - 1, 2}, {pageSize, 3 * pageSize}, {17, 2*pageSize - 17}} {
		if !f.Has(part[0], part[1]) {
			t.Errorf("%d bytes at %d aren't in memory", part[1], part[0])
		}
	}
	if end := 9 * pageSize; f.Has(end, 1) || f.Has(0, end+1) {
		t.Error("a page is in memory that doesn't exist")
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	const dontNeed = 4
	if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	if f.Has(0, 1) {
		t.Skip("the file system keeps all in memory")
	}
	if f.Has(0, size) {
		t.Error("what was given up is in memory")
	}
	if _, err := file.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	if !f.Has(0, 1) {
		t.Error("what was read isn't in memory")
	}
}

// What may ask a network, or isn't on a disk, isn't a File, and neither is a file that is closed.
func TestOfOthers(t *testing.T) {
	file, err := os.Open("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if Of(file) != nil {
		t.Error("a file of /proc is one on a disk")
	}
	file.Close()
	_, closed := open(t, 1)
	if closed.Close(); Of(file) != nil || Of(closed) != nil {
		t.Error("a file that is closed is one")
	}
}
