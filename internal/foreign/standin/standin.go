// Package standin serves the handlers of http.Servers with filo, through adaptor.FromHTTP. In the modules that internal/foreign creates,
// other projects' test suites import it, and the methods of http.Server call those of Servers.
package standin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// Servers maps the http.Servers of a process to the filo servers that replace them.
type Servers struct {
	standIns sync.Map // *http.Server to *standIn
}

// standIn replaces one http.Server.
type standIn struct {
	mu            sync.Mutex // guards what follows
	down          bool       // Shutdown or Close was called
	keepAlivesOff bool
	parts         []*part
}

// part is a server of filo for one listener.
type part struct {
	filo.Server
	of *http.Server

	mu    sync.Mutex
	begun uint64 // connections; guarded by mu
	open  int    // connections that are open now; guarded by mu
	ended bool   // Serve has returned; guarded by mu
}

// reached is the name of the file that markReached creates, to record that a test has used a server of filo.
var reached = os.Getenv("FOREIGN_REACHED")

func markReached() {
	if reached != "" {
		os.WriteFile(reached, nil, 0o644)
	}
}

// blocking makes the servers use the blocking driver. The variable FILO_DRIVER would do that as well, but a server logs its use, and some
// tests fail on unexpected log records.
var blocking = os.Getenv("FOREIGN_DRIVER") == "blocking"

func (all *Servers) get(s *http.Server) *standIn {
	in, _ := all.standIns.LoadOrStore(s, new(standIn))
	return in.(*standIn)
}

// Serve serves a listener until it fails, or Shutdown or Close is called.
func (all *Servers) Serve(s *http.Server, l net.Listener) error {
	markReached()
	in := all.get(s)
	p := newPart(s, l)
	speakHTTP2(&p.Server, s.HTTP2)
	p.HTTP2.Unencrypted = s.Protocols != nil && s.Protocols.UnencryptedHTTP2()
	in.mu.Lock()
	if in.down {
		in.mu.Unlock()
		l.Close()
		return http.ErrServerClosed
	}
	p.SetKeepAlivesEnabled(!in.keepAlivesOff)
	in.parts = append(in.parts, p)
	in.mu.Unlock()
	inner, config := unwrapTLS(l)
	var err error
	if config != nil {
		p.TLSConfig = config
		err = p.ServeTLS(inner, "", "")
	} else {
		err = p.Server.Serve(l)
	}
	p.awaitNew()
	p.end()
	in.mu.Lock()
	down := in.down
	in.mu.Unlock()
	if down || errors.Is(err, filo.ErrServerClosed) {
		return http.ErrServerClosed
	}
	return err
}

// Shutdown implements http.Server's Shutdown.
func (all *Servers) Shutdown(s *http.Server, ctx context.Context) error {
	return all.get(s).stop(func(p *part) error { return p.Server.Shutdown(ctx) })
}

// Close implements http.Server's Close.
func (all *Servers) Close(s *http.Server) error {
	return all.get(s).stop(func(p *part) error { return p.Server.Close() })
}

func (in *standIn) stop(one func(*part) error) error {
	in.mu.Lock()
	in.down = true
	parts := in.parts
	in.mu.Unlock()
	var all []error
	for _, p := range parts {
		all = append(all, one(p))
	}
	return errors.Join(all...)
}

// SetKeepAlivesEnabled implements http.Server's SetKeepAlivesEnabled, except that filo doesn't close idle connections.
func (all *Servers) SetKeepAlivesEnabled(s *http.Server, on bool) {
	in := all.get(s)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keepAlivesOff = !on
	for _, p := range in.parts {
		p.SetKeepAlivesEnabled(on)
	}
}

