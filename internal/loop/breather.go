//go:build linux

package loop

import (
	"os"
	"syscall"
	"time"
)

// breather lets a busy leader yield to all other goroutines: those that are ready to run, and those that wait in the runtime's poller. Only
// a processor without other work checks that poller. So the leader itself waits in the poller, for an event that has already happened: the
// check that finds this event also finds all other events. A sleep would do the same, but with a single processor the poller would then wait
// for whole milliseconds.
type breather struct {
	bell bell
	file *os.File // of bell
	raw  syscall.RawConn
	rung bool
	wait func(fd uintptr) bool
}

const longestBreath = time.Millisecond

func (b *breather) open() error {
	bell, err := newBell()
	if err != nil {
		return err
	}
	if b.file, b.raw, err = polledFile(int(bell), "breather"); err != nil {
		return err
	}
	b.bell = bell
	b.wait = func(uintptr) (rung bool) {
		if !b.rung {
			b.bell.ring()
			b.rung = true
			return false
		}
		return true
	}
	return nil
}

func (b *breather) close() { b.file.Close() }

// breathe returns when all other goroutines had a chance to run, or after longestBreath. The limit is needed since no processor checks the
// poller while goroutines are always ready to run.
func (b *breather) breathe() {
	b.rung = false
	b.file.SetReadDeadline(time.Now().Add(longestBreath))
	b.raw.Read(b.wait)
}
