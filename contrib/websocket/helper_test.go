package websocket_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/internal/tcptest"
)

// testTimeout bounds each wait of a test. It is long, since the machine may be busy.
const testTimeout = time.Minute

var quiet = slog.New(slog.DiscardHandler)

// mode is a way to serve WebSockets.
type mode struct {
	name    string
	driver  filo.Driver
	handler func(u *websocket.Upgrader) filo.Handler
	small   bool // the system's buffers are small, so that a server notices sooner that its client doesn't read
}

var modes = []mode{
	{"Serve/loop", filo.DriverLoop, served, false},
	{"Serve/blocking", filo.DriverBlocking, served, false},
	{"Accept/loop", filo.DriverLoop, accepted, false},
	{"Accept/blocking", filo.DriverBlocking, accepted, false},
}

// overHTTP2, set by FILO_PROTOCOL=http2, makes the tests open their WebSockets by extended CONNECT. Tests
// of the handshake use HTTP/1.1 in any case.
var overHTTP2 = os.Getenv("FILO_PROTOCOL") == "http2"

// extendedConnect lets clients open WebSockets over HTTP/2, without TLS.
var extendedConnect = filo.HTTP2Options{Unencrypted: true, ExtendedConnect: true}

func served(u *websocket.Upgrader) filo.Handler { return u.Serve }

// accepted returns a handler that accepts a WebSocket by Accept and echoes its messages.
func accepted(u *websocket.Upgrader) filo.Handler {
	return func(c *filo.Ctx) error {
		conn, err := u.Accept(c)
		if err != nil {
			return err
		}
		defer conn.CloseNow()
		for {
			kind, message, err := conn.Read()
			if err != nil {
				return err
			}
			if err := conn.Write(kind, message); err != nil {
				return err
			}
		}
	}
}

// echo answers each message with itself.
func echo(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
	return c.Write(kind, message)
}

// inModes runs a test in each mode. If the options have no OnMessage, the server echoes messages.
func inModes(t *testing.T, options websocket.Options, test func(t *testing.T, address string)) {
	t.Helper()
	if options.OnMessage == nil {
		options.OnMessage = echo
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { test(t, m.serve(t, options)) })
	}
}

// serve serves WebSockets until the test ends.
func (m mode) serve(t testing.TB, options websocket.Options) (address string) {
	s := &filo.Server{Handler: m.handler(websocket.New(options)), Driver: m.driver, Logger: quiet, HTTP2: extendedConnect}
	if m.small {
		s.SocketOptions.WriteBuffer = 16 << 10
	}
	return tcptest.Serve(t, s)
}

func serveHandler(t testing.TB, driver filo.Driver, h filo.Handler) (address string) {
	return tcptest.Serve(t, &filo.Server{Handler: h, Driver: driver, Logger: quiet, HTTP2: extendedConnect})
}

// client is a WebSocket client that sends raw bytes and checks the frames that it receives.
type client struct {
	net.Conn
	t      testing.TB
	in     *bufio.Reader
	echoed atomic.Int64
}

const handshake = "GET /ws HTTP/1.1\r\nHost: filo.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

// offerDeflate is a field for the handshake.
const offerDeflate = "Sec-WebSocket-Extensions: permessage-deflate\r\n"

// connect opens a connection and sends nothing.
func connect(t testing.TB, address string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testTimeout))
	return &client{Conn: conn, t: t, in: bufio.NewReader(conn)}
}

// open opens a WebSocket.
func open(t testing.TB, address string, fields ...string) *client {
	t.Helper()
	c := connect(t, address)
	if overHTTP2 {
		return openStream(t, speakHTTP2(c), "/ws", fields...)
	}
	c.send(handshake + strings.Join(fields, "") + "\r\n")
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatalf("the handshake got %q", head)
	}
	return c
}

// speakHTTP2 begins HTTP/2 on a client's connection.
func speakHTTP2(c *client) *h2test.Client {
	c.t.Helper()
	connection, err := h2test.New(c.Conn)
	if err != nil {
		c.t.Fatal(err)
	}
	return connection
}

