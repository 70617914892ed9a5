//go:build amd64 || arm64

package localfile

import (
	"syscall"
	"unsafe"
)

// local has the magic numbers of the file systems that keep the state of an open file and recently read pages in memory. An overlay file system isn't
// among them, since its lower layer may be on a network.
var local = map[int64]bool{
	0xef53:     true, // ext2, ext3 and ext4
	0x58465342: true, // XFS
	0x9123683e: true, // Btrfs
	0xf2f52010: true, // F2FS
	0x01021994: true, // tmpfs
}

// isLocal reports whether the file is on one of these file systems. It makes an ordinary system call, since a network file system asks its server for
// the answer.
func isLocal(fd int) bool {
	var s syscall.Statfs_t
	return syscall.Fstatfs(fd, &s) == nil && local[int64(s.Type)]
}

// Stat returns the file's state.
func (f *File) Stat() (s State, ok bool) {
	var st syscall.Stat_t
	_, _, errno := syscall.RawSyscall(syscall.SYS_FSTAT, uintptr(f.fd), uintptr(unsafe.Pointer(&st)), 0)
	return State{st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Dev, st.Ino}, errno == 0
}
