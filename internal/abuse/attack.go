// Package abuse attacks HTTP servers in ways that have brought servers down, and measures how well a polite client is served during the
// attack. It writes raw frames, HTTP/1.1 messages and TLS records, so any server can be its target. Its command, cmd, attacks the server at
// an address.
//
// Some attacks need these paths. Site serves them for net/http's server:
//
//	/         requested by the polite client of HTTP/2: a 200 whose body is always the same
//	/quick    a small answer
//	/large    an answer of a megabyte
//	/wait5ms  an answer after 5 ms, from a handler that doesn't notice if its client disconnects
//	/wait1s   as /wait5ms, but after a second
//	/body     an answer once the request's body has been read
//	/stream   an endless answer, written as fast as the client reads it
//	/file     a file of 16 MB
//	/calls    the number of calls of all paths but / and /calls, and how many of them ran at once since the last request for /calls
package abuse

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

// Want says how a server should react to an attack.
type Want int

const (
	// Ends: the server ends each connection because of what the attacker sends.
	Ends Want = iota
	// TimesOut: the server ends each connection, or the streams or messages begun on it, when a time-out expires or because the client is too
	// slow.
	TimesOut
	// Bounded: the server may serve the attacker for ever, if the server's memory doesn't keep growing.
	Bounded
	// Served: this isn't an attack. The server answers everything with 200.
	Served
)

// String names the reaction.
func (w Want) String() string {
	return [...]string{"the connection is ended", "a time-out ends it", "bounded memory", "all is answered"}[w]
}

// Attack is a way to harm a server.
type Attack struct {
	Name string
	// About describes the attack, with its well-known name if it has one.
	About string
	Want  Want
	// Conns is the number of simultaneous connections of the attack. When the server ends one, a new one replaces it after Pause.
	Conns int
	// Once says that attackers don't reconnect, so Run returns when each has lost its connection.
	Once bool
	// Growth is how many more bytes of memory a server may hold because of the attack.
	Growth int64

	// Client is the polite client that uses the server during the attack.
	Client Client
	// Bare says that the attack itself writes TLS records, so its connections are plain TCP.
	Bare bool

	manner manner
	run    func(*conn) // speaks HTTP/2 until the connection or all its streams have ended
	plain  func(*raw)  // sends HTTP/1.1 or TLS records until the connection has ended; nil for an attack over HTTP/2
}

// Client is a kind of polite client.
type Client int

const (
	// HTTP2 sends GET for / over few connections.
	HTTP2 Client = iota
	// Posts sends bodies of 64 KB to /body over keep-alive connections of HTTP/1.1.
	Posts
	// Handshakes sends each GET for / on a new TLS connection, over HTTP/1.1.
	Handshakes
)

// Pause is how long an attacker waits before it reconnects.
const Pause = 100 * time.Millisecond

