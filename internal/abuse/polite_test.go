package abuse

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

const politeRate = 2000

// measure returns the figure of a polite client's requests until done is closed.
func measure(t *testing.T, dial func() (net.Conn, error), done <-chan struct{}) PhaseFigure {
	t.Helper()
	p, err := StartClient(HTTP2, dial, politeRate)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	return phaseUntil(t, p, done).Figure()
}

// phaseUntil returns the client's first phase, which has all requests but that of StartClient itself. It ends when done is closed.
func phaseUntil(t *testing.T, p *Polite, done <-chan struct{}) *Phase {
	t.Helper()
	p.mu.Lock()
	phase := p.phase
	p.mu.Unlock()
	select {
	case <-done:
	case <-time.After(bound):
		t.Error("what the test waits for hasn't happened")
	}
	p.Begin()
	return phase
}

// after returns a handler that calls h with the number of each request, and a channel that is closed at the n-th request.
func after(n int64, h func(i int64, w http.ResponseWriter)) (http.Handler, <-chan struct{}) {
	var count atomic.Int64
	done := make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i := count.Add(1)
		if i == n {
			close(done)
		}
		h(i, w)
	}), done
}

// A correct server causes no errors, even if it limits the number of a connection's requests.
func TestPolite(t *testing.T) {
	h, done := after(1000, func(i int64, w http.ResponseWriter) {
		if i%97 == 0 {
			w.Header().Set("Connection", "close") // over HTTP/2, net/http's server then sends GOAWAY with NO_ERROR
		}
		io.WriteString(w, strings.Repeat("Hello, World! ", 100)) // all answers together are larger than the connection's window
	})
	l := newListening(t)
	serveSite(t, l, h)
	f := measure(t, l.dial, done)
	if f.Errors != 0 || f.Answers < 900 || f.P50 <= 0 || f.P99 < f.P50 || f.Max < f.P99 {
		t.Errorf("%+v", f)
	}
	if l.mu.Lock(); len(l.conns) < 6 {
		t.Errorf("%d connections", len(l.conns))
	}
	l.mu.Unlock()
}

// Each way to fail a request counts as an error.
func TestPoliteErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		first string // a text that the first error must contain
		h     func(w http.ResponseWriter)
	}{
		{"status", "500", func(w http.ResponseWriter) { w.WriteHeader(500) }},
		{"body", "Goodbye", func(w http.ResponseWriter) { io.WriteString(w, "Goodbye") }},
		{"reset", "INTERNAL_ERROR", func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, done := after(400, func(i int64, w http.ResponseWriter) {
				if i%100 == 0 {
					test.h(w)
					return
				}
				io.WriteString(w, "Hello, World!")
			})
			l := newListening(t)
			serveSite(t, l, h)
			f := measure(t, l.dial, done)
			if f.Errors < 3 || f.Answers < 300 || f.First == nil || !strings.Contains(f.First.Error(), test.first) {
				t.Errorf("%+v", f)
			}
		})
	}
	t.Run("connection", func(t *testing.T) {
		var n atomic.Int64
		done := make(chan struct{})
		l := newListening(t)
		serveScripted(t, l, func(nc net.Conn, f *http2.Frame) error {
			if f.Type != http2.FrameHeaders {
				return nil
			}
			switch i := n.Add(1); {
			case i == 400:
				close(done)
			case i%100 == 0:
				return errClosed
			}
			nc.Write(appendHeaders(nil, f.Stream, []byte("\x88"), true))
			return nil
		})
		f := measure(t, l.dial, done)
		// The first error's text depends on what net/http's client was doing when the connection ended: reading, writing or waiting.
		if f.Errors < 3 || f.Answers < 200 || f.First == nil {
			t.Errorf("%+v", f)
		}
	})
}

// A stall counts for each request that was due during the stall, although the client has sent only a few of them.
func TestPoliteStall(t *testing.T) {
	const stall = 300 * time.Millisecond
	var end atomic.Pointer[time.Time]
	h, done := after(politeRate/3, func(i int64, w http.ResponseWriter) {
		if i == 2 { // the first request is StartClient's own
			at := time.Now().Add(stall)
			end.Store(&at)
		}
		if at := end.Load(); at != nil {
			time.Sleep(time.Until(*at))
		}
	})
	l := newListening(t)
	serveSite(t, l, h)
	p, err := StartClient(HTTP2, l.dial, politeRate)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	phase := phaseUntil(t, p, done)
	f, slow := phase.Figure(), 0
	for _, took := range phase.times {
		if took >= stall/10 {
			slow++
		}
	}
	// Most of the 600 requests that were due during the stall have waited for at least a tenth of it. How many came later depends on the machine.
	if f.Errors != 0 || f.Max < stall*9/10 || slow < 500 {
		t.Errorf("%+v, and %d were slow", f, slow)
	}
}

// StartClient fails if the server doesn't answer with 200.
func TestPoliteStart(t *testing.T) {
	l := newListening(t)
	serveSite(t, l, http.NotFoundHandler())
	if p, err := StartClient(HTTP2, l.dial, politeRate); err == nil {
		p.Stop()
		t.Error("started with 404")
	}
	l = newListening(t)
	serveScripted(t, l, func(net.Conn, *http2.Frame) error { return errClosed })
	if p, err := StartClient(HTTP2, l.dial, politeRate); err == nil {
		p.Stop()
		t.Error("started without an answer")
	}
}
