//go:build unix

package filo

import "syscall"

// descriptorLimit returns the default of MaxConns by RLIMIT_NOFILE; 0: no limit.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return defaultMaxConns(uint64(limit.Cur))
}
