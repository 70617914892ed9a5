package filo_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo"
)

// framesHTTP2 is a client that sends frames as a test wants them.
type framesHTTP2 struct {
	*http2.Framer
	out    bytes.Buffer // what the Framer has written and send hasn't sent
	conn   net.Conn
	fields bytes.Buffer
	t      testing.TB
}

func dialFramesHTTP2(t testing.TB, addr string) *framesHTTP2 {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &framesHTTP2{conn: conn, t: t}
	c.Framer = http2.NewFramer(&c.out, conn)
	c.out.WriteString(http2.ClientPreface)
	c.WriteSettings()
	return c
}

// send sends what was written.
func (c *framesHTTP2) send() {
	c.t.Helper()
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		c.t.Fatal(err)
	}
	c.out.Reset()
}

// request writes HEADERS.
func (c *framesHTTP2) request(id uint32, path string, endStream bool, fields ...string) {
	c.fields.Reset()
	e := hpack.NewEncoder(&c.fields)
	method := "GET"
	if !endStream {
		method = "POST"
	}
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "a"}} {
		e.WriteField(f)
	}
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields.Bytes(), EndStream: endStream, EndHeaders: true})
}

// Handlers that wait aren't run for a client that has left, although its requests are read one after the other.
func TestHTTP2ClientLeft(t *testing.T) {
	lifeLooped(t)
	const requests = 100
	var calls atomic.Int32
	closed := make(chan struct{})
	var once sync.Once
	listener := lifeListen(t, "tcp", "127.0.0.1:0")
	c := dialFramesHTTP2(t, listener.Addr().String())
	for i := range uint32(requests) {
		c.request(1+2*i, "/", true)
	}
	c.send()
	c.conn.Close() // before the server accepts: the end has come with the requests
	lifeServe(t, &filo.Server{
		Handler: filo.Offload(func(c *filo.Ctx) error {
			calls.Add(1)
			<-c.Context().Done()
			return nil
		}),
		HTTP2: filo.HTTP2Options{Unencrypted: true},
		ConnState: func(_ net.Conn, state filo.ConnState) {
			if state == filo.StateClosed {
				once.Do(func() { close(closed) })
			}
		},
	}, listener)
	lifeRecv(t, closed, "the end of the connection")
	if n := calls.Load(); n > requests/4 {
		t.Errorf("%d of %d handlers were called", n, requests)
	}
}

