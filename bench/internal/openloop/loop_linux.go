//go:build amd64 || arm64

package openloop

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// sweepInterval is how often some of the connections are looked at, and sweepParts in how many goes all are.
	sweepInterval = 6 * time.Millisecond
	sweepParts    = 16
	// maxConnecting is how many connections are opened at a time before the run.
	maxConnecting = 64
	// readSize is how much is read at a time.
	readSize = 256 << 10
)

// loop drives its share of the connections, on a thread of its own.
type loop struct {
	options  *Options
	plan     *plan
	index    int
	address  syscall.Sockaddr
	upgrade  []byte // the request for a WebSocket; nil if there is none
	lazy     bool   // connections are opened when there is a request for them
	poller   poller
	pacer    *pacer // nil before the run begins
	recorder *recorder
	epoch    time.Time // of now
	begin    chan order

	conns     []*conn
	free      ring[*conn] // have room, or had
	repeats   []*conn     // to be called again without an event
	repeating []*conn     // as repeats was
	position  int         // in the order of requests
	busy      int         // exchanges
	swept     int         // connections, in this round
	nextSweep int64
	stopping  bool
	cpu       time.Duration // of the process in the window; the first loop's only
	measuring phase

	connectError   error // the first
	malformedError error // the first

	buffer  []byte
	vectors [maxVector]syscall.Iovec
	message syscall.Msghdr

	mu         sync.Mutex
	handedBack []handshakeEnd // guarded by mu
	aborted    bool           // guarded by mu
}

// phase says where the loop is in relation to the measured time. It changes between turns.
type phase uint8

const (
	before phase = iota
	during
	after
)

type handshakeEnd struct {
	conn *conn
	err  error
}

// newLoop makes the loop number index of a run, with its share of the connections.
func newLoop(p *plan, address syscall.Sockaddr, index int, epoch time.Time) (*loop, error) {
	o := p.options
	l := &loop{options: o, plan: p, index: index, address: address, upgrade: p.upgrade, epoch: epoch,
		lazy: o.RequestsPerConnection > 0, recorder: newRecorder(window{}, len(p.groups)), buffer: make([]byte, readSize),
		position: index * len(p.order) / o.Threads, begin: make(chan order, 1)}
	n, idle := share(o.Connections, index, o.Threads), share(o.Idle, index, o.Threads)
	memo := &headMemo{}
	for i := range n + idle {
		c := &conn{loop: l, slot: i, idle: i >= n}
		c.parser.memo, c.parser.upgrade = memo, l.upgrade != nil
		l.conns = append(l.conns, c)
	}
	return l, l.poller.open()
}

// share is how many of n belong to the part number index of as many as parts says.
func share(n, index, parts int) int { return (index+1)*n/parts - index*n/parts }

func (l *loop) now() int64 { return int64(time.Since(l.epoch)) }

// nextRequest returns what is to be sent next.
func (l *loop) nextRequest() *prepared {
	r := l.plan.prepared[l.plan.order[l.position]]
	if l.position++; l.position == len(l.plan.order) {
		l.position = 0
	}
	return r
}

func (l *loop) received(n int) {
	if l.measuring == during {
		l.recorder.in += uint64(n)
	}
}

func (l *loop) sent(n int) {
	if l.measuring == during {
		l.recorder.out += uint64(n)
	}
}

func (l *loop) malformedAnswer(err error) {
	if l.malformedError == nil {
		l.malformedError = err
	}
}

// handBack ends a handshake. It is called by its goroutine.
func (l *loop) handBack(c *conn, err error) {
	l.mu.Lock()
	l.handedBack = append(l.handedBack, handshakeEnd{c, err})
	l.mu.Unlock()
	l.poller.ring()
}

// abort makes the loop end soon. Any goroutine may call it.
func (l *loop) abort() {
	l.mu.Lock()
	l.aborted = true
	l.mu.Unlock()
	l.poller.ring()
}

// repeat lets the connection be called in the next turn.
func (l *loop) repeat(c *conn) {
	if !c.again {
		c.again = true
		l.repeats = append(l.repeats, c)
	}
}

// offer lets a connection take as much as it has room for, or lists it as one that has room. Before what it took is sent
// there has to be a flush.
func (l *loop) offer(c *conn, now int64) {
	if l.pacer == nil {
		return
	}
	for c.hasRoom() {
		intended, ok := l.pacer.take(now)
		if !ok {
			if !c.listed {
				c.listed = true
				l.free.push(c)
			}
			return
		}
		c.assign(intended, now)
	}
	if c.state == connClosed && c.exchanges.len() > 0 {
		c.connect(now)
	}
}

// dispatch sends what is due. If a connection has room then nothing waits.
func (l *loop) dispatch() {
	now := l.now()
	for intended, ok := l.pacer.due(now); ok; intended, ok = l.pacer.due(now) {
		measured := l.recorder.has(intended)
		if measured {
			l.recorder.offered++
			record(l.recorder.lateness, now-intended)
		}
		if !l.pacer.wait(intended) {
			if measured {
				l.recorder.dropped++
			}
			continue
		}
		for l.pacer.waiting.len() > 0 && l.free.len() > 0 {
			c := l.free.pop()
			c.listed = false
			if !c.hasRoom() {
				continue
			}
			intended, _ := l.pacer.take(now)
			c.assign(intended, now)
			if c.state == connClosed {
				c.connect(now)
			}
			if c.hasRoom() {
				c.listed = true
				l.free.push(c)
			}
			c.flush()
		}
		now = l.now()
	}
}

