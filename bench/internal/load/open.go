package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/filohttp/filo/bench/internal/proc"
)

// patience is how long Open waits for the last answers.
const patience = 5 * time.Second

// loop is the state of Open: one thread and one epoll set. Its times are in nanoseconds since the time in the field started.
type loop struct {
	*Job
	host     string
	address  unix.SockaddrInet4
	raw      [][]byte // the requests as bytes
	last     []byte   // the request that closes a connection
	echo     []byte   // the frame with which the server echoes a message; nil without WebSockets
	turn     int      // index in raw of the next request
	epoll    int
	conns    []*conn    // over HTTP/2 one for each stream
	muxes    []*mux     // the HTTP/2 connections
	free     chan *conn // connections without a request in flight; the channel has room for all
	freed    int64      // when a connection last became free while no other was
	busy     int        // requests in flight
	due      float64    // when the next request is due
	interval float64    // time between requests, 0 in a closed loop
	buffer   []byte

	started          time.Time
	begin, end       int64 // of the measured time
	answers, refused atomic.Int64
	expected, kept   int // how many requests were due in the measured time, and how many of them were answered within that time

	latency, refusals, late *hdrhistogram.Histogram
}

// Open sends requests at the job's rate, evenly spread, or runs a closed loop. It compares every answer with the expected one. The first error ends
// the run. If a request must wait for a free connection, its latency includes the wait. If the row closes connections, the latency also includes
// opening the next one. Open also fails if it was itself late, or if fewer than 99 % of the requests that were due in the measured time were answered
// within that time.
func Open(ctx context.Context, j *Job) (*Result, error) {
	l := &loop{
		Job: j, free: make(chan *conn, j.Row.Connections*max(j.Row.Streams, 1)), buffer: make([]byte, 256<<10),
		latency: histogram(), refusals: histogram(), late: histogram(),
	}
	// Garbage collection is off, so that it doesn't stop the loop, which allocates little in a few seconds.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	ready, ran := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		runtime.LockOSThread() // without an unlock, the thread and its changed settings end with the goroutine
		err := l.run(ctx, ready)
		if err != nil {
			stop(err)
		}
		ran <- err
	}()
	var result Result
	if err := l.watch(ctx, ready, &result); err != nil {
		stop(err)
	}
	if err := <-ran; err != nil {
		return nil, context.Cause(ctx)
	}
	result.Latency, result.RefusedLatency = percentiles(l.latency), percentiles(l.refusals)
	late := time.Duration(l.late.ValueAtQuantile(99))
	result.Late = float64(late) / float64(time.Millisecond)
	switch {
	case result.Answers == 0:
		return nil, errors.New("there were no answers")
	case late > j.MaxLateness:
		return nil, fmt.Errorf("the generator was late itself, by %v at the 99th percentile", late)
	case float64(l.kept) < 0.99*float64(l.expected):
		return nil, fmt.Errorf("%d of %d requests had their answer in time", l.kept, l.expected)
	}
	return &result, nil
}

func histogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Minute), 3) }

func (l *loop) now() int64 { return int64(time.Since(l.started)) }

// watch calls Window at the beginning and the end of the measured time, and counts the answers between them.
func (l *loop) watch(ctx context.Context, ready chan struct{}, r *Result) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ready:
	}
	sign := -1.0
	for _, moment := range []int64{l.begin, l.end} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(moment - l.now())):
		}
		r.Answers += sign * float64(l.answers.Load())
		r.Refused += sign * float64(l.refused.Load())
		r.Seconds += sign * float64(min(l.now(), l.end)) / float64(time.Second)
		if err := l.Window(sign < 0); err != nil {
			return err
		}
		sign = 1
	}
	return nil
}

