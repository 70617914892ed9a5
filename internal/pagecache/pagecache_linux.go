//go:build amd64 || arm64

package pagecache

import (
	"os"
	"syscall"
	"unsafe"
)

// local are the file systems that need no network, and whose reads of what is in memory take no lock that a writer of another file holds.
// An overlay is one of a container, whose files are on such a file system.
var local = map[int64]bool{
	0xef53:     true, // ext2, ext3 and ext4
	0x58465342: true, // XFS
	0x9123683e: true, // Btrfs
	0xf2f52010: true, // F2FS
	0x01021994: true, // tmpfs
	0x794c7630: true, // an overlay
}

// isLocal asks by the scheduler, since a network's file system asks its server.
func isLocal(fd int) bool {
	var s syscall.Statfs_t
	return syscall.Fstatfs(fd, &s) == nil && local[int64(s.Type)]
}

// Stat returns the file's state; ok is false if the file is closed.
func (f *File) Stat() (s State, ok bool) {
	var st syscall.Stat_t
	_, _, errno := syscall.RawSyscall(syscall.SYS_FSTAT, uintptr(f.fd), uintptr(unsafe.Pointer(&st)), 0)
	return State{st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Dev, st.Ino}, errno == 0
}

// sysCachestat is the number of cachestat, which package syscall doesn't have.
const sysCachestat = 451

var pageSize = int64(os.Getpagesize())

// cachestat returns how many pages of a part of a file are in memory. A size of 0 is up to the end of the file.
func (f *File) cachestat(offset, size int64) (pages int64, errno syscall.Errno) {
	part := struct{ offset, size uint64 }{uint64(offset), uint64(size)}
	var s struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, errno = syscall.RawSyscall6(sysCachestat, uintptr(f.fd), uintptr(unsafe.Pointer(&part)), uintptr(unsafe.Pointer(&s)), 0, 0, 0)
	return int64(s.cached), errno
}

func (f *File) known() bool {
	_, errno := f.cachestat(0, 1)
	return errno == 0
}

// Has reports whether all of a part of the file is in memory. size is positive.
func (f *File) Has(offset, size int64) bool {
	pages, errno := f.cachestat(offset, size)
	return errno == 0 && pages > (offset+size-1)/pageSize-offset/pageSize
}
