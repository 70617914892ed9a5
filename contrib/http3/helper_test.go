package http3filo_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo"
	http3filo "github.com/filohttp/filo/contrib/http3"
	"github.com/filohttp/filo/internal/filotest"
)

// server serves one handler over TCP, with TLS, and over UDP on the same port.
type server struct {
	*filotest.Server
	config *filo.Server
	served chan error // Serve's result
}

// serve starts a server. Its datagrams pass through wrap, unless that is nil.
func serve(t testing.TB, config *filo.Server, wrap func(net.PacketConn) net.PacketConn) *server {
	t.Helper()
	if config.Logger == nil {
		config.Logger = filotest.Quiet
	}
	s := &server{filotest.ListenTLS(t, config), config, make(chan error, 1)}
	packets, err := net.ListenPacket("udp", s.Addr)
	if err != nil {
		t.Skipf("the port of the listener is taken for UDP: %v", err)
	}
	if wrap != nil {
		packets = wrap(packets)
	}
	go func() { s.served <- http3filo.Serve(config, packets) }()
	t.Cleanup(func() {
		config.Close()
		if err := filotest.Recv(t, s.served, "Serve's return"); !errors.Is(err, filo.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return s
}

// client returns an HTTP/3 client with a separate connection. The functions in changes may modify its TLS configuration.
func (s *server) client(t testing.TB, changes ...func(*tls.Config)) *http.Client {
	t.Helper()
	config := filotest.ClientTLS()
	for _, change := range changes {
		change(config)
	}
	transport := &http3.Transport{TLSClientConfig: config, QUICConfig: patient(nil)}
	t.Cleanup(func() { transport.Close() })
	return &http.Client{Transport: transport, Timeout: filotest.Bound}
}

// ask sends a request and returns the status and the body of the answer.
func (s *server) ask(t testing.TB, c *http.Client, method, path, body string) (*http.Response, string) {
	t.Helper()
	r, err := s.try(c, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s %s: the body: %v", method, path, err)
	}
	return r, string(b)
}

func (s *server) try(c *http.Client, method, path, body string) (*http.Response, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequest(method, "https://"+s.Addr+path, reader)
	if err != nil {
		return nil, err
	}
	return c.Do(request)
}

// raw returns a QUIC connection on which the test writes the bytes of streams itself. SETTINGS have already been sent.
func (s *server) raw(t testing.TB, config *quic.Config) *quic.Conn {
	t.Helper()
	q, err := s.dial(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.CloseWithError(0x100, "") })
	control, err := q.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	control.Write([]byte{0, 4, 0})
	return q
}

// patient sets time-outs in a client's QUIC configuration that are long enough for a busy machine.
func patient(config *quic.Config) *quic.Config {
	if config == nil {
		config = new(quic.Config)
	}
	config.HandshakeIdleTimeout, config.MaxIdleTimeout = filotest.Bound/4, 2*filotest.Bound
	return config
}

func (s *server) dial(ctx context.Context, config *quic.Config) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, filotest.Bound)
	defer cancel()
	tlsConfig := filotest.ClientTLS()
	tlsConfig.NextProtos = []string{"h3"}
	return quic.DialAddr(ctx, s.Addr, tlsConfig, patient(config))
}

// open opens a request's stream and sends bytes on it.
func open(t testing.TB, q *quic.Conn, b []byte) *quic.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), filotest.Bound)
	defer cancel()
	s, err := q.OpenStreamSync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.SetDeadline(time.Now().Add(filotest.Bound))
	s.Write(b)
	return s
}

// frame returns an HTTP/3 frame.
func frame(kind byte, content []byte) []byte {
	b := []byte{kind, 0x80, 0, byte(len(content) >> 8), byte(len(content))}
	return append(b, content...)
}

// head returns a HEADERS frame of a request, without Huffman codes.
func head(method, path string, fields ...string) []byte {
	block := []byte{0, 0}
	literal := func(name, value string) {
		block = append(block, 0x27, byte(len(name)-7)) // a name of 7 bytes or more
		block = append(block, name...)
		if len(value) < 127 {
			block = append(block, byte(len(value)))
		} else {
			n := len(value) - 127
			block = append(block, 0x7f)
			for ; n >= 128; n >>= 7 {
				block = append(block, byte(n)|0x80)
			}
			block = append(block, byte(n))
		}
		block = append(block, value...)
	}
	literal(":method", method)
	literal(":scheme", "https")
	literal(":authority", "filo.test")
	block = append(block, 0x51, byte(len(path))) // refers to :path in the static table
	block = append(block, path...)
	for i := 0; i < len(fields); i += 2 {
		literal(fields[i], fields[i+1])
	}
	return frame(1, block)
}
