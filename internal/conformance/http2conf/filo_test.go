package http2conf_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/conformance/http2conf"
	"github.com/filohttp/filo/internal/conformance/site"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/servertest"
)

// serve serves the site with the driver, over TLS if config isn't nil, and returns a function that dials the server.
func serve(t *testing.T, driver filo.Driver, config *tls.Config) func() (net.Conn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: site.Serve, Driver: driver, TLSConfig: config, HTTP2: filo.HTTP2Options{Unencrypted: config == nil}}
	served := make(chan error, 1)
	go func() {
		if config != nil {
			served <- s.ServeTLS(ln, "", "")
			return
		}
		served <- s.Serve(ln)
	}()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			s.Close()
		}
		<-served
	})
	if config == nil {
		return func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	}
	client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	return func() (net.Conn, error) { return tls.Dial("tcp", ln.Addr().String(), client) }
}

// testCertificate returns a configuration with httptest's certificate.
func testCertificate(t *testing.T) *tls.Config {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// TestMemory runs the table over in-memory connections, where every cut is exact.
func TestMemory(t *testing.T) {
	t.Parallel()
	s := servertest.NewServer(t, &filo.Server{Handler: site.Serve, HTTP2: filo.HTTP2Options{Unencrypted: true}})
	http2conf.Run(t, s.Listener.Dial)
}

// TestTCP runs the table over sockets, without TLS.
func TestTCP(t *testing.T) {
	t.Parallel()
	t.Run("loop", func(t *testing.T) { http2conf.Run(t, serve(t, filo.DriverAuto, nil)) })
	t.Run("blocking", func(t *testing.T) { http2conf.Run(t, serve(t, filo.DriverBlocking, nil)) })
}

// TestTLS runs the table over TLS, without cuts, because TestTCP has them.
func TestTLS(t *testing.T) {
	t.Parallel()
	t.Run("loop", func(t *testing.T) { http2conf.RunWhole(t, serve(t, filo.DriverAuto, testCertificate(t))) })
	t.Run("blocking", func(t *testing.T) { http2conf.RunWhole(t, serve(t, filo.DriverBlocking, testCertificate(t))) })
}

const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	noFrame = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // SETTINGS without a setting
	get     = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
)

// RFC 9113, section 3.4: without TLS, a server can identify HTTP/2 connections by the preface. filo treats anything else as HTTP/1.1. Over
// TLS, an invalid preface is a connection error of type PROTOCOL_ERROR.
var prefaces = []struct{ name, sent, clear, tls string }{
	{"another first byte", "X" + preface[1:] + noFrame, "HTTP/1.1 505", "GOAWAY 1"},
	{"HTTP/2.1", "PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n" + noFrame, "HTTP/1.1 505", "GOAWAY 1"},
	{"lower case", "pri * http/2.0\r\n\r\nsm\r\n\r\n" + noFrame, "HTTP/1.1 400", "GOAWAY 1"},
	{"without SM", "PRI * HTTP/2.0\r\n\r\n\r\n\r\n\r\n\r\n" + noFrame, "HTTP/1.1 505", "GOAWAY 1"},
	{"another last byte", preface[:23] + "\r" + noFrame, "HTTP/1.1 505", "GOAWAY 1"},
	{"with a field", "PRI * HTTP/2.0\r\nHost: a\r\n\r\n" + noFrame, "HTTP/1.1 505", "GOAWAY 1"},
	{"none, but SETTINGS", noFrame, "HTTP/1.1 400", "GOAWAY 1"},
	{"TLS inside TLS", "\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03abcdefghijklmnopqrstuvwxyz", "HTTP/1.1 400", "GOAWAY 1"},
	{"GET by HTTP/1.1", get, "HTTP/1.1 200", "GOAWAY 1"},
	{"two GETs", get + get, "HTTP/1.1 200 HTTP/1.1 200", "GOAWAY 1"},
	{"a method like the preface's", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\r\n" + preface, "HTTP/1.1 200", "GOAWAY 1"},
	{"GET, and then the preface", get + preface + noFrame, "HTTP/1.1 200 HTTP/1.1 505", "GOAWAY 1"},
}

// The server refuses anything but the preface, even if it arrives in two parts. Without TLS, it is cut at every byte.
func TestPreface(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loop": filo.DriverAuto, "blocking": filo.DriverBlocking} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				t.Parallel()
				var config *tls.Config
				if secure {
					config = testCertificate(t)
				}
				dial := serve(t, driver, config)
				for _, p := range prefaces {
					want := p.clear
					if secure {
						want = p.tls
					}
					for cut := range p.sent {
						if got := answerTo(t, dial, p.sent[:cut], p.sent[cut:]); got != want {
							t.Errorf("%s, cut at %d: %q, want %q", p.name, cut, got, want)
						}
						if secure || testing.Short() || race.Enabled {
							break
						}
					}
				}
				// The server must not take a part of the preface for a request, even if the connection ends after it.
				for n := range len(preface + noFrame) {
					if got := answerTo(t, dial, (preface + noFrame)[:n]); strings.Contains(got, " 200") {
						t.Errorf("%d bytes of the preface: %q", n, got)
					}
				}
			})
		}
	}
}

var statusLine = regexp.MustCompile(`HTTP/1\.1 \d+`)

// answerTo sends the parts on a new connection, ends the client's side, and describes the server's answer: the statuses of HTTP/1.1, or
// GOAWAY's code.
func answerTo(t *testing.T, dial func() (net.Conn, error), parts ...string) string {
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	for _, part := range parts {
		if part != "" {
			io.WriteString(conn, part)
			time.Sleep(time.Millisecond)
		}
	}
	conn.(interface{ CloseWrite() error }).CloseWrite()
	came, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection doesn't end")
	}
	if statuses := statusLine.FindAllString(string(came), -1); statuses != nil {
		return strings.Join(statuses, " ")
	}
	for b := came; len(b) >= 9; {
		end := min(len(b), 9+int(b[0])<<16+int(b[1])<<8+int(b[2]))
		if b[3] == 0x7 {
			return fmt.Sprint("GOAWAY ", binary.BigEndian.Uint32(b[13:]))
		}
		b = b[end:]
	}
	return ""
}