// openStream opens a WebSocket on a connection of HTTP/2.
func openStream(t testing.TB, connection *h2test.Client, path string, fields ...string) *client {
	t.Helper()
	pairs := []string{"sec-websocket-version", "13"}
	for _, line := range fields {
		name, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "+")), ": ")
		pairs = append(pairs, strings.ToLower(name), value)
	}
	s := connection.Connect("websocket", path, pairs...)
	if status, err := s.Status(); status != 200 || err != nil {
		t.Fatalf("the handshake got %d, %v", status, err)
	}
	s.SetDeadline(time.Now().Add(testTimeout))
	return &client{Conn: s, t: t, in: bufio.NewReader(s)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// head reads the head of an answer.
func (c *client) head() string {
	c.t.Helper()
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("got %q, %v", head.String()+line, err)
		}
		head.WriteString(line)
	}
	return head.String()
}

// Bits and opcodes of frames.
const (
	fin, rsv1, rsv2, rsv3                             = 0x80, 0x40, 0x20, 0x10
	continuation, text, binaryOp, closeOp, ping, pong = 0, 1, 2, 8, 9, 10
)

// frame renders a client's frame: first is its first byte.
func frame(first byte, payload string) string {
	return maskedFrame(first, payload, [4]byte{0x12, 0xfe, 0x00, 0x9a})
}

func maskedFrame(first byte, payload string, mask [4]byte) string {
	b := []byte{first}
	switch n := len(payload); {
	case n <= 125:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return string(b)
}

// closeFrame renders a client's close frame.
func closeFrame(code int, reason string) string {
	return frame(fin|closeOp, closePayload(code, reason))
}

func closePayload(code int, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

// receive reads a frame of the server, which must be framed as section 5 says.
func (c *client) receive() (first byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, "", err
	}
	n := uint64(head[1])
	switch {
	case n >= 0x80:
		return 0, "", errors.New("a server's frame is masked")
	case n == 126:
		var length [2]byte
		if _, err := io.ReadFull(c.in, length[:]); err != nil {
			return 0, "", err
		}
		if n = uint64(binary.BigEndian.Uint16(length[:])); n < 126 {
			return 0, "", errors.New("a length isn't encoded in the fewest bytes")
		}
	case n == 127:
		var length [8]byte
		if _, err := io.ReadFull(c.in, length[:]); err != nil {
			return 0, "", err
		}
		if n = binary.BigEndian.Uint64(length[:]); n <= 0xffff || n > 1<<30 {
			return 0, "", fmt.Errorf("a length is %d in eight bytes", n)
		}
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, c.in, int64(n)); err != nil {
		return 0, "", err
	}
	return head[0], b.String(), nil
}

// want reads a frame, which must have this first byte and payload.
func (c *client) want(first byte, payload string) {
	c.t.Helper()
	if err := c.check(first, payload); err != nil {
		c.t.Fatal(err)
	}
}

// check reads a frame, and returns an error if it has another first byte or payload.
func (c *client) check(first byte, payload string) error {
	gotFirst, got, err := c.receive()
	if err != nil || gotFirst != first || got != payload {
		return fmt.Errorf("got %#x %s, %v; want %#x %s", gotFirst, short(got), err, first, short(payload))
	}
	return nil
}

func short(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%.100q… (%d bytes)", s, len(s))
	}
	return fmt.Sprintf("%q", s)
}

// wantClose skips frames until a close frame arrives, which must have the code.
func (c *client) wantClose(code int) {
	c.t.Helper()
	for {
		first, payload, err := c.receive()
		switch {
		case err != nil:
			c.t.Fatalf("got %v, want a close frame with %d", err, code)
		case first != fin|closeOp:
			continue
		case code == 0 && payload == "":
			return
		case len(payload) < 2 || int(binary.BigEndian.Uint16([]byte(payload))) != code:
			c.t.Fatalf("got a close frame with %q, want %d", payload, code)
		}
		return
	}
}

// closeWrite closes the client's sending side.
func (c *client) closeWrite() { c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// wantEnd reads the end of the connection. A reset isn't accepted, because the client might lose the bytes before it.
func (c *client) wantEnd() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); err != io.EOF {
		c.t.Fatalf("got %#x, %v, want the end", b, err)
	}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// await receives from a channel.
func await[T any](t testing.TB, from <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(testTimeout):
		t.Fatalf("waited in vain for %s", what)
	}
	return value
}
