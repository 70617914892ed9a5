package abuse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

// Polite is a client that uses a server as it should: it has few connections with few streams each, sends requests at a constant rate, and
// opens windows again. The time of an answer counts from when its request was due, so a stall counts for each request that it delays.
type Polite struct {
	recorder
	dial   func() (net.Conn, error)
	ctx    context.Context
	cancel context.CancelFunc
	lanes  sync.WaitGroup
	body   string // the answer to each request
}

// recorder records what becomes of a polite client's requests.
type recorder struct {
	mu    sync.Mutex
	phase *Phase
}

const (
	// PoliteStreams is how many streams a polite client has open on a connection, at most.
	PoliteStreams = 10
	// PoliteConns is how many connections it has.
	PoliteConns = 4
	// patience is how long it waits for an answer.
	patience = 10 * time.Second
	// redial is how long it waits when a connection couldn't be opened.
	redial = 20 * time.Millisecond
)

// StartPolite starts a client that sends rate requests a second for /. It expects the answer that StartPolite's own request has got.
func StartPolite(dial func() (net.Conn, error), rate float64) (*Polite, error) {
	status, body, err := Get(context.Background(), dial, "/")
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return nil, fmt.Errorf("the polite client's first request: %w", err)
	}
	p := &Polite{dial: dial, body: body}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.Begin()
	interval := time.Duration(float64(time.Second) / rate * PoliteConns)
	for i := range PoliteConns {
		l := &lane{Polite: p, slots: make(chan struct{}, PoliteStreams)}
		start := time.Now().Add(interval / PoliteConns * time.Duration(i))
		p.lanes.Go(func() { l.run(start, interval) })
	}
	return p, nil
}

// Stop ends the client. Requests that haven't been answered count neither way.
func (p *Polite) Stop() {
	p.cancel()
	p.lanes.Wait()
}

// Begin begins a new phase: it has the requests that are due from now on.
func (p *recorder) Begin() *Phase {
	next := &Phase{polite: p, all: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != nil {
		p.phase.over = true
		p.phase.check()
	}
	p.phase = next
	return next
}

// due begins a request of the current phase.
func (p *recorder) due() *Phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase.pending++
	return p.phase
}

// record records what has become of a request; nothing if the client stops.
func (p *recorder) record(h *Phase, took time.Duration, err error, stops bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stops:
	case err == nil:
		h.times = append(h.times, took)
	case errors.Is(err, errBusy):
		h.busy++
	default:
		h.failed++
		h.first = cmp.Or(h.first, err)
	}
	h.pending--
	h.check()
}

// errBusy is a 503 with Retry-After: the server has said that it is full.
var errBusy = errors.New("503 with Retry-After")

// Phase has the requests of a span of time. The client's mu guards it.
type Phase struct {
	polite  *recorder
	times   []time.Duration
	busy    int
	failed  int
	first   error
	pending int
	over    bool
	all     chan struct{} // closed when it is over and nothing is pending
}

// PhaseFigure is what has become of a phase's requests.
type PhaseFigure struct {
	Answers, Errors int
	Busy            int           // 503 with Retry-After
	P50, P99, Max   time.Duration // of those that were answered
	First           error
}

// Figure waits until the next phase has begun and all requests of this one are answered.
func (h *Phase) Figure() PhaseFigure {
	<-h.all
	h.polite.mu.Lock()
	defer h.polite.mu.Unlock()
	slices.Sort(h.times)
	f := PhaseFigure{Answers: len(h.times), Errors: h.failed, Busy: h.busy, First: h.first}
	if n := len(h.times); n > 0 {
		f.P50, f.P99, f.Max = h.times[n/2], h.times[n*99/100], h.times[n-1]
	}
	return f
}

// check closes all when that is due. It is called with mu locked.
func (h *Phase) check() {
	if h.over && h.pending == 0 {
		close(h.all)
	}
}

// asked is a request of the polite client.
type asked struct {
	phase  *Phase
	due    time.Time
	conn   *conn
	id     uint32
	status int
	// retryAfter says that the answer has the field of that name.
	retryAfter bool
	body       []byte
	timer      *time.Timer
	done       bool
}

// lane is a connection of a polite client, and those that take its place.
type lane struct {
	*Polite
	slots chan struct{}
	begun sync.WaitGroup // goroutines that watch connections

	asking sync.Mutex // guards conn, and is locked before mu: no answer waits while a connection is opened
	conn   *conn
	mu     sync.Mutex // guards open and the requests, and is locked before the client's mu
	open   map[*conn]map[uint32]*asked
}

