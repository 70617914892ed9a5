package standin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync"

	"github.com/filohttp/filo"
)

// HTTP2 is a server that speaks HTTP/2 with the handler and the settings of an http.Server.
type HTTP2 interface {
	// Serve serves connections without TLS. Clients begin with the preface of HTTP/2, as they know that the server speaks it.
	Serve(net.Listener) error
	// ServeTLS negotiates HTTP/2 by ALPN. The certificate is one of the http.Server's TLSConfig, so the names are empty.
	ServeTLS(listener net.Listener, certFile, keyFile string) error
	// ServeConn serves one connection until it has ended. Unless it is a *tls.Conn, it is like one of Serve.
	ServeConn(net.Conn) error
	Shutdown(context.Context) error
	Close() error
}

// native says that net/http's own server is run in the place of filo's.
var native = os.Getenv("FOREIGN_NATIVE") != ""

// NewHTTP2 returns the server that the suites for HTTP/2 test: filo's, or net/http's if that is to be compared with.
func NewHTTP2(s *http.Server) HTTP2 {
	markReached()
	if native {
		return newNetHTTP(s)
	}
	p := newPart(s, new(standIn), nil)
	speakHTTP2(&p.Server, s.HTTP2)
	return &p.Server
}

// netHTTP is a server of net/http.
type netHTTP struct{ *http.Server }

// newNetHTTP returns a server with the settings of s. It isn't s itself, for which another server may have been registered.
func newNetHTTP(s *http.Server) netHTTP {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return netHTTP{&http.Server{
		Handler: s.Handler, TLSConfig: s.TLSConfig, ReadTimeout: s.ReadTimeout, ReadHeaderTimeout: s.ReadHeaderTimeout,
		WriteTimeout: s.WriteTimeout, IdleTimeout: s.IdleTimeout, MaxHeaderBytes: s.MaxHeaderBytes, ConnState: s.ConnState,
		ErrorLog: s.ErrorLog, BaseContext: s.BaseContext, ConnContext: s.ConnContext, HTTP2: s.HTTP2, Protocols: protocols,
	}}
}

// ServeConn implements HTTP2.
func (n netHTTP) ServeConn(conn net.Conn) error {
	ended := make(chan struct{})
	once := sync.OnceFunc(func() { close(ended) })
	told := n.ConnState
	n.ConnState = func(conn net.Conn, state http.ConnState) {
		if told != nil {
			told(conn, state)
		}
		if state == http.StateClosed {
			once()
		}
	}
	n.Serve(&oneConn{conn: conn})
	<-ended
	return nil
}

// oneConn is a listener that accepts one connection.
type oneConn struct{ conn net.Conn }

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, errOneConn
	}
	conn := l.conn
	l.conn = nil
	return conn, nil
}

var errOneConn = errors.New("standin: the one connection was accepted")

// Close implements net.Listener.
func (l *oneConn) Close() error { return nil }

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// speakHTTP2 makes a server speak HTTP/2, with and without TLS. The config may be nil.
func speakHTTP2(s *filo.Server, config *http.HTTP2Config) {
	// The fields are found by name, so that this compiles with a filo that doesn't have them.
	fields := reflect.ValueOf(s).Elem()
	clear := fields.FieldByName("UnencryptedHTTP2")
	if !clear.IsValid() {
		panic("this filo doesn't speak HTTP/2: filo.Server has no field UnencryptedHTTP2")
	}
	clear.SetBool(true)
	if most := fields.FieldByName("MaxConcurrentStreams"); most.IsValid() && config != nil {
		most.SetInt(int64(config.MaxConcurrentStreams))
	}
}
