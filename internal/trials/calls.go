//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/filohttp/filo/internal/soak/kit"
)

// call is a system call that fails, written for strace's option inject.
type call struct {
	name   string
	errors string
	when   string // which calls of a thread fail: "2+3" means the second and every third one after it
	// sockets says that only calls on connections fail. The Go runtime makes the same calls for its own purposes, and crashes if they fail.
	sockets bool
	// harmless says that clients must not notice the failing calls. Otherwise clients may get errors.
	harmless bool
	drivers  []orders
	short    string // the only error that is tried with the flag -short
}

var (
	byLoop   = orders{}
	byShared = orders{Listen: true}
	byBlock  = orders{Blocking: true}

	everyDriver = []orders{byLoop, byShared, byBlock}
)

// failingCalls lists the calls that fail while clients work. They fail with EAGAIN only where the system reports the event again: on
// listeners, and for output, which the loop asks epoll to watch anew. Edge-triggered epoll reports a socket's input only once. EAGAIN would
// tell the server that all input has been read, and a real system never returns it while there are unread bytes. Writes don't fail with
// ECONNRESET or EPIPE, because a real system that returns these errors also reports through epoll that the connection has ended.
var failingCalls = []call{
	// If accept lacks a resource, the server closes idle connections to make room.
	{name: "accept4", errors: "EMFILE ENFILE ENOMEM ENOBUFS", when: "1+2", drivers: everyDriver, short: "EMFILE"},
	{name: "accept4", errors: "ECONNABORTED EINTR", when: "1+2", harmless: true, drivers: everyDriver},
	{name: "accept4", errors: "EAGAIN", when: "1+2", harmless: true, drivers: everyDriver[:2]},
	{name: "read", errors: "EINTR", when: "1+2", sockets: true, harmless: true, drivers: drivers, short: "EINTR"},
	{name: "read", errors: "ECONNRESET ENOMEM ENOBUFS ETIMEDOUT", when: "4+4", sockets: true, drivers: drivers},
	{name: "write", errors: "EINTR", when: "1+2", sockets: true, harmless: true, drivers: drivers},
	{name: "write", errors: "ENOMEM ENOBUFS", when: "4+4", sockets: true, drivers: drivers, short: "ENOBUFS"},
	{name: "writev", errors: "EINTR", when: "1+2", harmless: true, drivers: drivers},
	{name: "writev", errors: "ENOMEM ENOBUFS", when: "4+4", drivers: drivers},
	{name: "sendfile", errors: "EINTR", when: "1+2", harmless: true, drivers: drivers},
	{name: "sendfile", errors: "EINVAL", when: "1+1", harmless: true, drivers: drivers, short: "EINVAL"},
	{name: "sendfile", errors: "EIO ENOMEM ECONNRESET", when: "2+3", drivers: drivers},
	{name: "setsockopt", errors: "ENOBUFS", when: "1+1", harmless: true, drivers: everyDriver[:2]},
}

// startCalls lists the calls that fail while a server starts its loops.
var startCalls = []call{
	{name: "epoll_create1", errors: "EMFILE ENOMEM"},
	{name: "eventfd2", errors: "EMFILE ENFILE"},
	{name: "epoll_ctl", errors: "ENOSPC", short: "ENOSPC"},
}

