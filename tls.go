package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/clientcert"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/internal/target"
)

var (
	errNoCertificate = errors.New("filo: TLS without a certificate: neither certFile and keyFile are given, " +
		"nor has Server.TLSConfig Certificates, GetCertificate or GetConfigForClient")
	// errPlainHTTP has the text of net/http, which is easy to search for.
	errPlainHTTP = Error(400, "Client sent an HTTP request to an HTTPS server.")
)

// tlsConfig returns the server's TLS configuration, with the certificate from the files.
func (s *Server) tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	config := s.TLSConfig.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if certFile != "" || keyFile != "" {
		certificate, err := loadCertificate(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = append(config.Certificates, certificate)
	}
	if len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return nil, errNoCertificate
	}
	config.NextProtos = s.protocols(config.NextProtos)
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil || chosen == nil {
				return chosen, err
			}
			protocols := s.protocols(chosen.NextProtos)
			if slices.Equal(protocols, chosen.NextProtos) {
				return chosen, nil
			}
			chosen = chosen.Clone() // another server may use it, too
			chosen.NextProtos = protocols
			return chosen, nil
		}
	}
	return config, nil
}

// loadCertificate reads a certificate and its key. An error says which of the two it is about.
func loadCertificate(certFile, keyFile string) (tls.Certificate, error) {
	if certFile == "" || keyFile == "" {
		return tls.Certificate{}, fmt.Errorf("filo: certFile is %q and keyFile is %q: one needs the other", certFile, keyFile)
	}
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("filo: certFile can't be read: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("filo: keyFile can't be read: %w", err)
	}
	certificate, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("filo: certFile %s with keyFile %s: %w", certFile, keyFile, err)
	}
	return certificate, nil
}

// protocols returns the protocols that a TLS configuration with these NextProtos offers: those that the program names, and all protocols that the
// server supports if the program names none of these. A list may name only "acme-tls/1", as net/http completes the list. If HTTP/2 is disabled,
// it leaves h2 out, since a client that is offered h2 would use it.
func (s *Server) protocols(configured []string) []string {
	offered := configured
	if !slices.Contains(offered, "h2") && !slices.Contains(offered, "http/1.1") {
		offered = append(slices.Clone(offered), "h2", "http/1.1")
	}
	if s.HTTP2.Disabled {
		offered = slices.DeleteFunc(slices.Clone(offered), func(protocol string) bool { return protocol == "h2" })
		if len(offered) == 0 {
			return []string{"http/1.1"}
		}
	}
	return offered
}

// handshake performs the handshake of a TLS connection, within the time for a head (headTimeout). It reports false if the handshake has failed.
func (s *Server) handshake(c *conn) bool {
	tlsConn, ok := c.netConn.(*tls.Conn)
	if !ok {
		return true
	}
	ctx := s.life.Handshaking
	if timeout := c.headTimeout(); timeout > 0 {
		if c.headSince != 0 {
			timeout -= s.clock.Now().Sub(c.headSince) // minus the time since the client's first byte
			timeout = max(timeout, min(leastHandshakeTime, s.config.readHeaderTimeout))
		}
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		due := time.Now().Add(timeout)
		defer time.AfterFunc(timeout, func() {
			if time.Since(due) > pausedTime { // the process was paused; bytes that arrived in the pause are in time, and about to be read
				select {
				case <-ctx.Done():
				case <-time.After(leastHandshakeTime):
				}
			}
			cancel(context.DeadlineExceeded)
		}).Stop()
	}
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		if errors.Is(err, context.Canceled) && context.Cause(ctx) == context.DeadlineExceeded {
			err = context.DeadlineExceeded
		}
		if s.LogAllErrors {
			s.logger().Warn("TLS handshake failed", "error", syntax.LoggedError(err), "remote", fmt.Sprint(c.remoteAddr()))
		}
		s.countHandshake(tlsConn, err)
		s.answerPlainHTTP(c, err)
		return false
	}
	state := tlsConn.ConnectionState()
	c.tlsState = &state
	return true
}

const (
	// leastHandshakeTime is the least time that a handshake gets once its hello has arrived, and after a pause of the process.
	leastHandshakeTime = time.Second
	// pausedTime is how late a timer must be for the server to conclude that the process was paused.
	pausedTime = 20 * time.Millisecond
)

// countHandshake counts a handshake that has failed with err.
func (s *Server) countHandshake(tlsConn *tls.Conn, err error) {
	left := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	switch silent := tlsConn.ConnectionState().Version == 0; {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		s.counts.timeouts.handshake.Add(1)
	case !(left && silent) && !errors.Is(err, context.Canceled): // a shutdown cancels handshakes
		s.counts.handshakeErrors.Add(1)
	}
}

// answerPlainHTTP answers a client that has sent a plain HTTP request instead of a TLS handshake, if err, the handshake's error, shows
// that. The connection then lingers, since the rest of the request may still arrive.
func (s *Server) answerPlainHTTP(c *conn, err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil {
		return
	}
	begin := string(record.RecordHeader[:])
	isHTTP := func(method string) bool { return (method + " /")[:len(begin)] == begin }
	if !slices.ContainsFunc(syntax.Methods[:], isHTTP) {
		return
	}
	// The socket's buffer is empty, and takes the answer at once.
	record.Conn.SetWriteDeadline(time.Now().Add(linger.Longest))
	if _, err := record.Conn.Write(s.appendRefusal(nil, errPlainHTTP, &refusalFields, begin == "HEAD ")); err == nil {
		s.counts.refusalAnswers[errPlainHTTP.Status/100].Add(1)
		c.setClosing(closingLinger)
	}
}

// errMisdirected answers a request for a host that demands a client certificate that this connection's handshake didn't demand. A browser
// sends requests for every host of the server's certificate on one connection, and any client can name a host other than the one in its
// handshake.
var errMisdirected = Error(421, "the connection was opened for another host")

// directed returns errMisdirected if the request's host isn't the one that its TLS connection was opened for, and GetConfigForClient
// demands another client certificate for that host. GetConfigForClient is asked for both hosts now, since its demands may have changed
// since the handshake.
func (x *exchange) directed(r *Request) error {
	s, state := x.server, x.tlsState
	if state == nil || s.TLSConfig == nil || s.TLSConfig.GetConfigForClient == nil {
		return nil
	}
	if name, _ := target.CutPort(r.HostBytes()); syntax.EqualFold(name, state.ServerName) {
		return nil
	}
	if clientcert.Differs(s.TLSConfig, state, r.URI().Hostname(), helloConn{wire: x.wire}) {
		return errMisdirected
	}
	return nil
}

// helloConn is the connection of a ClientHelloInfo. Only its addresses can be used.
type helloConn struct {
	net.Conn
	wire wire
}

func (c helloConn) LocalAddr() net.Addr  { return c.wire.localAddr() }
func (c helloConn) RemoteAddr() net.Addr { return c.wire.remoteAddr() }