// Find returns the attack of that name.
func Find(name string) (*Attack, error) {
	for _, a := range Attacks() {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no attack %q", name)
}

// Figure is the result of an attack.
type Figure struct {
	Time    time.Duration
	Conns   int            // connections that were opened
	Undone  int            // dials that failed
	Frames  int            // frames that were sent, some of which the server might not have read: socket buffers hold some hundred kilobytes
	Streams int            // opened
	Answers int            // with any status
	Resets  map[string]int // RST_STREAM received, by code
	Pings   int            // PINGs that the server has answered
	// MaxStreams is the server's SETTINGS_MAX_CONCURRENT_STREAMS, 0 for none.
	MaxStreams int
	// Ended counts, by the kind of end, the connections that the server has ended, or on which the server has ended all streams.
	Ended map[string]int
	// Endless counts the attackers that have never lost a connection.
	Endless int
	// Longest is the longest time that the server took to end a connection, or the streams begun on it. LongestFrames counts the frames that
	// were sent on the connection that took longest. If the server sends GOAWAY, the connection counts as ended when the GOAWAY arrives.
	LongestFrames int
	Longest       time.Duration
	// NotOK counts answers whose status isn't 200.
	NotOK int
	// Wrong is the first violation by the server, such as frames that can't be read or fields that can't be decoded; "" for none.
	Wrong string
}

// Run attacks the server to which the function dial connects, until ctx is done.
func (a *Attack) Run(ctx context.Context, dial func() (net.Conn, error)) Figure {
	began := time.Now()
	sum := summing{Figure: Figure{Ended: map[string]int{}, Resets: map[string]int{}}}
	var attackers sync.WaitGroup
	for range a.Conns {
		attackers.Go(func() {
			if !a.attack(ctx, dial, &sum) {
				sum.mu.Lock()
				sum.Endless++
				sum.mu.Unlock()
			}
		})
	}
	attackers.Wait()
	sum.Time = time.Since(began)
	return sum.Figure
}

// attack runs the attack over one connection after the other, and reports whether the server has ended any.
func (a *Attack) attack(ctx context.Context, dial func() (net.Conn, error), sum *summing) (ended bool) {
	for ctx.Err() == nil {
		if nc, err := dial(); err != nil {
			sum.failed()
		} else {
			ended = a.attackBy(ctx, nc, sum) || ended
			if a.Once {
				break
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(Pause):
		}
	}
	return ended
}

// attackBy runs the attack over nc, and reports whether the server has ended this connection.
func (a *Attack) attackBy(ctx context.Context, nc net.Conn, sum *summing) bool {
	if a.plain != nil {
		return sum.addRaw(runRaw(ctx, nc, a.plain))
	}
	c := newConn(ctx, nc, a.manner)
	a.run(c)
	if ctx.Err() == nil && !c.finished() {
		// Sending has failed, so the reading goroutine is about to get an error, too.
		c.wait()
	}
	c.close()
	return sum.add(c)
}

// summing adds up the results of connections.
type summing struct {
	mu sync.Mutex
	Figure
}

func (s *summing) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Undone++
}

// add adds the counts of a connection that has ended, and reports whether the server has ended it.
func (s *summing) add(c *conn) bool {
	by, after, frames := c.ending()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &c.tally
	s.Conns++
	s.Frames += t.frames
	s.Streams += t.opened
	s.Answers += t.answers
	for code, n := range t.resets {
		s.Resets[code.String()] += n
	}
	s.Pings += t.pings
	s.NotOK += t.notOK
	s.MaxStreams = max(s.MaxStreams, t.maxStreams)
	if t.wrong != nil && s.Wrong == "" {
		s.Wrong = t.wrong.Error()
	}
	return s.endedLocked(by, after, frames)
}

// endedLocked counts the end of a connection. An empty by means that the server hasn't ended the connection.
func (s *summing) endedLocked(by string, after time.Duration, frames int) bool {
	if by == "" {
		return false
	}
	s.Ended[by]++
	if after > s.Longest {
		s.Longest, s.LongestFrames = after, frames
	}
	return true
}

// Judge returns what is wrong with the server's reaction to the attack, "" if nothing is. The argument timeouts says that the attack has
// lasted longer than the server's time-outs.
func (a *Attack) Judge(f *Figure, timeouts bool) string {
	ended := -f.Ended["GOAWAY "+http2.NoError.String()] // no complaint: a server may limit the number of requests on a connection
	for _, n := range f.Ended {
		ended += n
	}
	resets := 0
	for _, n := range f.Resets {
		resets += n
	}
	switch {
	case f.Wrong != "":
		return f.Wrong
	case f.Conns == 0:
		return "no connection could be opened"
	case a.Want == Ends && f.Endless > 0, a.Want == TimesOut && timeouts && f.Endless > 0:
		return fmt.Sprintf("%d of %d attackers never lost a connection", f.Endless, a.Conns)
	case a.Want == Served && (ended > 0 || f.NotOK > 0 || resets > 0 || f.Answers == 0):
		return fmt.Sprintf("%d answers, %d of them not 200, %d resets, %d connections ended", f.Answers, f.NotOK, resets, ended)
	}
	return ""
}
