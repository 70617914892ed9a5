package main

import (
	"fmt"
	"syscall"
)

// possible checks that this process may open n connections. The same limit holds for the server's process. Go has already raised the limit as far as
// allowed.
func possible(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if need := uint64(n + 100); limit.Max < need {
		return fmt.Errorf("a process may have %d files open here, and %d connections need %d: give a smaller -conns, or raise `ulimit -Hn`",
			limit.Max, n, need)
	}
	return nil
}
