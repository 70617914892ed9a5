//go:build !386

package loop

import (
	"os"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// breather lets a busy leader give way to all else that there is: what can run, and what waits in the runtime's poller, which
// is only asked by a processor that has nothing else to do. So the leader waits in the poller itself, for something that has
// happened: whoever asks for it finds all the rest, too. A sleep would do the same, but with a single processor the poller
// waits for whole milliseconds.
type breather struct {
	file *os.File // an eventfd
	raw  syscall.RawConn
	rung bool
	wait func(fd uintptr) bool
}

const longestBreath = time.Millisecond

func (b *breather) open() error {
	fd, err := sock.NewEventFD()
	if err != nil {
		return err
	}
	b.file = os.NewFile(uintptr(fd), "breather")
	b.raw, err = b.file.SyscallConn()
	if err == nil {
		err = b.file.SetReadDeadline(time.Time{}) // which tells whether the poller has it
	}
	if err != nil {
		b.file.Close()
		return err
	}
	b.wait = func(fd uintptr) (rung bool) {
		if !b.rung {
			sock.RingEventFD(int(fd))
			b.rung = true
			return false
		}
		return true
	}
	return nil
}

func (b *breather) close() { b.file.Close() }

// breathe returns when what else there is had its turn, or after longestBreath: the poller is asked by nobody while there is always
// something else that can run.
func (b *breather) breathe() {
	b.rung = false
	b.file.SetReadDeadline(time.Now().Add(longestBreath))
	b.raw.Read(b.wait)
}
