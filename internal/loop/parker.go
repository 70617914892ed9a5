//go:build linux

package loop

import (
	"os"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// parker lets a leader wait in the runtime's poller, where it holds no thread. If the poller watched the loop's epoll set directly, each
// event would wake a thread even while the leader is busy. So the poller watches a second set, outer, whose only entry is the loop's set.
// outer reports events only while the leader waits.
type parker struct {
	inner epollSet // the loop's set
	outer epollSet
	file  *os.File // of outer
	raw   syscall.RawConn
	bell  bell
	wake  func(fd uintptr) bool
	armed bool
}

func (p *parker) open(inner epollSet) error {
	outer, err := newEpollSet()
	if err != nil {
		return err
	}
	bell, err := newBell()
	if err != nil {
		outer.close()
		return err
	}
	p.inner, p.outer, p.bell = inner, outer, bell
	if err = outer.add(int(inner), watchNothing, 0, 0); err == nil {
		err = inner.add(int(bell), watchBell, bellSlot, 0)
	}
	if err != nil {
		sock.Close(int(bell))
		outer.close()
		return err
	}
	if p.file, p.raw, err = polledFile(int(outer), "loop"); err != nil {
		sock.Close(int(bell))
	}
	return err
}

// polledFile makes fd a file that the runtime's poller watches. It owns fd from then on, and closes it if it fails.
func polledFile(fd int, name string) (*os.File, syscall.RawConn, error) {
	syscall.SetNonblock(fd, true) // otherwise os.NewFile doesn't register the file with the poller
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails unless the file is in the poller
	}
	if err != nil {
		file.Close()
	}
	return file, raw, err
}

func (p *parker) close() {
	sock.Close(int(p.bell))
	p.file.Close()
}

// ring makes wait return, if Loop.pending was set before.
func (p *parker) ring() { p.bell.ring() }

// wait returns when the loop has events, which it puts into the batch, or when l.pending is set. The caller is the filler.
func (p *parker) wait(l *Loop) {
	if p.wake == nil {
		p.wake = func(uintptr) bool {
			if !p.armed {
				p.armed = true
				p.outer.change(int(p.inner), watchLevel, 0, 0)
			}
			if l.pending.Load() {
				return true
			}
			return l.poll()
		}
	}
	p.raw.Read(p.wake)
	p.armed = false
	p.outer.change(int(p.inner), watchNothing, 0, 0)
}
