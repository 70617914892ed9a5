package filotest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// EachTransport runs a test over sockets, over in-memory connections, with TLS connections from the listener, and with the server's own TLS.
func EachTransport(t *testing.T, test func(t *testing.T, serve func(*filo.Server) (*Server, *Client))) {
	t.Run("socket", func(t *testing.T) {
		test(t, func(config *filo.Server) (*Server, *Client) {
			s := Serve(t, config)
			return s, s.Dial(t)
		})
	})
	t.Run("memory", func(t *testing.T) {
		test(t, func(config *filo.Server) (*Server, *Client) {
			listener := servertest.NewListener()
			s := Serve(t, config, listener)
			conn, err := listener.Dial()
			if err != nil {
				t.Fatal(err)
			}
			return s, NewClient(t, conn)
		})
	})
	EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *Server) {
		test(t, func(config *filo.Server) (*Server, *Client) {
			s := serve(t, config)
			return s, s.DialTLS(t)
		})
	})
}

// Certificate returns a self-signed certificate for filo.test and 127.0.0.1. It is created once.
var Certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "filo.test"},
		DNSNames:     []string{"filo.test"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		// A synctest bubble begins in the year 2000.
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

// ClientTLS returns a client's configuration that trusts Certificate.
func ClientTLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(Certificate().Leaf)
	return &tls.Config{RootCAs: roots, ServerName: "filo.test"}
}

// ServeTLS serves on a loopback socket, whose listener returns TLS connections.
func ServeTLS(t testing.TB, config *filo.Server) *Server {
	t.Helper()
	return Serve(t, config, tls.NewListener(Listen(t, "tcp", "127.0.0.1:0"),
		&tls.Config{Certificates: []tls.Certificate{Certificate()}, NextProtos: []string{"http/1.1"}}))
}

// EachTLS runs a test with a listener that returns TLS connections, and with the server's own TLS.
func EachTLS(t *testing.T, test func(t *testing.T, serve func(testing.TB, *filo.Server) *Server)) {
	t.Run("listener's", func(t *testing.T) { test(t, ServeTLS) })
	t.Run("server's", func(t *testing.T) { test(t, ListenTLS) })
}

// ListenTLS calls the server's ServeTLS with a loopback socket from the server's Listen, so the loop driver uses its loops. If TLSConfig is
// nil, ListenTLS sets it.
func ListenTLS(t testing.TB, config *filo.Server) *Server {
	t.Helper()
	if config.TLSConfig == nil {
		config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{Certificate()}}
	}
	s := New(config, 1)
	listener, err := config.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = listener.Addr().String()
	s.Go(func() { s.Served <- config.ServeTLS(listener, "", "") })
	s.CloseAtEnd(t, 1)
	return s
}

// DialTLS connects to the server's first listener over TLS.
func (s *Server) DialTLS(t testing.TB) *Client {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Addr, ClientTLS())
	if err != nil {
		t.Fatal(err)
	}
	return NewClient(t, conn)
}

// CertificateFiles writes Certificate and its key to files.
func CertificateFiles(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(Certificate().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: Certificate().Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// WantServesTLS waits until no connection is open, and checks that the server then serves a new one.
func (s *Server) WantServesTLS(t testing.TB) {
	t.Helper()
	// A connection ends shortly before its worker becomes free.
	Await(t, "the connections to go", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
	})
	// On a busy machine a client may be too slow for a short time-out. In that case Await tries another client.
	Await(t, "a request over TLS to be served", func() bool {
		conn, err := tls.Dial("tcp", s.Addr, ClientTLS())
		if err != nil {
			return false
		}
		c := NewClient(t, conn)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: filo.test\r\n\r\n")
		response, body, err := c.TryAnswer()
		if err != nil || response.StatusCode == 408 {
			c.Close()
			return false
		}
		if response.StatusCode != 200 || body != "quick" || response.Close {
			t.Errorf("got %d %q, close %v; want 200 \"quick\"", response.StatusCode, body, response.Close)
		}
		return true
	})
}
