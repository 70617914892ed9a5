//go:build amd64 || arm64

package openloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"
)

// lead is the time between the last connection's opening and the first request.
const lead = 20 * time.Millisecond

// Run loads the server. It returns an error if the run can't be done at all: wrong options, an address that nobody listens at,
// a context that ends; what goes wrong in the run is in the result.
func Run(ctx context.Context, options Options) (*Result, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	p, err := newPlan(o)
	if err != nil {
		return nil, err
	}
	address, err := net.ResolveTCPAddr("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("openloop: %w", err)
	}
	epoch := time.Now()
	var loops []*loop
	for i := range o.Threads {
		l, err := newLoop(p, socketAddress(address), i, epoch)
		if err != nil {
			for _, l := range loops {
				l.poller.close()
			}
			return nil, err
		}
		loops = append(loops, l)
	}
	stopWatching := context.AfterFunc(ctx, func() {
		for _, l := range loops {
			l.abort()
		}
	})
	err = drive(o, loops, epoch)
	if !stopWatching() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return newResult(p, loops), nil
}

// drive runs the loops: all open their connections, and then all begin at once.
func drive(o *Options, loops []*loop, epoch time.Time) error {
	opened, ended := make(chan error, len(loops)), make(chan error, len(loops))
	for _, l := range loops {
		go func() { ended <- l.serve(opened) }()
	}
	var errs []error
	for range loops {
		errs = append(errs, <-opened)
	}
	if err := errors.Join(errs...); err == nil {
		runtime.GC() // so that none falls into the run, which leaves next to no garbage
		now := int64(time.Since(epoch) + lead)
		from, to := now+int64(o.Warmup), now+int64(o.Warmup+o.Duration)
		for _, l := range loops {
			var s *schedule
			if o.Rate > 0 {
				s = newSchedule(o.Rate, o.Poisson, o.Seed, l.index, len(loops))
			}
			queue := (o.Queue + len(loops) - 1) / len(loops)
			l.begin <- order{newPacer(s, now, to, queue), window{from, to, o.Rate == 0}}
		}
	}
	for _, l := range loops {
		close(l.begin)
	}
	for range loops {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// socketAddress returns an address as package syscall wants it, which writes to it.
func socketAddress(a *net.TCPAddr) syscall.Sockaddr {
	if four := a.IP.To4(); four != nil || a.IP == nil {
		s := &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte{127, 0, 0, 1}}
		copy(s.Addr[:], four)
		return s
	}
	s := &syscall.SockaddrInet6{Port: a.Port}
	copy(s.Addr[:], a.IP)
	if i, err := net.InterfaceByName(a.Zone); err == nil {
		s.ZoneId = uint32(i.Index)
	}
	return s
}

// newResult merges what the loops have recorded.
func newResult(p *plan, loops []*loop) *Result {
	total := newRecorder(loops[0].recorder.window, len(p.groups))
	for _, l := range loops {
		total.add(l.recorder)
	}
	result := makeResult(p, total)
	result.ClientCPU = loops[0].cpu
	for _, l := range loops {
		for _, err := range []error{l.connectError, l.malformedError} {
			if err != nil && result.FirstError == "" {
				result.FirstError = err.Error()
			}
		}
	}
	return result
}