// run sends requests when they are due.
func (l *lane) run(start time.Time, interval time.Duration) {
	l.open = map[*conn]map[uint32]*asked{}
	for due := start; ; due = due.Add(interval) {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-l.ctx.Done():
			timer.Stop()
			l.begun.Wait()
			return
		case <-timer.C:
		}
		r := &asked{phase: l.due(), due: due}
		select {
		case l.slots <- struct{}{}:
			l.ask(r)
		case <-l.ctx.Done():
			l.settle(r, l.ctx.Err())
		}
	}
}

// ask sends a request.
func (l *lane) ask(r *asked) {
	l.asking.Lock()
	defer l.asking.Unlock()
	c, err := l.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	for err == nil && l.open[c] == nil { // the connection has ended since
		l.mu.Unlock()
		c, err = l.current()
		l.mu.Lock()
	}
	if err != nil {
		l.finish(r, err)
		return
	}
	// An answer can't come before its stream is in open: take waits for mu.
	id, _ := c.request(unlimited, c.head(get, "/"), true)
	r.conn, r.id, r.status, r.body = c, id, 0, nil
	l.open[c][id] = r
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Until(r.due.Add(patience)), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.finish(r, fmt.Errorf("no answer within %v", patience))
		})
	}
}

// current returns the connection for the next request, and opens one where there is none. It is called with asking locked.
func (l *lane) current() (*conn, error) {
	if l.conn != nil && l.conn.usable() {
		return l.conn, nil
	}
	l.conn = nil
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	nc, err := l.dial()
	if err != nil {
		select {
		case <-l.ctx.Done():
		case <-time.After(redial):
		}
		return nil, err
	}
	var c *conn
	made := make(chan struct{})
	c = newConn(l.ctx, nc, manner{}, func(f *http2.Frame, status int) {
		<-made
		l.take(c, f, status)
	})
	close(made)
	l.conn = c
	l.mu.Lock()
	l.open[c] = map[uint32]*asked{}
	l.mu.Unlock()
	l.begun.Go(func() { l.watch(c) })
	return c, nil
}

// usable reports whether a request may be sent.
func (c *conn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendable() && c.tally.goAway == nil
}

// watch waits for a connection's end. Requests that the server says it hasn't seen are sent again (RFC 9113, section 6.8), the others have
// failed.
func (l *lane) watch(c *conn) {
	<-c.done
	c.close()
	l.mu.Lock()
	left := l.open[c]
	delete(l.open, c)
	var again []*asked
	for id, r := range left {
		if g := c.tally.goAway; g != nil && g.code == http2.NoError && id > g.last {
			again = append(again, r)
			continue
		}
		by, _, _ := c.ending()
		l.finish(r, fmt.Errorf("the connection has ended: %s", cmp.Or(by, "by the client")))
	}
	l.mu.Unlock()
	for _, r := range again {
		l.ask(r)
	}
}

// take takes a frame of an answer.
func (l *lane) take(c *conn, f *http2.Frame, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.open[c][f.Stream]
	if r == nil {
		return
	}
	switch f.Type {
	case http2.FrameReset:
		l.finish(r, fmt.Errorf("RST_STREAM %v", http2.ErrCode(f.Value)))
		return
	case http2.FrameData:
		r.body = append(r.body, f.Payload...)
	default:
		if status >= 200 {
			r.status, r.retryAfter = status, c.retryAfter
		}
	}
	if !f.EndStream() {
		return
	}
	var err error
	switch {
	case r.status == 503 && r.retryAfter:
		err = errBusy
	case r.status != 200 || string(r.body) != l.body:
		err = fmt.Errorf("the answer is %d %.100q", r.status, r.body)
	}
	l.finish(r, err)
}

// finish ends a request. It is called with mu locked.
func (l *lane) finish(r *asked, err error) {
	if r.done {
		return
	}
	r.done = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if open := l.open[r.conn]; open != nil {
		if delete(open, r.id); len(open) == 0 && !r.conn.usable() {
			r.conn.end(errOver)
		}
	}
	<-l.slots
	l.settle(r, err)
}

// settle counts a request.
func (l *lane) settle(r *asked, err error) {
	l.record(r.phase, time.Since(r.due), err, l.ctx.Err() != nil)
}

// Get asks for a path on a connection of its own.
func Get(ctx context.Context, dial func() (net.Conn, error), path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nc, err := dial()
	if err != nil {
		return 0, "", err
	}
	ended := make(chan struct{}, 1)
	c := newConn(ctx, nc, manner{}, func(f *http2.Frame, s int) {
		if f.Type == http2.FrameData {
			body += string(f.Payload)
		}
		status = max(status, s)
		if f.Type == http2.FrameReset || f.EndStream() {
			select {
			case ended <- struct{}{}:
			default:
			}
		}
	})
	c.request(1, c.head(get, path), true)
	select {
	case <-ended:
	case <-c.done:
		err = errors.New("no answer")
	}
	c.close()
	return status, body, err
}