// turn does what there is to do, after a wait until then at most.
func (l *loop) turn(until int64) error {
	now := l.now()
	l.watchWindow(now)
	timeout := min(until, l.nextSweep) - now
	if l.pacer != nil && l.pacer.upcoming != never {
		timeout = min(timeout, l.pacer.upcoming-now)
	}
	if len(l.repeats) > 0 || timeout < int64(l.options.Spin) {
		timeout = 0
	}
	events, err := l.poller.wait(time.Duration(timeout))
	if err != nil {
		return err
	}
	l.pace()
	for i := range events {
		if slot := int(events[i].Fd); slot == bellSlot {
			l.takeHandshakes()
		} else if c := l.conns[slot]; c.generation == events[i].Pad {
			c.event(events[i].Events, l.now())
		}
		l.pace()
	}
	l.repeats, l.repeating = l.repeating[:0], l.repeats
	for _, c := range l.repeating {
		c.again = false
		c.repeated()
		l.pace()
	}
	l.sweep(l.now())
	return nil
}

// pace is dispatch, if the run has begun.
func (l *loop) pace() {
	if l.pacer != nil && l.pacer.schedule != nil {
		l.dispatch()
	}
}

func (l *loop) takeHandshakes() {
	l.mu.Lock()
	ends := l.handedBack
	l.handedBack = nil
	l.mu.Unlock()
	for _, end := range ends {
		end.conn.handshaken(end.err, l.now())
	}
}

// sweep looks after some connections, if it is time.
func (l *loop) sweep(now int64) {
	if now < l.nextSweep {
		return
	}
	l.nextSweep = now + int64(sweepInterval)
	for range (len(l.conns) + sweepParts - 1) / sweepParts {
		l.conns[l.swept].sweep(now)
		if l.swept++; l.swept == len(l.conns) {
			l.swept = 0
		}
	}
}

// watchWindow notes the beginning and the end of the measured time.
func (l *loop) watchWindow(now int64) {
	w := &l.recorder.window
	switch {
	case l.measuring == before && now >= w.from && w.to > 0:
		l.measuring, l.cpu = during, -processTime()
	case l.measuring == during && now >= w.to:
		l.measuring, l.cpu = after, l.cpu+processTime()
	}
}

func (l *loop) isAborted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aborted
}

// open opens the connections before the run. The first failure ends it.
func (l *loop) open() error {
	deadline := l.now() + int64(l.options.Timeout)
	opened, begun := 0, 0
	for opened < len(l.conns) {
		for ; begun < len(l.conns) && begun-opened < maxConnecting; begun++ {
			if c := l.conns[begun]; l.lazy && !c.idle {
				opened++
			} else {
				c.connect(l.now())
			}
		}
		if err := l.turn(deadline); err != nil {
			return err
		}
		switch {
		case l.connectError != nil:
			return fmt.Errorf("openloop: after %d connections: %w", opened, l.connectError)
		case l.isAborted():
			return nil
		case l.now() > deadline:
			return fmt.Errorf("openloop: only %d of %d connections could be opened within %v", opened, len(l.conns),
				l.options.Timeout)
		}
		opened = l.countOpen(begun)
	}
	return nil
}

// countOpen counts the connections that needn't be waited for, among the first n.
func (l *loop) countOpen(n int) (opened int) {
	for _, c := range l.conns[:n] {
		if c.state == connOpen || l.lazy && !c.idle {
			opened++
		}
	}
	return opened
}

// run sends what the pacer says, and waits for the answers.
func (l *loop) run(p *pacer, w window) error {
	l.pacer, l.recorder.window = p, w
	for _, c := range l.conns {
		if c.hasRoom() && !c.listed {
			c.listed = true
			l.free.push(c)
		}
	}
	if p.schedule == nil {
		if err := l.sleepUntil(p.begin); err != nil {
			return err
		}
		for _, c := range l.conns {
			l.offer(c, l.now())
			c.flush()
		}
	}
	deadline := p.end + int64(l.options.Timeout)
	for now := l.now(); now < deadline && !(p.over(now) && l.busy == 0) && !l.isAborted(); now = l.now() {
		if err := l.turn(deadline); err != nil {
			return err
		}
	}
	l.stop()
	return nil
}

func (l *loop) sleepUntil(t int64) error {
	for now := l.now(); now < t; now = l.now() {
		if err := l.turn(t); err != nil {
			return err
		}
	}
	return nil
}

// stop closes the connections and counts what hasn't been answered.
func (l *loop) stop() {
	now := l.now()
	l.watchWindow(now)
	for l.pacer.waiting.len() > 0 {
		l.recorder.failed(FailedTimeout, 1, l.pacer.waiting.pop(), now)
	}
	l.shut()
}

// shut closes the connections, and waits for the handshakes.
func (l *loop) shut() {
	l.stopping = true
	for _, c := range l.conns {
		if c.state != connClosed && c.state != connLost {
			c.fail(FailedTimeout, l.now())
		}
	}
	for _, c := range l.conns {
		for c.state == connLost {
			l.poller.wait(sweepInterval)
			c.tls.wake()
			l.takeHandshakes()
		}
	}
}

// serve runs the loop on a thread of its own: it opens the connections, says so, waits for the pacer, and runs.
func (l *loop) serve(opened chan<- error) error {
	runtime.LockOSThread() // and never unlocks it, so that the thread ends with the goroutine
	bePunctual()
	defer l.poller.close()
	err := l.open()
	opened <- err
	o, ok := <-l.begin
	if !ok {
		l.shut()
		return nil
	}
	return l.run(o.pacer, o.window)
}

// order lets a loop begin.
type order struct {
	pacer  *pacer
	window window
}
