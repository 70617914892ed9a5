//go:build race

package http2conn

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// steppedConn is a connection whose received bytes a test provides.
type steppedConn struct {
	*Conn
	t    *testing.T
	turn *Turn
	next uint32 // the number of the next stream
}

// steppedDriver accepts everything that is sent, and calls onSend first.
type steppedDriver struct {
	silentDriver
	onSend func()
}

func (d *steppedDriver) Send([]byte) bool {
	if f := d.onSend; f != nil {
		d.onSend = nil
		f()
	}
	return false
}
func (*steppedDriver) Flushed()                         {}
func (*steppedDriver) Bodies() *atomic.Int64            { return new(atomic.Int64) }
func (*steppedDriver) StreamFailed(uint32, http2.Fault) {}

func newSteppedConn(t *testing.T) *steppedConn {
	c := &steppedConn{Conn: New(newShared(), new(steppedDriver), nil, nil), t: t, turn: &Turn{In: new(http1.Input)}, next: 1}
	c.BeginTurn(c.turn)
	c.come([]byte(http2.Preface))
	c.come(http2.AppendFrameHeader(nil, 0, http2.FrameSettings, 0, 0))
	return c
}

// come makes the connection read b from the client, and returns the last step.
func (c *steppedConn) come(b []byte) (step Step) {
	c.Received(c.turn, c.turn.In.Space(), copy(c.turn.In.Space(), b))
	for step = StepNext; step == StepNext; {
		step = c.Next(c.turn)
	}
	return step
}

// request begins a request. Unless whole is set, the request isn't complete, and its client may send more.
func (c *steppedConn) request(whole bool) *Stream {
	b := append(http2.BeginHeaders(nil), 0x83, 0x84, 0x86, 0x41, 1, 'a') // POST http://a/
	step := c.come(http2.EndHeaders(b, 0, c.next, whole))
	if c.next += 2; step != StepRun {
		c.t.Fatal("no handler runs")
	}
	return c.turn.Stream
}

// shut closes the client's windows for streams that are opened later.
func (c *steppedConn) shut() {
	c.come(append(http2.AppendFrameHeader(nil, 6, http2.FrameSettings, 0, 0), 0, 4, 0, 0, 0, 0))
}

// open opens the client's window for s.
func (c *steppedConn) open(s *Stream) { c.come(http2.AppendWindowUpdate(nil, s.id, 1000)) }

func (c *steppedConn) reset(s *Stream) { c.come(http2.AppendReset(nil, s.id, http2.Cancel)) }

func (c *steppedConn) sends(f func()) {
	c.driver.(*steppedDriver).onSend = f
	c.FlushTurn(c.turn)
}

// park begins a request and parks its stream.
func (c *steppedConn) park() *StreamConn {
	s, out := c.request(false), new(outbox.Outbox)
	out.Open(servedOwner{make(chan struct{}, 2)}, (*StreamConn)(s), nil, false)
	out.OnStream()
	s.Begin(emptyAnswer(), false, false)
	if err := s.Park(out); err != nil {
		c.t.Fatal(err)
	}
	return (*StreamConn)(s)
}

func (c *steppedConn) tunnel() *Tunnel {
	s := c.request(false)
	s.Begin(emptyAnswer(), false, false)
	tunnel, err := s.Take()
	if err != nil {
		c.t.Fatal(err)
	}
	return tunnel
}

// read begins to read the body on another goroutine, and returns when that goroutine waits.
func (c *steppedConn) read(s *Stream) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		s.Read(make([]byte, 10), &Reading{Until: new(clock.Time), Pace: new(pace.Pace), Fills: true})
	}()
	synctest.Wait()
	return done
}

// leave makes the connection send the first GOAWAY.
func (c *steppedConn) leave() {
	c.requests.Store(1)
	c.CloseSoon()
	c.come(nil)
}

func emptyAnswer() *Answer { return &Answer{Status: 200, Fields: new(field.List), Length: -1} }

func wholeAnswer() *Answer {
	a := emptyAnswer()
	a.Body = []byte("body")
	return a
}

var pong = http2.AppendPing(nil, http2.FlagAck, [8]byte{})

