//go:build !386

package loop

import (
	"os"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// parker lets a leader wait without holding a thread: by the runtime's poller. An epoll set that the runtime's poller
// watched itself would wake a thread for each event while the leader is busy. So that watches a second set, outer, whose
// only entry is the loop's, and which reports anything only while the leader waits.
type parker struct {
	epfd  int
	outer *os.File
	fd    int // outer's
	raw   syscall.RawConn
	bell  int // an eventfd
	wake  func(fd uintptr) bool
	armed bool
}

func (p *parker) open(epfd int) error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	bell, err := sock.NewEventFD()
	if err != nil {
		sock.Close(fd)
		return err
	}
	p.epfd, p.fd, p.bell = epfd, fd, bell
	sock.EpollControl(fd, syscall.EPOLL_CTL_ADD, epfd, 0, 0, 0)
	sock.EpollControl(epfd, syscall.EPOLL_CTL_ADD, p.bell, syscall.EPOLLIN|sock.EpollET, bellSlot, 0)
	syscall.SetNonblock(fd, true) // or else os.NewFile doesn't register it
	p.outer = os.NewFile(uintptr(fd), "loop")
	if p.raw, err = p.outer.SyscallConn(); err == nil {
		err = p.outer.SetReadDeadline(time.Time{}) // which tells whether the poller has it
	}
	if err != nil {
		p.close()
	}
	return err
}

func (p *parker) close() {
	sock.Close(p.bell)
	p.outer.Close()
}

// ring ends a wait.
func (p *parker) ring() { sock.RingEventFD(p.bell) }

// wait returns when the loop has news.
func (p *parker) wait(l *Loop) {
	if p.wake == nil {
		p.wake = func(uintptr) bool {
			if !p.armed {
				p.armed = true
				sock.EpollControl(p.fd, syscall.EPOLL_CTL_MOD, p.epfd, syscall.EPOLLIN, 0, 0)
			}
			return l.pending.Load() || l.poll(l)
		}
	}
	p.raw.Read(p.wake)
	if l.filled > 0 {
		l.publish()
	}
	p.armed = false
	sock.EpollControl(p.fd, syscall.EPOLL_CTL_MOD, p.epfd, 0, 0, 0)
}
