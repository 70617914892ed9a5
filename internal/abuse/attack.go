// Package abuse attacks HTTP servers in the ways that have brought servers down, and measures how a polite client is served meanwhile.
// It speaks HTTP/2's frames, HTTP/1.1's bytes and TLS's records, so any server can be its target. Its command, cmd, attacks the server at an
// address.
//
// Some attacks need these paths. Site serves them by net/http:
//
//	/         what the polite client of HTTP/2 gets: any answer with 200 that is always the same
//	/quick    a small answer
//	/large    an answer of a megabyte
//	/wait5ms  an answer after 5 ms, by a handler that doesn't notice when its client has gone
//	/wait1s   the same after a second
//	/body     an answer once the request's body has been read
//	/stream   an endless answer, written as the client takes it
//	/file     a file of 16 MB
//	/calls    how many calls the paths but / have had, and how many of them ran at once since the last request for /calls
package abuse

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

// Want says how a good server reacts to an attack.
type Want int

const (
	// Ends: the server itself ends each connection.
	Ends Want = iota
	// TimesOut: the server ends each connection, or the streams or messages begun there, by a time-out or because the client is too slow.
	TimesOut
	// Bounded: the server may serve the attacker for ever, as long as its memory doesn't keep growing.
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
	// About says what is attacked, and the attack's well-known name.
	About string
	Want  Want
	// Conns is the number of simultaneous connections of the attack. When the server ends one, a new one replaces it after Pause.
	Conns int
	// Once says that attackers don't reconnect, so Run returns when each has lost its connection.
	Once bool
	// Growth is how many more bytes of memory a server may hold because of the attack.
	Growth int64

	// Client is the polite client that uses the server meanwhile.
	Client Client
	// Bare says that the attack itself writes TLS records, so its connections are plain TCP.
	Bare bool

	manner manner
	run    func(*conn) // speaks HTTP/2 until the connection is over, or the server has ended all streams
	plain  func(*raw)  // speaks HTTP/1.1 or TLS's records until the connection is over; nil for an attack by HTTP/2
}

// Client is a kind of polite client.
type Client int

const (
	// HTTP2 sends GET for / over few connections.
	HTTP2 Client = iota
	// Posts sends bodies of 64 KB to /body by HTTP/1.1, over kept-alive connections.
	Posts
	// Handshakes sends each GET for / by HTTP/1.1 on a connection of its own, over TLS.
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
	Frames  int            // frames that were sent; the sockets' buffers may hold some hundred kilobytes that the server hasn't read
	Streams int            // opened
	Answers int            // with any status
	Resets  map[string]int // RST_STREAM received, by code
	Pings   int            // PINGs that the server has answered
	// MaxStreams is the server's SETTINGS_MAX_CONCURRENT_STREAMS, 0 for none.
	MaxStreams int
	// Ended counts, by the kind of end, the connections that the server has ended, or on which it has ended all streams.
	Ended map[string]int
	// Endless counts the attackers that have never lost a connection.
	Endless int
	// Longest is the longest time that the server took to end a connection, or the streams begun there. LongestFrames counts the frames
	// that were sent until then. With GOAWAY, the connection counts as ended when that arrives.
	LongestFrames int
	Longest       time.Duration
	// NotOK counts answers whose status isn't 200.
	NotOK int
	// Wrong is the first violation by the server, such as frames that can't be read or fields that can't be decoded; "" for none.
	Wrong string
}

// Run attacks the server that dial connects to until ctx is done.
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

// attack attacks by one connection after the other, and reports whether one has been ended.
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

// attackBy attacks by one connection, and reports whether the server has ended it.
func (a *Attack) attackBy(ctx context.Context, nc net.Conn, sum *summing) bool {
	if a.plain != nil {
		return sum.addRaw(runRaw(ctx, nc, a.plain))
	}
	c := newConn(ctx, nc, a.manner)
	a.run(c)
	if ctx.Err() == nil && !c.finished() {
		// Nothing can be sent any more, and the reading goroutine is about to get the error.
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

// add adds a connection that is over, and reports whether the server has ended it.
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

// endedLocked counts the end of a connection, if by says how the server has ended it.
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

// Judge returns what is wrong with the server's reaction to the attack, "" if nothing is. timeouts says that the attack has lasted longer
// than the server's time-outs.
func (a *Attack) Judge(f *Figure, timeouts bool) string {
	ended := -f.Ended["GOAWAY "+http2.NoError.String()] // a server may limit the number of requests of a connection
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
