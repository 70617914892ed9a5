//go:build amd64 || arm64

package localfile

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// open returns a file with some content, and its File. The test is skipped if the temporary files aren't on a local file system.
func open(t *testing.T) (*os.File, *File) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := file.WriteString("some content"); err != nil {
		t.Fatal(err)
	}
	f := Of(file)
	if f == nil {
		t.Skip("the file system isn't known as local")
	}
	return file, f
}

func TestStat(t *testing.T) {
	file, f := open(t)
	for _, size := range []int64{12, 5} {
		if err := file.Truncate(size); err != nil {
			t.Fatal(err)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		want := State{size, info.ModTime().UnixNano(), st.Ctim.Nano(), st.Dev, st.Ino}
		if got, ok := f.Stat(); got != want || !ok {
			t.Errorf("%+v, %v; want %+v", got, ok, want)
		}
	}
}

// Of returns nil for files that aren't on a disk, and for closed files.
func TestOfOthers(t *testing.T) {
	file, err := os.Open("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if Of(file) != nil {
		t.Error("a file of /proc is one on a disk")
	}
	file.Close()
	if Of(file) != nil {
		t.Error("a file that is closed is one")
	}
}

// A part is warm if the whole file up to the part's end was sent within a second, at once or in several pieces, and not too much was sent since then.
func TestIsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f File
		warm := func(offset, size int64, want bool) {
			t.Helper()
			if got := f.IsWarm(offset, size); got != want {
				t.Errorf("%d bytes at %d: %v, want %v", size, offset, got, want)
			}
		}
		warm(0, 1, false)
		f.Sent(0, 100)
		f.Sent(200, 100) // after a gap
		warm(0, 100, true)
		warm(50, 50, true)
		warm(50, 51, false)
		warm(200, 1, false)
		f.Sent(50, 150)
		warm(100, 100, true)
		f.Sent(0, 10)
		warm(100, 100, true)
		time.Sleep(time.Second - 1)
		warm(0, 200, true)
		time.Sleep(time.Nanosecond)
		warm(0, 1, false)
		f.Sent(200, 100) // the rest of an answer that had begun earlier
		warm(200, 1, false)
		f.Sent(0, 10)
		warm(0, 10, true)
		warm(0, 11, false)
		f.Sent(0, warmSize+5) // more than the page cache is assumed to keep
		warm(4, 10, false)
		warm(5, 10, true)
	})
}