// callTrials returns the trials in which system calls fail.
func callTrials() (all []trial) {
	for _, c := range failingCalls {
		for each := range strings.FieldsSeq(c.errors) {
			all = append(all, trial{c.name + ": " + each, c.short == each, func(a *attempt) error {
				for i, o := range c.drivers {
					if a.short && i > 0 {
						break
					}
					if err := a.call(c, each, o); err != nil {
						return fmt.Errorf("blocking=%t, shared=%t: %w", o.Blocking, o.Listen, err)
					}
				}
				return nil
			}})
		}
	}
	for _, c := range startCalls {
		for each := range strings.FieldsSeq(c.errors) {
			all = append(all, trial{"at the start, " + c.name + ": " + each, c.short == each, func(a *attempt) error { return a.start(c, each) }})
		}
	}
	return append(all,
		trial{"few watches of epoll are left (ENOSPC)", true, func(a *attempt) error {
			return errors.Join(a.refused(byLoop, noWatches, false, false), a.refused(byBlock, noWatches, false, false))
		}},
		trial{"no descriptor can be duplicated (fcntl: EMFILE)", false, func(a *attempt) error {
			return errors.Join(a.refused(byLoop, noDuplicates, true, true), a.refused(byBlock, noDuplicates, true, true))
		}})
}

// leastRequests is the minimum number of requests of a client. Because of it, calls fail even if the machine is too busy for that many requests
// in the load's span.
const leastRequests = 20

// call makes calls fail while clients work. Afterwards clients must get all answers again, and no resource may be left behind.
func (a *attempt) call(c call, errno string, o orders) error {
	s, err := a.newStage(o, nil)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.serve(); err != nil {
		return err
	}
	known, err := sockets(s.server.pid()) // the listeners
	if err != nil {
		return err
	}
	var traceErr error
	result, err := s.load(load{Span: a.span(1500 * time.Millisecond), Least: leastRequests, Kept: c.sockets, Clients: 3}, func() {
		var these []string
		if c.sockets {
			if these, traceErr = s.connections(known, 12); traceErr != nil {
				return
			}
		}
		traceErr = s.server.trace(these, c.name, fmt.Sprintf("error=%s:when=%s", errno, c.when))
	})
	injected, stopErr := s.server.untrace()
	if err := errors.Join(err, traceErr, stopErr); err != nil {
		return err
	}
	a.notes = append(a.notes, fmt.Sprintf("%d failed", injected))
	switch {
	case injected == 0:
		a.fail("no call has failed")
	case c.harmless:
		a.perfect(result, "while calls failed")
	default:
		a.add(result)
		a.answered(result, "while calls failed")
	}
	return s.recovered()
}

// recovered checks that clients get all answers again, and that no resource is left behind.
func (s *stage) recovered() error {
	result, err := s.load(load{Span: s.span(time.Second) / 2}, nil)
	if err != nil {
		return err
	}
	s.perfect(result, "afterwards")
	return s.finish()
}

// connections waits until the server has accepted n connections, and returns their sockets.
func (s *stage) connections(known []string, n int) (all []string, err error) {
	for end := time.Now().Add(answerTime); ; time.Sleep(5 * time.Millisecond) {
		if all, err = sockets(s.server.pid()); err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(each string) bool { return slices.Contains(known, each) })
		if len(all) >= n {
			return all, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the server has accepted %d of %d connections", len(all), n)
		}
	}
}

// start makes a call fail while the server starts. The server must report the error, or serve nevertheless.
func (a *attempt) start(c call, errno string) error {
	refused, served := 0, 0
	for _, o := range []orders{byLoop, byShared} {
		for first := 1; first <= 6; first++ { // the number of the first call that fails
			if a.short && first%2 == 0 {
				continue
			}
			s, err := a.newStage(o, nil)
			if err != nil {
				return err
			}
			defer s.close()
			s.spare = 2 // if the loops can't have separate sockets, they share one: see newStage
			var now state
			if err := s.server.ask("report", &now); err != nil { // wait until it is ready to serve
				return err
			}
			if c.name == "epoll_ctl" { // from the first-th new descriptor on, none can be watched
				watches := noWatches
				watches.Third = uint32(len(now.Footprint.Descriptors) + first - 1)
				err = s.refuse(watches)
			} else {
				err = s.server.trace(nil, c.name, fmt.Sprintf("error=%s:when=%d", errno, first))
			}
			if err != nil {
				return err
			}
			startErr := s.serve()
			if _, err := s.server.untrace(); err != nil {
				return err
			}
			if startErr == nil {
				served++
				if c.name == "epoll_ctl" { // the call still fails, now for connections
					err = s.finish()
				} else {
					err = s.recovered()
				}
				if err != nil {
					return err
				}
				s.close()
				continue
			}
			refused++
			a.log[firstLine(withoutAddress(startErr.Error()))]++
			if err := s.server.ask("report", &now); err != nil {
				return err
			}
			s.close()
		}
	}
	a.notes = append(a.notes, fmt.Sprintf("of %d servers %d have started", served+refused, served))
	if refused == 0 {
		a.fail("no server has said why it can't start")
	}
	return nil
}

