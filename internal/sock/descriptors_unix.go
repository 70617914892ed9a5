//go:build unix

package sock

import "syscall"

// MaxDescriptors returns how many descriptors the process may have open (RLIMIT_NOFILE). It returns false if no limit is known.
func MaxDescriptors() (n uint64, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true
}
