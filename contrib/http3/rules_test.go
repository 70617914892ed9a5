package http3filo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// fields returns a HEADERS frame with these names and values.
func fields(pairs ...string) []byte {
	var b bytes.Buffer
	encoder := qpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		encoder.WriteField(qpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return frame(1, b.Bytes())
}

// asks returns the HEADERS frame of a request, with more fields: alternating names and values.
func asks(method, path string, more ...string) []byte {
	return fields(append([]string{":method", method, ":scheme", "https", ":authority", "filo.test", ":path", path}, more...)...)
}

// outcome describes how a request ends: "connection" or "stream" with an error code, or the answer's statuses, body and trailer.
func outcome(t testing.TB, s io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(s)
	var reset *quic.StreamError
	switch {
	case errors.As(err, &reset):
		return fmt.Sprintf("stream %#x", uint64(reset.ErrorCode))
	case err != nil && code(err) != 0:
		return fmt.Sprintf("connection %#x", uint64(code(err)))
	case err != nil:
		return err.Error()
	}
	var got []string
	for len(b) > 0 {
		var kind, length uint64
		kind, b = integer(t, b)
		if length, b = integer(t, b); length > uint64(len(b)) {
			t.Fatal("the answer has a frame that is cut off")
		}
		content := b[:length]
		switch b = b[length:]; kind {
		case 0:
			got = append(got, string(content))
		case 1:
			for next := qpack.NewDecoder().Decode(content); ; {
				f, err := next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				switch f.Name {
				case ":status", "content-length", "x-sum":
					got = append(got, f.Value)
				case "connection", "proxy-connection", "keep-alive", "upgrade", "transfer-encoding", "te":
					t.Errorf("the answer has the field %s", f.Name)
				}
			}
		default:
			t.Errorf("the answer has a frame %d", kind)
		}
	}
	return strings.Join(got, " ")
}

// integer reads a variable-length integer (RFC 9000, section 16).
func integer(t testing.TB, b []byte) (v uint64, rest []byte) {
	t.Helper()
	if len(b) == 0 || len(b) < 1<<(b[0]>>6) {
		t.Fatal("the answer has an integer that is cut off")
	}
	n := 1 << (b[0] >> 6)
	v = uint64(b[0] & 0x3f)
	for _, each := range b[1:n] {
		v = v<<8 | uint64(each)
	}
	return v, b[n:]
}

const (
	frameError, unexpected, badMessage, badBlock = "connection 0x106", "connection 0x105", "stream 0x10e", "connection 0x200"
	hello                                        = "200 5 hello"
)

// requests are the bytes that a client sends on a request's stream before it ends the stream, and the wanted outcomes. They test the rules of
// RFC 9114, sections 4, 7 and 10, and of RFC 9204.
var requests = []struct {
	name  string
	bytes []byte
	want  string
}{
	{"a request", asks("GET", "/text"), hello},
	{"a body", slices.Concat(asks("POST", "/echo"), frame(0, []byte("one")), frame(0, nil), frame(0, []byte("two"))), "200 6 onetwo"},
	{"a body of the announced length", slices.Concat(asks("POST", "/echo", "content-length", "6"), frame(0, []byte("one")), frame(0, []byte("two"))), "200 6 onetwo"},
	{"a trailer", slices.Concat(asks("POST", "/echo"), frame(0, []byte("one")), fields("x-sum", "1")), "200 3 one"},
	{"unknown frames", slices.Concat(frame(0x21, []byte("x")), asks("POST", "/echo"), frame(0x3f, nil), frame(0, []byte("a")), []byte{0xc0, 0xf, 7, 0, 0, 0, 0, 0, 0x40, 1, 'x'},
		frame(0, []byte("b")), fields("x-sum", "1"), frame(0x21, make([]byte, 9000))), "200 2 ab"},
	{"long integers", slices.Concat([]byte{0xc0, 0, 0, 0, 0, 0, 0, 1, 0xc0, 0, 0, 0, 0, 0, 0, byte(len(asks("GET", "/text")) - 5)}, asks("GET", "/text")[5:]), hello},
	{"HEAD", asks("HEAD", "/text"), "200 5"},
	{"no content", asks("GET", "/empty"), "204"},
	{"an answer's trailer", asks("GET", "/trailer"), "200 with a trailer 1"},
	{"fields of HTTP/1.1 that the handler sets", asks("GET", "/hop"), "103 200 0"},
	{"crumbs of a cookie", asks("GET", "/cookies", "cookie", "a=1", "cookie", "b=2"), "200 2 12"},
	{"te", asks("GET", "/text", "te", "trailers"), hello},
	{"OPTIONS *", asks("OPTIONS", "*"), "204"},

	{"nothing", nil, "stream 0x10d"},
	{"no head", frame(0x21, nil), "stream 0x10d"},
	{"DATA first", slices.Concat(frame(0, []byte("x")), asks("POST", "/echo")), unexpected},
	{"DATA behind the trailer", slices.Concat(asks("POST", "/echo"), fields("x-sum", "1"), frame(0, nil)), unexpected},
	{"two trailers", slices.Concat(asks("POST", "/echo"), fields("x-sum", "1"), fields("x-sum", "1")), unexpected},
	{"half an integer", []byte{0x40}, frameError},
	{"half a frame's beginning", []byte{1}, frameError},
	{"half a head", asks("GET", "/text")[:20], frameError},
	{"a head that only announces itself", []byte{1, 0x40, 100}, frameError},
	{"half a body", append(asks("POST", "/echo"), frame(0, []byte("one"))[:6]...), frameError},
	{"half a trailer", append(asks("POST", "/echo"), fields("x-sum", "1")[:7]...), frameError},
	{"half an unknown frame", append(asks("POST", "/echo"), frame(0x21, []byte("one"))[:6]...), frameError},

	{"an empty block", frame(1, nil), badBlock},
	{"a dynamic table", frame(1, []byte{1, 0}), badBlock},
	{"a dynamic field", frame(1, []byte{0, 0, 0x80}), badBlock},
	{"a static field that isn't there", frame(1, []byte{0, 0, 0xff, 36}), badBlock},
	{"half a string", frame(1, []byte{0, 0, 0x51, 5, '/'}), badBlock},
	{"a bad Huffman code", frame(1, []byte{0, 0, 0x51, 0x81, 0}), badBlock},
	{"a bad block in the trailer", append(asks("POST", "/echo"), frame(1, []byte{1, 0})...), badBlock},

	{"no method", fields(":scheme", "https", ":authority", "filo.test", ":path", "/"), badMessage},
	{"no scheme", fields(":method", "GET", ":authority", "filo.test", ":path", "/"), badMessage},
	{"no path", fields(":method", "GET", ":scheme", "https", ":authority", "filo.test"), badMessage},
	{"no host", fields(":method", "GET", ":scheme", "https", ":path", "/"), "400 26 Bad Request: missing Host\n"},
	{"another host", asks("GET", "/text", "host", "example.com"), badMessage},
	{"the same host", asks("GET", "/text", "host", "filo.test:443"), hello},
	{"two paths", asks("GET", "/text", ":path", "/"), badMessage},
	{"an empty path", asks("GET", ""), badMessage},
	{"an unknown pseudo-header", asks("GET", "/text", ":other", "1"), badMessage},
	{"an answer's pseudo-header", asks("GET", "/text", ":status", "200"), badMessage},
	{"extended CONNECT", asks("CONNECT", "/text", ":protocol", "websocket"), badMessage},
	{"CONNECT with a path", asks("CONNECT", "/text"), badMessage},
	{"CONNECT without a host", fields(":method", "CONNECT"), badMessage},
	{"a pseudo-header behind a field", fields(":method", "GET", ":scheme", "https", ":authority", "filo.test", "x", "1", ":path", "/"), badMessage},
	{"a pseudo-header in the trailer", append(asks("POST", "/echo"), fields(":path", "/")...), badMessage},
	{"an upper-case name", asks("GET", "/text", "X-Upper", "1"), badMessage},
	{"an upper-case name in the trailer", append(asks("POST", "/echo"), fields("X-Upper", "1")...), badMessage},
	{"an empty name", asks("GET", "/text", "", "1"), badMessage},
	{"a name with a space", asks("GET", "/text", "a b", "1"), badMessage},
	{"a value of two lines", asks("GET", "/text", "x", "1\r\ny: 2"), badMessage},
	{"connection", asks("GET", "/text", "connection", "close"), badMessage},
	{"keep-alive", asks("GET", "/text", "keep-alive", "1"), badMessage},
	{"proxy-connection", asks("GET", "/text", "proxy-connection", "close"), badMessage},
	{"transfer-encoding", asks("POST", "/echo", "transfer-encoding", "chunked"), badMessage},
	{"upgrade", asks("GET", "/text", "upgrade", "websocket"), badMessage},
	{"te that isn't trailers", asks("GET", "/text", "te", "gzip"), badMessage},
	{"a body that is too short", append(asks("POST", "/echo", "content-length", "4"), frame(0, []byte("one"))...), badMessage},
	{"a body that is too long", append(asks("POST", "/echo", "content-length", "2"), frame(0, []byte("one"))...), badMessage},
	{"a body that is too long by four gigabytes", slices.Concat(asks("POST", "/echo", "content-length", "3"), []byte{0, 0xc0, 0, 0, 1, 0, 0, 0, 3}, []byte("one")), badMessage},
	{"no body", asks("POST", "/echo", "content-length", "4"), badMessage},
	{"HEAD with a length", asks("HEAD", "/text", "content-length", "4"), badMessage},
}

// Each request has the wanted outcome. A stream error ends only its own request, not the other requests of the connection.
func TestRequestRules(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers}, nil)
	q := s.raw(t, nil)
	try := func(name string, b []byte, want string) {
		if q.Context().Err() != nil {
			q = s.raw(t, nil)
		}
		stream := open(t, q, b)
		stream.Close()
		if got := outcome(t, stream); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if strings.HasPrefix(want, "connection") {
			filotest.Recv(t, q.Context().Done(), "the connection's end")
		}
	}
	for _, each := range requests {
		try(each.name, each.bytes, each.want)
	}
	for _, kind := range []byte{2, 3, 4, 5, 6, 7, 8, 9, 0xd} {
		try(fmt.Sprintf("frame %#x first", kind), append(frame(kind, []byte{0}), asks("POST", "/echo")...), unexpected)
		try(fmt.Sprintf("frame %#x behind the head", kind), append(asks("POST", "/echo"), frame(kind, []byte{0})...), unexpected)
	}
}

