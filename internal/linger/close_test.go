package linger

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// stubSocket is a Socket that records its calls.
type stubSocket struct {
	net.Conn
	calls []string
}

func (s *stubSocket) Cut() error {
	s.calls = append(s.calls, "Cut")
	return nil
}

func (s *stubSocket) CloseSocket() {
	s.calls = append(s.calls, "CloseSocket")
	s.Conn.Close()
}

func (s *stubSocket) Close() error { return s.Cut() }

// Only the owner closes the file descriptor of a Socket, with Close. Other goroutines end the connection with Cut, even under TLS.
func TestSocket(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(net.Conn) error
		tls  bool
		want []string
	}{
		{"Cut", Cut, false, []string{"Cut"}},
		{"Cut with TLS", Cut, true, []string{"Cut"}},
		{"Close", Close, false, []string{"CloseSocket"}},
		{"Close with TLS", Close, true, []string{"Cut", "CloseSocket"}}, // crypto/tls itself calls Close, which the stub records as Cut
	} {
		t.Run(test.name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			defer server.Close()
			socket := &stubSocket{Conn: server}
			var netConn net.Conn = socket
			if test.tls {
				netConn = tls.Server(socket, &tls.Config{})
			}
			if err := test.end(netConn); err != nil {
				t.Error(err)
			}
			if !slices.Equal(socket.calls, test.want) {
				t.Errorf("called %q, want %q", socket.calls, test.want)
			}
		})
	}
}

// testCertificate returns a self-signed certificate.
func testCertificate(t *testing.T) tls.Certificate {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// silentTLS returns a server's TLS connection after the handshake. Its client reads nothing any more.
func silentTLS(t *testing.T) *tls.Conn {
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	config := &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}}
	tlsConn := tls.Server(server, config)
	shaken := make(chan error, 1)
	go func() { shaken <- tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	if err := errors.Join(tlsConn.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return tlsConn
}

// crypto/tls alone would wait five seconds to send its close alert to a client that doesn't read.
func TestCloseTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tlsConn, start := silentTLS(t), time.Now()
		Close(tlsConn)
		if took := time.Since(start); took != Longest {
			t.Errorf("Close took %v, want %v", took, Longest)
		}
		if _, err := tlsConn.NetConn().Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection is still open: %v", err)
		}
	})
}

// Cut doesn't wait: a TLS connection ends without its close alert.
func TestCutTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tlsConn, start := silentTLS(t), time.Now()
		Cut(tlsConn)
		if took := time.Since(start); took > 0 {
			t.Errorf("Cut took %v", took)
		}
		if _, err := tlsConn.NetConn().Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection is still open: %v", err)
		}
	})
}

// A client can tell a truncated answer from a complete one: it gets a reset, also over TLS.
func TestResetOnClose(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			client, server := socketPair(t)
			var netConn net.Conn = server
			if secure {
				netConn = tls.Server(server, &tls.Config{})
			}
			ResetOnClose(netConn)
			Close(netConn)
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client got %v", err)
			}
		})
	}
}