// Each step that the tables allow does occur.
func TestEachStep(t *testing.T) {
	var mu sync.Mutex
	taken := make(map[string]bool)
	race.Entered = func(from, to any) {
		mu.Lock()
		defer mu.Unlock()
		taken[fmt.Sprintf("%T %d to %d", from, from, to)] = true
	}
	defer func() { race.Entered = nil }()
	for name, steps := range map[string]func(c *steppedConn){
		"an answer without content": func(c *steppedConn) { c.request(true).Answer(c.turn, emptyAnswer()) },
		"an early answer": func(c *steppedConn) {
			s := c.request(false)
			s.Answer(nil, wholeAnswer())
			c.Flush()
			c.reset(s)
		},
		"a streamed answer": func(c *steppedConn) {
			s := c.request(false)
			s.Begin(emptyAnswer(), false, false)
			s.Finish(nil)
		},
		"a streamed answer that the client gives up": func(c *steppedConn) {
			s := c.request(false)
			s.Begin(emptyAnswer(), false, false)
			c.reset(s)
		},
		"a request that the client gives up": func(c *steppedConn) { c.reset(c.request(false)) },
		"answers that wait for a window": func(c *steppedConn) {
			c.shut()
			for _, then := range []func(s *Stream){c.open, c.reset} {
				s := c.request(false)
				s.Answer(nil, wholeAnswer())
				s.EndHandler(c.turn)
				then(s)
				c.Flush()
			}
		},
		"a body": func(c *steppedConn) {
			s := c.request(false)
			done := c.read(s)
			c.come(http2.AppendData(nil, s.id, []byte("some"), false))
			c.WakePutOff(c.turn)
			<-done
		},
		"a late body": func(c *steppedConn) {
			for _, look := range []func(){c.HasLooked, func() {}} {
				done := c.read(c.request(false))
				for !c.IsLookAsked() {
					time.Sleep(time.Second / 10)
				}
				look()
				<-done
			}
		},
		"nothing to send":        func(c *steppedConn) { c.Close(); c.Close() },
		"the end while it sends": func(c *steppedConn) { c.sends(c.Close) },
		"an owner that waits for what is sent": func(c *steppedConn) {
			c.sends(func() { c.IsFlushed(); c.IsFlushed() })
			c.come(http2.AppendPing(nil, 0, [8]byte{}))
			c.sends(func() { c.IsFlushed(); c.Close() })
		},
		"the end of the input":           func(c *steppedConn) { c.Stop(); c.Stop() },
		"GOAWAY":                         func(c *steppedConn) { c.leave(); c.come(pong) },
		"GOAWAY without an answer":       func(c *steppedConn) { c.leave(); time.Sleep(goAwayTime); c.come(nil) },
		"GOAWAY at the end of the input": func(c *steppedConn) { c.leave(); c.Stop() },
		"an answered GOAWAY at the end of the input": func(c *steppedConn) {
			c.leave()
			c.Received(c.turn, c.turn.In.Space(), copy(c.turn.In.Space(), pong))
			c.Next(c.turn)
			c.Stop()
		},
		"a parked stream": func(c *steppedConn) {
			s := c.park()
			s.Wake()
			s.Rest(false) // returns false, since the stream was woken
			s.Rest(false)
			s.Wake()
			s.Rest(true)
			s.Wake()
			s.Wake()
			s.EndParked(false)
			c.park().EndParked(true)
		},
		"a parked stream that is closed": func(c *steppedConn) {
			s := c.park()
			s.Close()
			s.EndParked(false)
			s = c.park()
			s.Extended = true
			s.Rest(false)
			s.Close()
		},
		"tunnels": func(c *steppedConn) {
			tunnel := c.tunnel()
			tunnel.CloseWrite()
			tunnel.Close()
			c.tunnel().Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { steps(newSteppedConn(t)) })
		})
	}
	for _, step := range slices.Concat(stepsOf(lifeEnding), stepsOf(outputClosed), stepsOf(sendingLost),
		stepsOf(readerAsks), stepsOf(awaitsWindow), stepsOf(tunnelClosed), stepsOf(parkOver)) {
		if !taken[step] {
			t.Errorf("%s never happens", step)
		}
	}
}

// stepsOf returns the steps that the table of type S allows. last is the last state of S.
func stepsOf[S race.State](last S) (steps []string) {
	for from := range last + 1 {
		for to := range 8 {
			if from.Next()>>to&1 != 0 {
				steps = append(steps, fmt.Sprintf("%T %d to %d", from, from, to))
			}
		}
	}
	return steps
}
