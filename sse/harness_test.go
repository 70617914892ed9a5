package sse_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

// patience is how long a test waits for something that must happen.
const patience = time.Minute

var quiet = slog.New(slog.DiscardHandler)

// certificate is self-signed. Handshakes with its key take less time than with the key of httptest's certificate.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// host is a server under test.
type host struct {
	*filo.Server
	address string
	secure  bool
}

// each runs a test with each driver, without and with TLS.
func each(t *testing.T, handler func(t *testing.T) filo.Handler, test func(t *testing.T, h *host)) {
	for _, driver := range []filo.Driver{filo.DriverLoop, filo.DriverBlocking} {
		for _, secure := range []bool{false, true} {
			name := map[filo.Driver]string{filo.DriverLoop: "loop", filo.DriverBlocking: "blocking"}[driver]
			if secure {
				name += " TLS"
			}
			if driver == filo.DriverLoop && runtime.GOOS != "linux" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				s := &filo.Server{Handler: handler(t), Driver: driver, Logger: quiet}
				test(t, serve(t, s, secure))
			})
		}
	}
}

// serve serves on TCP until the test ends. Then no goroutine may be left.
func serve(t testing.TB, s *filo.Server, secure bool) *host {
	t.Helper()
	if s.SocketOptions.WriteBuffer == 0 {
		s.SocketOptions.WriteBuffer = 16 << 10 // so that queued bytes wait in the connection, not in the system
	}
	ln, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	// A goroutine inherits the labels of the goroutine that starts it.
	label := fmt.Sprintf("%p", s)
	go pprof.Do(context.Background(), pprof.Labels("server", label), func(context.Context) {
		if secure {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate()}}
			served <- s.ServeTLS(ln, "", "")
		} else {
			served <- s.Serve(ln)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
			s.Close()
		}
		if err := <-served; !errors.Is(err, filo.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
		poll(t, "the server's goroutines to end", func() bool {
			var goroutines strings.Builder
			pprof.Lookup("goroutine").WriteTo(&goroutines, 1)
			return !strings.Contains(goroutines.String(), fmt.Sprintf("%q:%q", "server", label))
		})
	})
	return &host{Server: s, address: ln.Addr().String(), secure: secure}
}

// poll waits until the function so returns true.
func poll(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("waited in vain for %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// serveTopics answers with the events of the topics that the path names, such as "/a,b".
func serveTopics(hub *sse.Hub) filo.Handler {
	return func(c *filo.Ctx) error {
		topics, ok := strings.CutPrefix(c.Path(), "/topics/")
		if !ok {
			return c.Text(200, "fine")
		}
		return hub.Serve(c, strings.Split(topics, ",")...)
	}
}

// client is a client that reads a stream.
type client struct {
	net.Conn
	*parser
	response *http.Response
}

// dial connects. setBuffer sets how many unread bytes the client's system buffers.
func (h *host) dial(t testing.TB) (conn net.Conn, setBuffer func(bytes int) error, err error) {
	conn, err = net.Dial("tcp", h.address)
	if err != nil {
		return nil, nil, err
	}
	setBuffer = conn.(*net.TCPConn).SetReadBuffer
	if h.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	t.Cleanup(func() { conn.Close() })
	return conn, setBuffer, conn.SetDeadline(time.Now().Add(3 * patience))
}

// ask sends a request, with fields such as "Name: value", and reads the head of its answer.
func ask(conn net.Conn, line string, fields ...string) (*client, error) {
	request := line + "\r\nHost: filo.test\r\n"
	for _, field := range fields {
		request += field + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return nil, err
	}
	method, _, _ := strings.Cut(line, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	return &client{conn, newParser(response.Body), response}, nil
}

// exchange is like ask, for the test's own goroutine: it fails the test instead of returning an error.
func exchange(t testing.TB, conn net.Conn, line string, fields ...string) *client {
	t.Helper()
	c, err := ask(conn, line, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get is like exchange, on a new connection.
func (h *host) get(t testing.TB, target string, fields ...string) *client {
	t.Helper()
	conn, _, err := h.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	return exchange(t, conn, "GET "+target+" HTTP/1.1", fields...)
}

// again disconnects a client, and subscribes again with the ID of its last event.
func (h *host) again(t testing.TB, c *client, topics string) (*client, error) {
	c.Close()
	conn, _, err := h.dial(t)
	if err != nil {
		return nil, err
	}
	return ask(conn, "GET /topics/"+topics+" HTTP/1.1", "Last-Event-ID: "+c.lastID)
}

// subscribe gets a stream of events. If lastID is "", it waits for the first ID, after which the client misses no event.
func (h *host) subscribe(t testing.TB, topics, lastID string) *client {
	t.Helper()
	if lastID != "" {
		return h.get(t, "/topics/"+topics, "Last-Event-ID: "+lastID)
	}
	c := h.get(t, "/topics/"+topics)
	if c.response.StatusCode != 200 {
		t.Fatalf("status %d", c.response.StatusCode)
	}
	if got, err := c.next(); err != nil || got.kind != "" || got.id == "" {
		t.Fatalf("the first block is %q, %v; want an id alone", got, err)
	}
	return c
}

// expect reads an event, and returns an error unless the event has this data.
func (c *client) expect(data string) error {
	got, err := c.next()
	if err == nil && got.data != data {
		err = fmt.Errorf("got %q", got)
	}
	if err != nil {
		return fmt.Errorf("wanted the data %q: %w", data, err)
	}
	return nil
}

// want is like expect, for the test's own goroutine: it fails the test instead of returning an error.
func (c *client) want(t testing.TB, data ...string) {
	t.Helper()
	for _, data := range data {
		if err := c.expect(data); err != nil {
			t.Fatal(err)
		}
	}
}

// wantEnd expects the stream to end properly, or to be aborted if broken is set.
func (c *client) wantEnd(t testing.TB, broken bool) {
	t.Helper()
	got, err := c.next()
	for err == nil && broken {
		got, err = c.next()
	}
	if (err == io.EOF) == broken {
		t.Fatalf("got %q, %v; broken off: %v", got, err, broken)
	}
}

// publish publishes an event with this data.
func publish(t testing.TB, hub *sse.Hub, topic string, data any) string {
	t.Helper()
	id, err := hub.Publish(topic, sse.Event{Data: fmt.Sprint(data)})
	if err != nil {
		t.Error(err)
	}
	return id
}
