// Package localfile makes system calls on files of local file systems without telling the runtime's scheduler, since they don't wait for a
// disk or a network. On a server that does little else, a call that the scheduler knows about wakes the runtime's sysmon, which costs more
// than the call. A call that waits without the scheduler's knowledge would block a processor, and with it the garbage collector.
//
// The package works on Linux, on amd64 and arm64. Elsewhere Of returns nil.
package localfile

import (
	"os"
	"sync"

	"github.com/filohttp/filo/internal/clock"
)

// File is an open file on a local file system. Any goroutine may use it, as long as the file that it was made from is open.
type File struct {
	fd int

	mu    sync.Mutex
	begun clock.Nanos // when counting the sent bytes from the file's beginning started; guarded by mu
	sent  int64       // how many bytes from the file's beginning were sent since then; guarded by mu
}

// State is the result of fstat. Times are in nanoseconds since 1970.
type State struct {
	Size              int64
	Modified, Changed int64
	Device, Inode     uint64
}

// Of returns the File of a file, nil if it isn't on a file system that is known as local.
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

// Sent bytes are assumed to be in memory for warmTime, but only the last warmSize of them. The system first evicts the pages that weren't
// used for the longest time.
const (
	warmTime = clock.Nanos(1e9)
	warmSize = 128 << 20
)

// Sent records that size bytes at the offset were sent, by a call that the scheduler was told of.
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

// IsWarm reports whether a part of the file was sent a moment ago, and so is in memory.
func (f *File) IsWarm(offset, size int64) bool {
	now := clock.Nanotime()
	f.mu.Lock()
	defer f.mu.Unlock()
	return offset >= f.sent-warmSize && offset+size <= f.sent && now-f.begun < warmTime
}