// rule says which calls the system refuses to a process. A rule is a seccomp filter, and lasts until the process ends. strace can't do this:
// it would refuse all calls with the same number, whatever their arguments.
type rule struct {
	Call, Second, Third uint32 // the call's number, its second argument, and the minimum of its third one
	Errno               uint32
}

var (
	// noWatches lets a process watch only descriptors below 10 with epoll. This is similar to the limit max_user_watches, because a new
	// descriptor gets the lowest free number.
	noWatches    = rule{syscall.SYS_EPOLL_CTL, syscall.EPOLL_CTL_ADD, 10, uint32(syscall.ENOSPC)}
	noDuplicates = rule{syscall.SYS_FCNTL, syscall.F_DUPFD_CLOEXEC, 0, uint32(syscall.EMFILE)}
)

// refused lets clients work while the system refuses calls. The argument early says that the refusals begin before the server serves.
func (a *attempt) refused(o orders, r rule, early, harmless bool) error {
	s, err := a.newStage(o, nil)
	if err != nil {
		return err
	}
	defer s.close()
	s.spare = 2
	steps := []func() error{s.serve, func() error {
		if !early {
			r.Third += uint32(len(s.start.Footprint.Descriptors)) // refuse only new descriptors
		}
		return s.refuse(r)
	}}
	if early {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	result, err := s.load(load{Span: a.span(1500 * time.Millisecond), Least: leastRequests, Clients: 6, Large: kit.LargeBody}, nil)
	if err != nil {
		return err
	}
	if harmless {
		a.perfect(result, "while calls were refused")
	} else {
		a.add(result)
		a.answered(result, "while calls were refused")
		if len(result.Errors) == 0 {
			a.fail("no call was refused")
		}
	}
	return s.finish()
}

// refuse makes the system refuse calls to the server.
func (s *stage) refuse(r rule) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var now state
	if err := s.server.ask("fail "+string(text), &now); err != nil {
		return err
	}
	if now.Err != "" {
		return errors.New(now.Err)
	}
	return nil
}

// obey makes the system refuse calls to this process from now on.
func (r rule) obey() error {
	const (
		load, equal, atLeast, result = 0x20, 0x15, 0x35, 0x06 // of the packet filter: BPF_LD|BPF_W|BPF_ABS and so on
		allow, fail                  = 0x7fff0000, 0x00050000 // SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
		number, second, third        = 0, 24, 32              // in struct seccomp_data: nr, and the low halves of args[1] and args[2]
		setMode, synchronise         = 1, 1                   // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
	)
	filter := []syscall.SockFilter{
		{Code: load, K: number}, {Code: equal, Jf: 5, K: r.Call}, {Code: load, K: second}, {Code: equal, Jf: 3, K: r.Second},
		{Code: load, K: third}, {Code: atLeast, Jf: 1, K: r.Third}, {Code: result, K: fail | r.Errno}, {Code: result, K: allow},
	}
	seccomp, known := map[string]uintptr{"amd64": 317, "arm64": 277}[runtime.GOARCH]
	if !known {
		return fmt.Errorf("the number of seccomp isn't known for %s", runtime.GOARCH)
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.Syscall(seccomp, setMode, synchronise, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