// One-way streams follow the rules of RFC 9114, sections 6.2 and 7.2, and of RFC 9204, section 4. The code 0 means that the connection continues.
func TestOneWayRules(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers}, nil)
	settings := []byte{0, 4, 0}
	after := func(frames ...[]byte) []byte { return slices.Concat(append([][]byte{settings}, frames...)...) }
	for _, each := range []struct {
		name    string
		streams [][]byte
		ends    bool // the client ends the last stream
		want    quic.ApplicationErrorCode
	}{
		{"settings", [][]byte{{0, 4, 5, 6, 0x40, 100, 1, 0}}, false, 0},
		{"unknown frames", [][]byte{after(frame(0x21, []byte("x")), frame(0x21, nil))}, false, 0},
		{"what clients say of pushes", [][]byte{after(frame(0xd, []byte{4}), frame(0xd, []byte{4}), frame(0xd, []byte{0x40, 5}), frame(7, []byte{8}), frame(7, []byte{4}))}, false, 0},
		{"QPACK", [][]byte{settings, {2, 0x20}, {3, 0x40, 0x7f, 0x80, 1, 0x44}}, false, 0},
		{"an unknown type", [][]byte{settings, {0x21, 1, 2, 3}}, true, 0},
		{"a stream that ends before its type", [][]byte{settings, {0x40}}, true, 0},

		{"another frame before the settings", [][]byte{append([]byte{0}, frame(0xd, []byte{1})...)}, false, 0x10a},
		{"an unknown frame before the settings", [][]byte{append([]byte{0}, frame(0x21, nil)...)}, false, 0x10a},
		{"settings twice", [][]byte{after(frame(4, nil))}, false, 0x105},
		{"a setting twice", [][]byte{{0, 4, 4, 6, 1, 6, 1}}, false, 0x109},
		{"half a setting", [][]byte{{0, 4, 1, 6}}, false, 0x106},
		{"settings without end", [][]byte{{0, 4, 0x80, 1, 0, 0}}, false, 0x107},
		{"a control stream that ends", [][]byte{settings}, true, 0x104},
		{"a control stream that ends before the settings", [][]byte{{0}}, true, 0x104},
		{"a cancelled push", [][]byte{after(frame(0xd, []byte{4}), frame(3, []byte{0}))}, false, 0x108},
		{"fewer pushes", [][]byte{after(frame(0xd, []byte{4}), frame(0xd, []byte{3}))}, false, 0x108},
		{"a later GOAWAY", [][]byte{after(frame(7, []byte{4}), frame(7, []byte{8}))}, false, 0x108},
		{"a GOAWAY that is too long", [][]byte{after(frame(7, []byte{4, 4}))}, false, 0x106},
		{"a GOAWAY that is too short", [][]byte{after(frame(7, []byte{0x40}))}, false, 0x106},
		{"an empty GOAWAY", [][]byte{after(frame(7, nil))}, false, 0x106},
		{"two control streams", [][]byte{settings, settings}, false, 0x103},
		{"two encoders", [][]byte{settings, {2}, {2}}, false, 0x103},
		{"two decoders", [][]byte{settings, {3}, {3}}, false, 0x103},
		{"a push", [][]byte{settings, {1, 0}}, false, 0x103},
		{"a table with room", [][]byte{settings, {2, 0x3f, 1}}, false, 0x201},
		{"a new field", [][]byte{settings, {2, 0x41, 'a', 1, 'b'}}, false, 0x201},
		{"an encoder that ends", [][]byte{settings, {2}}, true, 0x104},
		{"a block that is acknowledged", [][]byte{settings, {3, 0x80}}, false, 0x202},
		{"fields that are acknowledged", [][]byte{settings, {3, 0}}, false, 0x202},
		{"a decoder that ends", [][]byte{settings, {3, 0x7f}}, true, 0x104},
	} {
		t.Run(each.name, func(t *testing.T) { s.tryOneWay(t, each.streams, each.ends, each.want) })
	}
	for _, id := range []byte{0, 2, 3, 4, 5} {
		t.Run(fmt.Sprintf("setting %d", id), func(t *testing.T) { s.tryOneWay(t, [][]byte{{0, 4, 2, id, 0}}, false, 0x109) })
	}
	for _, kind := range []byte{0, 1, 2, 5, 6, 8, 9} {
		t.Run(fmt.Sprintf("frame %d", kind), func(t *testing.T) { s.tryOneWay(t, [][]byte{after(frame(kind, []byte{0}))}, false, 0x105) })
	}
}