// run opens the connections, and continues until every request that was due has an answer.
func (l *loop) run(ctx context.Context, ready chan struct{}) error {
	if err := bePunctual(l.CPUs); err != nil {
		return err
	}
	defer func() {
		for _, c := range l.conns {
			unix.Close(c.fd)
		}
		for _, m := range l.muxes {
			unix.Close(m.conn.fd)
		}
		unix.Close(l.epoll)
	}()
	if err := l.open(); err != nil {
		return err
	}
	const lead = 20 * time.Millisecond
	l.started, l.due = time.Now(), float64(lead)
	l.begin = int64(lead + l.Warmup)
	l.end = l.begin + int64(l.Duration)
	if l.Rate > 0 {
		l.interval = float64(time.Second) / l.Rate
	}
	close(ready)
	events := make([]unix.EpollEvent, 256)
	for ctx.Err() == nil {
		if err := l.send(); err != nil {
			return err
		}
		now := l.now()
		if now > l.end && l.busy == 0 && (l.interval == 0 || l.due >= float64(l.end)) {
			return nil
		}
		if now > l.end+int64(patience) {
			return fmt.Errorf("%d requests have no answer", l.busy)
		}
		wait := time.Second
		if l.interval > 0 && len(l.free) > 0 && l.due < float64(l.end) {
			wait = time.Duration(l.due) - time.Duration(now)
		}
		n, err := epollWait(l.epoll, events, wait)
		if err != nil {
			return err
		}
		for _, e := range events[:n] {
			ready := l.conns[e.Fd].ready
			if l.muxes != nil {
				ready = l.muxes[e.Fd].ready
			}
			if err := ready(e.Events); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// send passes due requests to free connections.
func (l *loop) send() error {
	for len(l.free) > 0 {
		now := l.now()
		due := now
		if l.interval > 0 {
			if due = int64(l.due); due > now || due >= l.end {
				return nil
			}
			l.due += l.interval
		} else if now >= l.end {
			return nil
		}
		if due >= l.begin {
			l.expected++
			l.late.RecordValue(now - max(due, l.freed))
		}
		if err := (<-l.free).send(due); err != nil {
			return err
		}
	}
	return nil
}

// open opens the connections.
func (l *loop) open() (err error) {
	_, l.host, _ = strings.Cut(l.Base, "://")
	address, err := netip.ParseAddrPort(l.host)
	if err != nil {
		return err
	}
	l.address = unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	r := l.Row
	for i := range r.Requests {
		l.raw = append(l.raw, r.Requests[i].Raw(l.host, false))
	}
	l.last = r.Requests[0].Raw(l.host, true)
	if r.Message > 0 {
		l.raw, l.echo = [][]byte{clientFrame(r.Message)}, serverFrame(r.Message)
	}
	if r.PerConnection > 0 && (r.TLS || r.Message > 0) {
		return errors.New("connections with TLS or WebSockets stay open")
	}
	for range r.Connections {
		if r.Streams > 0 {
			if err := l.openMux(); err != nil {
				return fmt.Errorf("connection %d: %w", len(l.muxes)+1, err)
			}
			continue
		}
		c := &conn{loop: l, index: len(l.conns), fd: -1}
		l.conns = append(l.conns, c)
		if err := c.open(); err != nil {
			return fmt.Errorf("connection %d: %w", len(l.conns), err)
		}
		l.free <- c
	}
	return nil
}

// conn is a connection. When it ends, the same conn is reused for the connection that replaces it.
type conn struct {
	loop   *loop
	index  int
	fd     int // -1 if it isn't open
	io     io.ReadWriter
	asked  int   // requests on this socket
	turn   int   // index of the request in flight
	due    int64 // when that request was due
	out    []byte
	answer answer
	busy   bool
	mux    *mux // over HTTP/2, the connection to which this stream belongs; nil otherwise
}

// socket reads and writes for a conn, directly or below TLS. It returns EAGAIN as an error after which crypto/tls can continue.
type socket struct {
	net.Conn // nil, since crypto/tls calls only Read and Write
	fd       int
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := unix.Read(s.fd, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (s *socket) Write(p []byte) (int, error) {
	n, err := unix.Write(s.fd, p)
	return max(n, 0), err
}

// connect starts to connect. Until the connection is established, writes fail with EAGAIN.
func (c *conn) connect(flags int) (err error) {
	if c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0); err != nil {
		return err
	}
	c.io, c.asked = &socket{fd: c.fd}, 0
	err = unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err == nil {
		err = unix.Connect(c.fd, &c.loop.address)
	}
	if err != nil && err != unix.EINPROGRESS {
		return err
	}
	const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | 1<<31 // which is EPOLLET
	return unix.EpollCtl(c.loop.epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: events, Fd: int32(c.index)})
}

// open connects, performs the TLS and WebSocket handshakes, and waits until these are complete.
func (c *conn) open() error {
	if err := c.connect(0); err != nil {
		return err
	}
	unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	if c.loop.Row.TLS {
		protocol := "http/1.1"
		if c.loop.Row.Streams > 0 {
			protocol = "h2"
		}
		secure := tls.Client(c.io.(*socket), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		if err := secure.Handshake(); err != nil {
			return err
		}
		c.io = secure
	}
	if c.loop.echo != nil {
		if err := upgrade(c.io, c.loop.Row.Requests[0].Target, c.loop.host); err != nil {
			return err
		}
	}
	return unix.SetNonblock(c.fd, true)
}

// send starts to send the next request.
func (c *conn) send(due int64) error {
	l := c.loop
	if c.mux != nil {
		return c.mux.send(c, due)
	}
	if c.fd < 0 {
		if err := c.connect(unix.SOCK_NONBLOCK); err != nil {
			return err
		}
	}
	c.turn = l.turn
	l.turn = (l.turn + 1) % len(l.raw)
	c.out = l.raw[c.turn]
	if c.asked++; c.closing() {
		c.out = l.last
	}
	c.due, c.busy, c.answer = due, true, answer{head: c.answer.head[:0], tail: c.answer.tail[:0]}
	l.busy++
	return c.flush()
}

// closing reports whether the last request of the connection is in progress.
func (c *conn) closing() bool { return c.asked == c.loop.Row.PerConnection }

func (c *conn) flush() error {
	for len(c.out) > 0 {
		n, err := c.io.Write(c.out)
		if err == unix.EAGAIN {
			return nil // epoll reports an event when there is room
		}
		if err != nil {
			return err
		}
		c.out = c.out[n:]
	}
	return nil
}

// ready handles an event of the socket.
func (c *conn) ready(events uint32) error {
	if err := c.flush(); err != nil {
		return err
	}
	for events&^unix.EPOLLOUT != 0 && c.fd >= 0 {
		n, err := c.io.Read(c.loop.buffer)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the server ends the connection: %w", err)
		}
		if !c.busy {
			return fmt.Errorf("the server says unasked %.100q", c.loop.buffer[:n])
		}
		if err := c.take(c.loop.buffer[:n]); err != nil {
			return err
		}
		if n < len(c.loop.buffer) && events&^unix.EPOLLOUT == unix.EPOLLIN && !c.loop.Row.TLS {
			return nil // epoll reports another event when more arrives
		}
	}
	return nil
}

// take handles a piece of an answer.
func (c *conn) take(data []byte) (err error) {
	done := false
	if l := c.loop; l.echo != nil {
		done, err = c.answer.is(l.echo, data)
	} else {
		done, err = c.answer.take(data, &l.Row.Requests[c.turn].Want, l.Refusals)
	}
	if done {
		c.answered()
	}
	return err
}

// answered records the latency of the request, and makes the connection free.
func (c *conn) answered() {
	l := c.loop
	now := l.now()
	c.busy = false
	l.busy--
	count, latencies := &l.answers, l.latency
	if c.answer.status == 503 {
		count, latencies = &l.refused, l.refusals
	}
	count.Add(1)
	if c.due >= l.begin && c.due < l.end {
		latencies.RecordValue(now - c.due)
		if now <= l.end || l.interval == 0 {
			l.kept++
		}
	}
	if c.closing() {
		unix.Close(c.fd)
		c.fd = -1
	}
	if len(l.free) == 0 {
		l.freed = now
	}
	l.free <- c
}

// bePunctual configures the calling thread: the thread's timers fire on time, instead of up to 50 µs late, and the thread is bound to processors.
// bePunctual also requests short time slices, since the scheduler then runs the thread sooner after it wakes up (since Linux 6.12).
func bePunctual(cpus []int) error {
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if attributes, err := unix.SchedGetAttr(0, 0); err == nil {
		attributes.Runtime = uint64(100 * time.Microsecond)
		unix.SchedSetAttr(0, attributes, 0) // the kernel may refuse
	}
	return proc.Bind(cpus)
}

// epollWait waits for events, with the most exact time-out that the kernel offers.
func epollWait(epoll int, events []unix.EpollEvent, d time.Duration) (int, error) {
	timeout := unix.NsecToTimespec(int64(max(0, d)))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno == unix.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
