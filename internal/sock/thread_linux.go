package sock

import (
	"syscall"
	"time"
	"unsafe"
)

// ThreadTime returns the calling thread's ID, and how long it has run.
func ThreadTime() (thread int, ran time.Duration) {
	const clockThreadTime = 3
	var t syscall.Timespec
	id, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadTime, uintptr(unsafe.Pointer(&t)), 0)
	return int(id), time.Duration(t.Nano())
}
