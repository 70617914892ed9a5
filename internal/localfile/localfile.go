// Package localfile makes system calls on files of local file systems without telling the runtime's scheduler, because these calls don't wait for a
// disk or a network. On a server that does little else, a system call that the scheduler knows about wakes the runtime's sysmon thread, which costs
// more than the call. If a call waited without the scheduler's knowledge, it would block a processor, and with it the garbage collector.
//
// The package works on Linux, on amd64 and arm64. On other platforms Of returns nil.
package localfile

import (
	"os"
	"sync"

	"github.com/filohttp/filo/internal/clock"
)

// File is an open file on a local file system. Any goroutine may use it, as long as the *os.File from which Of created it is open.
type File struct {
	fd int

	mu    sync.Mutex
	begun clock.Nanos // when sent began to count; guarded by mu
	sent  int64       // how many bytes, counted from the file's beginning, were sent without a gap since begun; guarded by mu
}

// State is the result of fstat. Times are in nanoseconds since 1970.
type State struct {
	Size              int64
	Modified, Changed int64
	Device, Inode     uint64
}

// Of returns the File for file, or nil if file isn't on a file system that is known to be local.
func Of(file *os.File) (f *File) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		if isLocal(int(fd)) {
			f = &File{fd: int(fd)}
		}
	})
	return f
}

// The last warmSize of the bytes that were sent are assumed to be in the page cache for warmTime. The kernel first evicts the pages that were used
// least recently.
const (
	warmTime = clock.Nanos(1e9)
	warmSize = 128 << 20
)

// Sent records that size bytes at offset were sent by an ordinary system call, one that the scheduler knows about.
func (f *File) Sent(offset, size int64) {
	now := clock.Nanotime()
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset == 0 && (f.sent == 0 || now-f.begun >= warmTime) {
		f.begun, f.sent = now, 0
	}
	if offset <= f.sent {
		f.sent = max(f.sent, offset+size)
	}
}

// IsWarm reports whether the part was sent a moment ago, and so most likely is in the page cache.
func (f *File) IsWarm(offset, size int64) bool {
	now := clock.Nanotime()
	f.mu.Lock()
	defer f.mu.Unlock()
	return offset >= f.sent-warmSize && offset+size <= f.sent && now-f.begun < warmTime
}
