// Package standin serves the handlers of http.Servers by filo, through adaptor.FromHTTP. Others' test suites import it, in
// modules that internal/foreign makes: there http.Server calls Servers.
package standin

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// Servers are the http.Servers of a process, and what serves in their place.
type Servers struct {
	mu  sync.Mutex
	all map[*http.Server]*standIn // guarded by mu
}

// standIn serves in the place of one http.Server.
type standIn struct {
	keepAlivesOff atomic.Bool

	mu    sync.Mutex
	down  bool // Shutdown or Close was called; guarded by mu
	parts []*part
}

// part is a server of filo for one listener.
type part struct {
	filo.Server
	of *http.Server

	mu    sync.Mutex
	begun uint64 // connections; guarded by mu
	open  int    // of them; guarded by mu
	ended bool   // Serve has returned; guarded by mu
}

// reached is the file whose existence says that a test has reached a server of filo.
var reached = os.Getenv("FOREIGN_REACHED")

// blocking says that the servers have the blocking driver. FILO_DRIVER would do so as well, and log it, which tests take for a fault.
var blocking = os.Getenv("FOREIGN_DRIVER") == "blocking"

func (all *Servers) get(s *http.Server) *standIn {
	all.mu.Lock()
	defer all.mu.Unlock()
	in := all.all[s]
	if in == nil {
		if all.all == nil {
			all.all = make(map[*http.Server]*standIn)
		}
		in = new(standIn)
		all.all[s] = in
	}
	return in
}

// Serve serves a listener until it fails, or Shutdown or Close is called.
func (all *Servers) Serve(s *http.Server, l net.Listener) error {
	if reached != "" {
		os.WriteFile(reached, nil, 0o644)
	}
	in := all.get(s)
	p := newPart(s, in, l)
	in.mu.Lock()
	if in.down {
		in.mu.Unlock()
		l.Close()
		return http.ErrServerClosed
	}
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
	p.end()
	in.mu.Lock()
	down := in.down
	in.mu.Unlock()
	if down || errors.Is(err, filo.ErrServerClosed) {
		return http.ErrServerClosed
	}
	return err
}

// Shutdown implements that of http.Server.
func (all *Servers) Shutdown(s *http.Server, ctx context.Context) error {
	return all.get(s).stop(func(p *part) error { return p.Server.Shutdown(ctx) })
}

// Close implements that of http.Server.
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

// OwnServer reports whether s is to serve by itself: one for HTTP/2, which filo doesn't speak.
func (all *Servers) OwnServer(s *http.Server) bool {
	if p := s.Protocols; p != nil && (p.HTTP2() || p.UnencryptedHTTP2()) {
		return true
	}
	_, ok := s.TLSNextProto["h2"]
	return ok
}

// SetKeepAlivesEnabled implements that of http.Server, but for idle connections: filo has no such method, so answers say that
// the connection closes.
func (all *Servers) SetKeepAlivesEnabled(s *http.Server, on bool) {
	all.get(s).keepAlivesOff.Store(!on)
}

// newPart makes a server with the settings that are nearest to those of s, as docs/MIGRATING.md tells.
func newPart(s *http.Server, in *standIn, l net.Listener) *part {
	p := &part{of: s}
	unlimited := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	p.Name = "-"
	p.ReadTimeout, p.WriteTimeout = unlimited(s.ReadTimeout), unlimited(s.WriteTimeout)
	p.ReadHeaderTimeout, p.IdleTimeout = unlimited(s.ReadHeaderTimeout), unlimited(s.IdleTimeout)
	if s.ReadHeaderTimeout == 0 {
		p.ReadHeaderTimeout = p.ReadTimeout
	}
	if s.IdleTimeout == 0 {
		p.IdleTimeout = p.ReadTimeout
	}
	p.MinTransferRate = -1
	p.MaxHeaderBytes = s.MaxHeaderBytes
	if p.MaxHeaderBytes <= 0 {
		p.MaxHeaderBytes = http.DefaultMaxHeaderBytes
	}
	p.MaxRequestLineBytes = p.MaxHeaderBytes
	p.MaxHeaderFields, p.MaxBodyBytes = -1, -1
	p.LogAllErrors = true
	p.Logger = slog.New(&logHandler{of: s})
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
		if in.keepAlivesOff.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	}))
	return p
}

// states are the names that net/http has for filo's.
var states = map[filo.ConnState]http.ConnState{
	filo.StateNew: http.StateNew, filo.StateActive: http.StateActive, filo.StateIdle: http.StateIdle,
	filo.StateHijacked: http.StateHijacked, filo.StateClosed: http.StateClosed,
}

// changed tells the ConnState of net/http's server, and ends the server after its last connection.
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

// end notes that nothing more is accepted.
func (p *part) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.closeUnusedLocked()
}

// closeUnusedLocked closes the server when it has no connections left and gets no more: an http.Server needn't be closed.
func (p *part) closeUnusedLocked() {
	if !p.ended || p.open > 0 {
		return
	}
	if stats := p.Server.Stats(); p.begun == stats.ConnsAccepted-stats.ConnsRefused {
		go p.Server.Close()
	}
}

// unwrapTLS returns what a listener of crypto/tls has been made of: filo's loops accept from sockets only.
func unwrapTLS(l net.Listener) (net.Listener, *tls.Config) {
	v := reflect.ValueOf(l)
	if v.Type().String() != "*tls.listener" {
		return l, nil
	}
	config := v.Elem().FieldByName("config")
	return v.Elem().FieldByName("Listener").Interface().(net.Listener), *(**tls.Config)(unsafe.Pointer(config.UnsafeAddr()))
}

// logHandler writes records as lines.
type logHandler struct {
	of    *http.Server // whose ErrorLog gets them; one that is nil is the standard logger
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(_ context.Context, record slog.Record) error {
	var line strings.Builder
	line.WriteString(record.Message)
	write := func(a slog.Attr) bool {
		line.WriteString(" " + a.Key + "=" + a.Value.String())
		return true
	}
	for _, a := range h.attrs {
		write(a)
	}
	record.Attrs(write)
	if to := h.of.ErrorLog; to != nil { // tests set it while the server serves
		to.Print(line.String())
	} else {
		log.Print(line.String())
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.of, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