// newPart returns a server with the settings that correspond most closely to those of s, as docs/MIGRATING.md describes.
func newPart(s *http.Server, l net.Listener) *part {
	const unlimited = -1
	p := &part{of: s}
	p.Name = "-"
	p.ReadTimeout = cmp.Or(s.ReadTimeout, unlimited)
	p.ReadHeaderTimeout = cmp.Or(s.ReadHeaderTimeout, s.ReadTimeout, unlimited)
	p.WriteTimeout = cmp.Or(s.WriteTimeout, unlimited)
	p.IdleTimeout = cmp.Or(s.IdleTimeout, s.ReadTimeout, unlimited)
	p.MinTransferRate = unlimited
	p.MaxHeaderBytes = s.MaxHeaderBytes
	if p.MaxHeaderBytes <= 0 {
		p.MaxHeaderBytes = http.DefaultMaxHeaderBytes
	}
	p.MaxRequestLineBytes = p.MaxHeaderBytes
	p.MaxHeaderFields, p.MaxBodyBytes = unlimited, unlimited
	p.LogAllErrors = true
	p.Logger = slog.New(slog.NewTextHandler(errorLog{s}, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
	if blocking {
		p.Driver = filo.DriverBlocking
	}
	p.ConnState = p.changed
	if s.BaseContext != nil || s.ConnContext != nil {
		base := context.Background()
		if s.BaseContext != nil {
			base = s.BaseContext(l)
		}
		p.ConnContext = func(conn net.Conn) context.Context {
			if s.ConnContext == nil {
				return base
			}
			return s.ConnContext(base, conn)
		}
	}
	p.Handler = adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := s.Handler
		if h == nil {
			h = http.DefaultServeMux
		}
		h.ServeHTTP(w, r)
	}))
	return p
}

// states maps filo's connection states to net/http's.
var states = map[filo.ConnState]http.ConnState{
	filo.StateNew: http.StateNew, filo.StateActive: http.StateActive, filo.StateIdle: http.StateIdle,
	filo.StateHijacked: http.StateHijacked, filo.StateClosed: http.StateClosed,
}

// changed calls the ConnState hook of the http.Server. It closes filo's server after its last connection.
func (p *part) changed(conn net.Conn, state filo.ConnState) {
	if p.of.ConnState != nil {
		p.of.ConnState(conn, states[state])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case filo.StateNew:
		p.begun++
		p.open++
	case filo.StateHijacked, filo.StateClosed:
		p.open--
		p.closeUnusedLocked()
	}
}

// awaitNew waits until ConnState has been called for each accepted connection. net/http's Serve reports a connection before it accepts the
// next one, so a test may use one WaitGroup for its connections and for Serve. With filo, the connection's worker calls ConnState, perhaps
// after Serve has returned.
func (p *part) awaitNew() {
	for range 1000 {
		p.mu.Lock()
		all := p.allBegunLocked()
		p.mu.Unlock()
		if all {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// allBegunLocked reports whether each accepted connection has been reported as new, or has been refused.
func (p *part) allBegunLocked() bool {
	stats := p.Server.Stats()
	return p.begun == stats.ConnsAccepted-stats.ConnsRefused
}

// end records that the server accepts no more connections.
func (p *part) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.closeUnusedLocked()
}

// closeUnusedLocked closes the server if it has no connection and accepts no more. Tests need not close an http.Server, so nobody else may do it.
func (p *part) closeUnusedLocked() {
	if p.ended && p.open == 0 && p.allBegunLocked() {
		go p.Server.Close()
	}
}

// unwrapTLS returns the inner listener and the configuration of a listener of crypto/tls, because filo's loops accept only from sockets.
func unwrapTLS(l net.Listener) (net.Listener, *tls.Config) {
	v := reflect.ValueOf(l)
	if v.Type().String() != "*tls.listener" {
		return l, nil
	}
	config := v.Elem().FieldByName("config")
	return v.Elem().FieldByName("Listener").Interface().(net.Listener), *(**tls.Config)(unsafe.Pointer(config.UnsafeAddr()))
}

// errorLog writes to the ErrorLog of a server, or to the standard logger if ErrorLog is nil. It reads the field for each record, because
// tests set it while the server serves.
type errorLog struct{ of *http.Server }

// Write implements io.Writer. It recovers from a panic, because a logger that writes to testing.T panics after the test has ended, when
// handlers may still run.
func (e errorLog) Write(line []byte) (int, error) {
	defer func() { recover() }()
	return len(line), cmp.Or(e.of.ErrorLog, log.Default()).Output(2, string(line))
}

// withoutTime removes the time from a record, because package log adds the time itself.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