// tryOneWay sends one-way streams, and then a request if the connection must continue.
func (s *server) tryOneWay(t *testing.T, streams [][]byte, ends bool, want quic.ApplicationErrorCode) {
	q, err := s.dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.CloseWithError(0x100, "")
	for i, b := range streams {
		one, err := q.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		if one.Write(b); ends && i == len(streams)-1 {
			one.Close()
		}
	}
	if want != 0 {
		awaitEnd(t, q, want)
		return
	}
	stream := open(t, q, asks("GET", "/text"))
	stream.Close()
	if got := outcome(t, stream); got != hello {
		t.Error(got)
	}
}

// The outcome is right for requests whose body doesn't end, for cancelled requests, and for handlers that fail.
func TestAnswerRules(t *testing.T) {
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/cut":
			w := c.Stream()
			w.WriteString("x")
			w.Flush()
			panic("a test")
		case "/short":
			c.Response.Header.Set("Content-Length", "10")
			w := c.Stream()
			w.WriteString("x")
			return w.Flush()
		}
		return answers(c)
	}}, nil)
	q := s.raw(t, nil)
	for _, path := range []string{"/cut", "/short"} {
		stream := open(t, q, asks("GET", path))
		stream.Close()
		if got := outcome(t, stream); got != "stream 0x102" {
			t.Errorf("%s: %s", path, got)
		}
	}
	// When the answer has been sent, the server tells the client to stop sending the body.
	stream := open(t, q, append(asks("POST", "/text"), frame(0, []byte("x"))...))
	if got := outcome(t, stream); got != hello {
		t.Error(got)
	}
	filotest.Recv(t, stream.Context().Done(), "STOP_SENDING")
	var stop *quic.StreamError
	if err := context.Cause(stream.Context()); !errors.As(err, &stop) || !stop.Remote || stop.ErrorCode != 0x100 {
		t.Errorf("the request was stopped by %v", err)
	}
	// The client waits for a 100, which is sent when the handler reads the body.
	stream = open(t, q, asks("POST", "/echo", "expect", "100-continue", "content-length", "1"))
	b := make([]byte, 100)
	n, err := stream.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	stream.Write(frame(0, []byte("x")))
	stream.Close()
	if got := outcome(t, io.MultiReader(bytes.NewReader(b[:n]), stream)); got != "100 200 1 x" {
		t.Error(got)
	}
}

// A head that is far too large is refused properly, whatever request was served with the same buffers before.
func TestLargeHead(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers}, nil)
	q := s.raw(t, nil)
	large := asks("GET", "/text", "x-large", strings.Repeat("#", 40_000)) // # has a long Huffman code
	for range 20 {
		stream := open(t, q, asks("HEAD", "/text"))
		stream.Close()
		if got := outcome(t, stream); got != "200 5" {
			t.Fatal(got)
		}
		stream = open(t, q, large)
		if got := outcome(t, stream); !strings.HasPrefix(got, "431 ") || !strings.Contains(got, "Too Large") {
			t.Fatal(got)
		}
	}
}
