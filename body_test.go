package filo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/race"
)

// wireConn is a connection whose Reads return its parts, each part in one Read or in several, and then the error, or io.EOF if that is nil.
// It never blocks.
type wireConn struct {
	net.Conn // nil: methods that aren't below must not be called
	parts    [][]byte
	err      error
	sent     int                // how many of the parts Read has returned
	reading  func(space []byte) // called before each Read
	written  bytes.Buffer
	writeErr error // the error of each Write, if it isn't nil
}

func (c *wireConn) Read(p []byte) (int, error) {
	if c.reading != nil {
		c.reading(p)
	}
	for len(c.parts) > 0 && len(c.parts[0]) == 0 {
		c.parts = c.parts[1:]
	}
	if len(c.parts) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		return 0, io.EOF
	}
	n := copy(p, c.parts[0])
	c.parts[0] = c.parts[0][n:]
	c.sent += n
	return n, nil
}

func (c *wireConn) Write(p []byte) (int, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	return c.written.Write(p)
}

func (c *wireConn) Close() error                     { return nil }
func (c *wireConn) LocalAddr() net.Addr              { return benchAddr }
func (c *wireConn) RemoteAddr() net.Addr             { return benchAddr }
func (c *wireConn) SetDeadline(time.Time) error      { return nil }
func (c *wireConn) SetReadDeadline(time.Time) error  { return nil }
func (c *wireConn) SetWriteDeadline(time.Time) error { return nil }

// wireParts cuts input at these places.
func wireParts(input string, cuts ...int) [][]byte {
	var parts [][]byte
	begin := 0
	for _, cut := range append(cuts, len(input)) {
		parts = append(parts, []byte(input[begin:cut]))
		begin = cut
	}
	return parts
}

// wireServer serves connections of wireConn.
func wireServer(t *testing.T, handler Handler) *Server {
	s := &Server{Handler: handler, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { s.Close() })
	return s
}

var wireDate = regexp.MustCompile(`Date: [^\r]*\r\n`)

// wireServe serves the connection to its end and returns the answers, without their dates.
func wireServe(t *testing.T, s *Server, c *wireConn) string {
	t.Helper()
	if err := s.ServeConn(c); err != nil {
		t.Fatal(err)
	}
	return wireDate.ReplaceAllString(c.written.String(), "")
}

// wireReaders are ways to read a body.
var wireReaders = map[string]func(c *Ctx) (string, error){
	"Body":    func(c *Ctx) (string, error) { b, err := c.Body(); return string(b), err },
	"ReadAll": func(c *Ctx) (string, error) { b, err := io.ReadAll(c.BodyReader()); return string(b), err },
	"io.Copy": func(c *Ctx) (string, error) {
		var b strings.Builder
		_, err := io.Copy(&b, c.BodyReader())
		return b.String(), err
	},
	"byte by byte":   func(c *Ctx) (string, error) { return wireReadBy(c.BodyReader(), 1) },
	"seven bytes":    func(c *Ctx) (string, error) { return wireReadBy(c.BodyReader(), 7) },
	"large buffer":   func(c *Ctx) (string, error) { return wireReadBy(c.BodyReader(), 64<<10) },
	"Body and again": func(c *Ctx) (string, error) { c.Body(); b, err := c.Body(); return string(b), err },
	"Body, ReadAll":  func(c *Ctx) (string, error) { c.Body(); b, err := io.ReadAll(c.BodyReader()); return string(b), err },
}

func wireReadBy(r io.Reader, size int) (string, error) {
	var all []byte
	buffer := make([]byte, size)
	for {
		n, err := r.Read(buffer)
		all = append(all, buffer[:n]...)
		if err == io.EOF {
			return string(all), nil
		}
		if err != nil {
			return string(all), err
		}
	}
}

const (
	wireNext     = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
	wireSmuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	wireChunked  = wirePOST + "Transfer-Encoding: chunked\r\n\r\n"
)

func wireFixed(body string) string {
	return wirePOST + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// wireChunkOf returns a chunk.
func wireChunkOf(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

var wireBodies = []struct{ name, request, body, trailer string }{
	{"none", wirePOST + "\r\n", "", ""},
	{"length 0", wireFixed(""), "", ""},
	{"a byte", wireFixed("x"), "x", ""},
	{"a request", wireFixed(wireSmuggled), wireSmuggled, ""},
	{"chunked, empty", wireChunked + "0\r\n\r\n", "", ""},
	{"chunked, a request", wireChunked + wireChunkOf(wireSmuggled) + "0\r\n\r\n", wireSmuggled, ""},
	{"chunked, many", wireChunked + "1\r\na\r\n2;x=\"y\"\r\nbc\r\n3;z\r\n\r\n0\r\n0\r\n\r\n", "abc\r\n0", ""},
	{"chunked, a trailer", wireChunked + wireChunkOf("abc") + "0\r\nX-Sum: 1 \r\nx-two:\t2\r\n\r\n", "abc", "X-Sum=1 x-two=2 "},
	{"chunked, a trailer that looks like a request", wireChunked + "0;e\r\nGET: /smuggled HTTP/1.1\r\n\r\n", "", "GET=/smuggled HTTP/1.1 "},
}

// A request that arrives in two pieces, split at any byte, has the same effect as one that arrives whole: the same body, however it is
// read, the same trailer, the same next request, and the same answers.
func TestBodySplits(t *testing.T) {
	for name, read := range wireReaders {
		var seen strings.Builder
		s := wireServer(t, func(c *Ctx) error {
			body, err := read(c)
			fmt.Fprintf(&seen, "%s %q %v ", c.Path(), body, err)
			for name, value := range c.Request.Trailer.All() {
				fmt.Fprintf(&seen, "%s=%s ", name, value)
			}
			return c.Text(200, body)
		})
		for _, test := range wireBodies {
			input := test.request + wireNext
			want := fmt.Sprintf("/ %q <nil> %s/next \"\" <nil> ", test.body, test.trailer)
			whole := wireServe(t, s, &wireConn{parts: wireParts(input)})
			for cut := range len(input) {
				seen.Reset()
				answers := wireServe(t, s, &wireConn{parts: wireParts(input, cut)})
				if seen.String() != want || answers != whole {
					t.Fatalf("%s read by %s, cut at %d: %s, want %s\n%s", test.name, name, cut, seen.String(), want, answers)
				}
			}
			seen.Reset()
			answers := wireServe(t, s, &wireConn{parts: wireParts(input, wireEachByte([]byte(input))...)})
			if seen.String() != want || answers != whole {
				t.Fatalf("%s read by %s, byte by byte: %s, want %s\n%s", test.name, name, seen.String(), want, answers)
			}
		}
	}
}

// A body larger than the read buffer bypasses the buffer where that saves a copy. No byte is lost or doubled, and no byte of the next
// request is taken.
func TestLargeBodySplits(t *testing.T) {
	data := make([]byte, 20_000)
	for i := range data {
		data[i] = byte(i>>8) ^ byte(i)
	}
	body := string(data)
	chunks := ""
	for _, size := range []int{1, 5000, 2047, 2048, 2049, 3, 8852} {
		chunks += wireChunkOf(body[:size])
		body = body[size:]
	}
	body = string(data)
	for name, read := range wireReaders {
		if name == "byte by byte" {
			continue
		}
		ok := 0
		s := wireServer(t, func(c *Ctx) error {
			got, err := read(c)
			if err == nil && (c.Path() == "/" && got == body || c.Path() == "/next" && got == "") {
				ok++
			}
			return c.NoContent()
		})
		for _, request := range []string{wireFixed(body), wireChunked + chunks + "0\r\n\r\n", wireChunked + wireChunkOf(body) + "0\r\nX-Sum: 1\r\n\r\n"} {
			input := request + wireNext
			for _, piece := range []int{1, 100, 1460, 2047, 2048, 2049, 4096, 5000, 8192, len(request) - 1, len(request), len(request) + 1} {
				if piece == 1 && race.Enabled {
					continue
				}
				var cuts []int
				for cut := piece; cut < len(input); cut += piece {
					cuts = append(cuts, cut)
				}
				ok = 0
				wireServe(t, s, &wireConn{parts: wireParts(input, cuts...)})
				if ok != 2 {
					t.Errorf("%.60q read by %s in pieces of %d: %d of 2 requests were right", request, name, piece, ok)
				}
			}
		}
	}
}

// The bytes of a body that its handler hasn't read are skipped, and never parsed as the next request. That also holds if the handler has
// read a part.
func TestBodySkipped(t *testing.T) {
	long := strings.Repeat(wireSmuggled, 300) // more than the read buffer
	manyChunks := strings.Repeat(wireChunkOf(wireSmuggled), 300)
	for _, size := range []int{0, 1, 3, 30, 5000} {
		var paths []string
		s := wireServer(t, func(c *Ctx) error {
			paths = append(paths, c.Path())
			if size > 0 && c.Path() == "/" {
				io.ReadFull(c.BodyReader(), make([]byte, size))
			}
			return c.NoContent()
		})
		check := func(input string, cuts ...int) {
			paths = nil
			answers := wireServe(t, s, &wireConn{parts: wireParts(input, cuts...)})
			if !slices.Equal(paths, []string{"/", "/next"}) || strings.Count(answers, "HTTP/1.1 204") != 2 {
				t.Fatalf("%.100q, %d bytes read, cut at %d: the requests were %q\n%s", input, size, cuts, paths, answers)
			}
		}
		for _, test := range wireBodies {
			input := test.request + wireNext
			for cut := range len(input) {
				check(input, cut)
			}
			check(input, wireEachByte([]byte(input))...)
		}
		for _, request := range []string{wireFixed(long), wireChunked + wireChunkOf(long) + "0\r\n\r\n", wireChunked + manyChunks + "0\r\nX-A: b\r\n\r\n"} {
			input := request + wireNext
			for cut := 0; cut < len(input); cut += len(input)/30 + 1 {
				check(input, cut)
			}
			for cut := len(request) - 20; cut < len(input); cut++ {
				check(input, cut)
			}
		}
	}
}

// wireError describes a body's error.
func wireError(err error) string {
	var httpError *HTTPError
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &httpError) && errors.Is(err, ErrBodyTooLarge):
		return fmt.Sprintf("%d, over its limit", httpError.Status)
	case errors.As(err, &httpError) && errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("%d, truncated", httpError.Status)
	case httpError != nil:
		return fmt.Sprint(httpError.Status)
	}
	return err.Error()
}

// "The error is an HTTPError: 413 for a body over the limit": a body of exactly the limit is accepted, and one byte more isn't, however the
// body is framed and read, and wherever it is cut. "With an error no part of the body is returned."
func TestBodyLimits(t *testing.T) {
	const ten = "0123456789"
	for _, test := range []struct {
		rule          string
		server, limit int64 // the limits of the server and, if not 0, of the request
		body          string
		want          string
	}{
		{"at the server's limit", 10, 0, ten, "none"},
		{"over the server's limit", 10, 0, ten + "x", "413, over its limit"},
		{"far over the server's limit", 10, 0, strings.Repeat(ten, 500), "413, over its limit"},
		{"SetMaxBodyBytes raises it", 5, 10, ten, "none"},
		{"... and no further", 5, 10, ten + "x", "413, over its limit"},
		{"SetMaxBodyBytes lowers it", 100, 10, ten + "x", "413, over its limit"},
		{"a negative limit of the server is none", -1, 0, strings.Repeat(ten, 500), "none"},
		{"a negative limit of the request is none", 5, -1, strings.Repeat(ten, 500), "none"},
		{"the default", 0, 0, strings.Repeat(ten, 500), "none"},
		{"no body is never over", 1, 0, "", "none"},
	} {
		for name, read := range wireReaders {
			var got []string
			s := wireServer(t, func(c *Ctx) error {
				if test.limit != 0 {
					c.SetMaxBodyBytes(test.limit)
				}
				body, err := read(c)
				got = append(got, wireError(err))
				switch {
				case err == nil && body != test.body && c.Path() == "/":
					got = append(got, fmt.Sprintf("%.20q", body))
				case err != nil && (strings.HasPrefix(name, "Body") && body != "" || !strings.HasPrefix(test.body, body)):
					got = append(got, fmt.Sprintf("with an error %.20q", body))
				}
				return err
			})
			s.MaxBodyBytes = test.server
			want, answers := []string{test.want, "none"}, 2
			if test.want != "none" {
				want, answers = want[:1], 1
			}
			half := len(test.body) / 2
			for _, request := range []string{
				wireFixed(test.body), wireChunked + strings.TrimPrefix(wireChunkOf(test.body), "0\r\n\r\n") + "0\r\n\r\n",
				wireChunked + strings.TrimPrefix(wireChunkOf(test.body[:half]), "0\r\n\r\n") +
					strings.TrimPrefix(wireChunkOf(test.body[half:]), "0\r\n\r\n") + "0\r\n\r\n",
			} {
				input := request + wireNext
				for cut := 0; cut < len(input); cut += len(input)/20 + 1 {
					got = nil
					c := &wireConn{parts: wireParts(input, cut)}
					answer := wireServe(t, s, c)
					if !slices.Equal(got, want) || strings.Count(answer, "HTTP/1.1 ") != answers ||
						answers == 1 && !strings.Contains(answer, "Connection: close\r\n") {
						t.Fatalf("%s: %.80q by %s, cut at %d: %q, want %q\n%s", test.rule, request, name, cut, got, want, answer)
					}
				}
			}
		}
	}
}

// The limit also holds for large bodies, which are read directly into the handler's own buffer.
func TestBodyLimitsOfLargeBodies(t *testing.T) {
	const limit = 10_000
	for size, want := range map[int]string{limit - 1: "none", limit: "none", limit + 1: "413, over its limit", 3 * limit: "413, over its limit"} {
		body := strings.Repeat("x", size)
		for _, reader := range []string{"ReadAll", "seven bytes", "large buffer", "Body"} {
			var result string
			s := wireServer(t, func(c *Ctx) error {
				got, err := wireReaders[reader](c)
				result = wireError(err)
				if len(got) > limit || err == nil && got != body {
					result = fmt.Sprintf("%d bytes", len(got))
				}
				return err
			})
			s.MaxBodyBytes = limit
			for _, request := range []string{
				wireFixed(body), wireChunked + wireChunkOf(body) + "0\r\n\r\n", wireChunked + wireChunkOf(body[:4000]) + wireChunkOf(body[4000:]) + "0\r\n\r\n",
			} {
				head := strings.Index(request, "\r\n\r\n") + 4
				for _, cut := range []int{0, head, head + 6, head + 100, head + 5000, head + limit} {
					wireServe(t, s, &wireConn{parts: wireParts(request, min(cut, len(request)))})
					if result != want {
						t.Errorf("%d bytes, %.80q by %s, cut at %d: %s, want %s", size, request, reader, cut, result, want)
					}
				}
			}
		}
	}
}

// If the client has left before the server asks for the body, the error is a 400, as for a client that leaves while it sends the body. The
// error isn't the handler's fault, and isn't logged.
func TestBodyOfAClientThatIsGone(t *testing.T) {
	gone := errors.New("broken pipe")
	for name, read := range wireReaders {
		var log bytes.Buffer
		var result error
		s := wireServer(t, func(c *Ctx) error {
			_, result = read(c)
			return result
		})
		s.Logger = slog.New(slog.NewTextHandler(&log, nil))
		wireServe(t, s, &wireConn{parts: wireParts(wirePOST + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"), writeErr: gone})
		if wireError(result) != "400" || !errors.Is(result, gone) || log.Len() > 0 {
			t.Errorf("%s: %v, logged: %s", name, result, log.Bytes())
		}
	}
}

// A body that ends early is a 400 that wraps io.ErrUnexpectedEOF, wherever it ends. Body returns nothing of it, and every further read
// returns the same error.
func TestBodyTruncated(t *testing.T) {
	for name, read := range wireReaders {
		var got []string
		s := wireServer(t, func(c *Ctx) error {
			body, err := read(c)
			n, again := c.BodyReader().Read(make([]byte, 10))
			_, third := c.Body()
			got = append(got, wireError(err))
			if again != err || third != err || n != 0 {
				got = append(got, fmt.Sprintf("then %d, %v, %v", n, again, third))
			}
			if strings.HasPrefix(name, "Body") && body != "" {
				got = append(got, "with an error "+body)
			}
			return err
		})
		for _, test := range wireBodies {
			head := strings.Index(test.request, "\r\n\r\n") + 4
			for n := head; n < len(test.request); n++ {
				got = nil
				answer := wireServe(t, s, &wireConn{parts: wireParts(test.request[:n], head)})
				if !slices.Equal(got, []string{"400, truncated"}) || !strings.HasPrefix(answer, "HTTP/1.1 400 ") || strings.Count(answer, "HTTP/1.1") != 1 {
					t.Fatalf("%s by %s, ended at %d: %q\n%s", test.name, name, n, got, answer)
				}
			}
		}
	}
}

// The error of a failed read of the connection decides the status, and is wrapped.
func TestBodyErrors(t *testing.T) {
	reset := errors.New("connection reset")
	for _, test := range []struct {
		err    error
		status int
		wraps  error
	}{
		{io.EOF, 400, io.ErrUnexpectedEOF}, {reset, 400, reset}, {errDeadline, 408, nil}, {fmt.Errorf("read: %w", errDeadline), 408, nil},
	} {
		var got *HTTPError
		if err := bodyError(test.err); !errors.As(err, &got) || got.Status != test.status || test.wraps != nil && !errors.Is(err, test.wraps) {
			t.Errorf("%v became %v", test.err, err)
		}
	}
}

// wireMalformedChunks are chunked bodies with a fault of each kind. The tests of package http1 have all faults.
var wireMalformedChunks = []struct{ rule, input string }{
	{"chunk-size = 1*HEXDIG (RFC 9112, section 7.1)", "\r\nx\r\n"},
	{"a size has no sign", "-1\r\nx\r\n"},
	{"a size must not overflow", "10000000000000001\r\nx\r\n"},
	{"a bare LF behind a size", "1\nx\r\n"},
	{"a bare CR behind a size", "1\rx\r\n"},
	{"data longer than its size", "1\r\nxy\r\n0\r\n"},
	{"no CRLF behind data", "1\r\nx0\r\n\r\n"},
	{"an extension has a name", "1;\r\nx\r\n"},
	{"a value is a token", "1;a=b=c\r\nx\r\n"},
	{"an extension of the last chunk is held to the same rules", "0;\r\n\r\n"},
}

// A malformed chunk is a 400, and the connection ends, because the end of the body can't be found any more.
func TestBodyMalformed(t *testing.T) {
	for name, read := range wireReaders {
		var got []string
		s := wireServer(t, func(c *Ctx) error {
			_, err := read(c)
			got = append(got, wireError(err))
			return c.NoContent() // the handler's answer doesn't matter
		})
		for _, test := range wireMalformedChunks {
			input := wireChunked + "3\r\nabc\r\n" + test.input + "\r\n\r\n" + wireSmuggled
			for _, cut := range []int{0, len(wireChunked), len(wireChunked) + 5, len(wireChunked) + 9} {
				got = nil
				answer := wireServe(t, s, &wireConn{parts: wireParts(input, cut)})
				if !slices.Equal(got, []string{"400"}) || strings.Count(answer, "HTTP/1.1") != 1 || !strings.Contains(answer, "Connection: close\r\n") {
					t.Fatalf("%s: %q by %s, cut at %d: %q\n%s", test.rule, test.input, name, cut, got, answer)
				}
			}
		}
	}
}

// A trailer section must keep to the rules and limits of a head, and may have no field that decides about framing.
func TestBodyTrailers(t *testing.T) {
	tenFields := strings.Repeat("A: b\r\n", 10)
	for _, test := range []struct{ rule, trailer, want string }{
		{"no field", "\r\n", "none"},
		{"fields", "A: b\r\nC:d\r\n\r\n", "none"},
		{"fields at their limit", tenFields + "\r\n", "none"},
		{"fields over their limit", tenFields + "C: d\r\n\r\n", "431"},
		{"bytes at their limit", "A: " + strings.Repeat("b", 193) + "\r\n\r\n", "none"},
		{"bytes over their limit", "A: " + strings.Repeat("b", 194) + "\r\n\r\n", "431"},
		{"a line without end", "A: " + strings.Repeat("b", 10_000), "431"},
		{"Content-Length", "A: b\r\ncontent-length: 3\r\n\r\n", "400"},
		{"Transfer-Encoding", "Transfer-Encoding: chunked\r\n\r\n", "400"},
		{"Host", "Host: b\r\n\r\n", "400"},
		{"Authorization", "authorization: b\r\n\r\n", "400"},
		{"Trailer", "Trailer: b\r\n\r\n", "400"},
		{"space before the colon", "A : b\r\n\r\n", "400"},
		{"obs-fold", "A: b\r\n c\r\n\r\n", "400"},
		{"a fold at the start", " A: b\r\n\r\n", "400"},
		{"bare LF", "A: b\n\r\n", "400"},
		{"bare LF at the end", "A: b\r\n\n", "400"},
		{"bare CR", "A: b\rC: d\r\n\r\n", "400"},
		{"no colon", wireSmuggled, "400"},
		{"NUL", "A: \x00\r\n\r\n", "400"},
		{"it ends early", "A: b\r\n", "400, truncated"},
	} {
		for name, read := range wireReaders {
			var got []string
			s := wireServer(t, func(c *Ctx) error {
				if c.Request.Trailer.Len() > 0 {
					got = append(got, "a trailer before the body was read")
				}
				body, err := read(c)
				if err == nil && c.Path() == "/" {
					var fields []byte
					for name, value := range c.Request.Trailer.All() {
						fields = fmt.Appendf(fields, "%s:%s\r\n", name, value)
					}
					if body != "abc" || string(fields) != strings.ReplaceAll(strings.TrimSuffix(test.trailer, "\r\n"), ": ", ":") {
						got = append(got, fmt.Sprintf("%q with %q", body, fields))
					}
				} else if c.Request.Trailer.Len() > 0 {
					got = append(got, "a trailer with an error")
				}
				got = append(got, wireError(err))
				return err
			})
			s.MaxHeaderBytes, s.MaxHeaderFields = 200, 10
			before := len(wireChunked + "3\r\nabc\r\n")
			input := wireChunked + "3\r\nabc\r\n0\r\n" + test.trailer
			want := []string{test.want}
			if test.want == "none" {
				want, input = []string{"none", "none"}, input+wireNext
			}
			for cut := before; cut < min(len(input), before+250); cut += 1 + len(test.trailer)/50 {
				got = nil
				if answer := wireServe(t, s, &wireConn{parts: wireParts(input, cut)}); !slices.Equal(got, want) {
					t.Fatalf("%s by %s, cut at %d: %q, want %q\n%s", test.rule, name, cut-before, got, want, answer)
				}
			}
		}
	}
}

// A whole body is a part of the read buffer if it fits there, and otherwise has a buffer of its own.
func TestBodyInPlace(t *testing.T) {
	head := wirePOST + "Content-Length: 1000\r\n\r\n"
	room := http1.ReadBufferSize - len(head)
	for _, test := range []struct {
		size    int
		inPlace bool
	}{{100, true}, {1000, true}, {room - 1, true}, {room, true}, {room + 1, false}, {http1.ReadBufferSize, false}} {
		wireForgetBuffers()
		s := wireServer(t, func(c *Ctx) error {
			body, err := c.Body()
			if err != nil || len(body) != test.size || cap(body) != len(body) && test.inPlace {
				t.Errorf("%d bytes: got %d with capacity %d, %v", test.size, len(body), cap(body), err)
			}
			behind := unsafe.Add(unsafe.Pointer(&c.Request.head[0]), len(head))
			if inPlace := unsafe.Pointer(&body[0]) == behind; inPlace != test.inPlace {
				t.Errorf("%d bytes: behind the head in the read buffer is %t", test.size, inPlace)
			}
			if large := c.Request.body.large != nil; large == test.inPlace {
				t.Errorf("%d bytes: a buffer of its own is %t", test.size, large)
			}
			if room := c.exchange.wire.(*conn).in.Room(); room > http1.ReadBufferSize-len(head) {
				t.Errorf("%d bytes: the read buffer has grown, to room for %d", test.size, room)
			}
			return c.NoContent()
		})
		request := strings.Replace(head, "1000", fmt.Sprintf("%04d", test.size), 1) + strings.Repeat("x", test.size)
		for _, cut := range []int{0, len(head), len(head) + 50} {
			if answer := wireServe(t, s, &wireConn{parts: wireParts(request, cut)}); !strings.HasPrefix(answer, "HTTP/1.1 204 ") {
				t.Errorf("%d bytes, cut at %d: %q", test.size, cut, answer)
			}
		}
	}
}

// A client that announces 1 GB and sends ten bytes makes the server allocate next to nothing.
func TestBodyAnnounced(t *testing.T) {
	const gigabyte = 1 << 30
	for name, request := range map[string]string{
		"length": wirePOST + fmt.Sprintf("Content-Length: %d\r\n\r\n0123456789", gigabyte),
		"chunk":  wireChunked + fmt.Sprintf("%x\r\n0123456789", gigabyte),
	} {
		for _, reader := range []string{"Body", "ReadAll"} {
			var result string
			s := wireServer(t, func(c *Ctx) error {
				c.SetMaxBodyBytes(2 * gigabyte)
				_, err := wireReaders[reader](c)
				result = wireError(err)
				return err
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			wireServe(t, s, &wireConn{parts: wireParts(request)})
			runtime.ReadMemStats(&after)
			if result != "400, truncated" {
				t.Errorf("%s by %s: %s", name, reader, result)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
				t.Errorf("%s by %s: %d bytes were allocated", name, reader, allocated)
			}
		}
	}
}

const wirePOST = "POST / HTTP/1.1\r\nHost: a\r\n"

// wireEachByte returns a cut after each byte.
func wireEachByte(input []byte) []int {
	cuts := make([]int, len(input))
	for i := range cuts {
		cuts[i] = i + 1
	}
	return cuts
}

// wireForgetBuffers empties the free lists of buffers, so that sizes don't depend on what other tests left there.
func wireForgetBuffers() {
	largeBuffers = lend.Buffers{}
	for w := scratches.Get().(*scratch); w.out != nil || w.ctx != nil; w = scratches.Get().(*scratch) { // until the pool is empty, and Get makes a new one
	}
}

// The announced length is allocated only once a sixteenth of the body has arrived. Until then the buffer has room for at most eight times
// the bytes that have arrived; then it gets room for the rest at once. Without an announced length the room doubles.
func TestBodyGrows(t *testing.T) {
	const size = 4 << 20
	piece := bytes.Repeat([]byte("filo"), 16<<10)
	parts := func(head string) [][]byte {
		parts := [][]byte{[]byte(head)}
		for range size / len(piece) {
			parts = append(parts, piece)
		}
		return parts
	}
	for name, head := range map[string]string{
		"length": wirePOST + fmt.Sprintf("Content-Length: %d\r\n\r\n", size), "chunk": wireChunked + fmt.Sprintf("%x\r\n", size),
	} {
		t.Run(name, func(t *testing.T) {
			wireForgetBuffers()
			s := wireServer(t, func(c *Ctx) error {
				c.SetMaxBodyBytes(-1)
				body, err := c.Body()
				if err != nil || len(body) != size || !bytes.HasSuffix(body, piece) {
					t.Errorf("%d bytes, %v", len(body), err)
				}
				return c.NoContent()
			})
			conn := &wireConn{parts: parts(head)}
			if name == "chunk" {
				conn.parts = append(conn.parts, []byte("\r\n0\r\n\r\n"))
			}
			steps := 2
			if name == "length" {
				steps = 8
			}
			conn.reading = func(space []byte) {
				received := conn.sent - len(head)
				switch capacity := received + len(space); {
				case received <= 0 || received >= size || len(space) == http1.ReadBufferSize:
				case name == "length" && received >= size/16+len(piece):
					if capacity != size {
						t.Errorf("with %d bytes received there is room for %d, want all", received, capacity)
					}
				case capacity > max(steps*received, firstBodyBuffer) && capacity != size:
					t.Errorf("with %d bytes received there is room for %d", received, capacity)
				case capacity == size && received < size/16:
					t.Errorf("with %d bytes received the announced length is believed", received)
				}
			}
			wireServe(t, s, conn)
		})
	}
}

// The buffer of a large body is reused for the next large body, and a worker keeps the buffer of a small one.
func TestBodyMemoryIsReused(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector it is overwritten and, if large, not used again")
	}
	for _, size := range []int{10_000, 50_000, 2 << 20} {
		wireForgetBuffers()
		var places []*byte
		s := wireServer(t, func(c *Ctx) error {
			body, err := c.Body()
			if err != nil || len(body) != size {
				t.Errorf("%d bytes, %v", len(body), err)
			}
			places = append(places, unsafe.SliceData(body))
			return c.NoContent()
		})
		request := wireFixed(strings.Repeat("x", size))
		wireServe(t, s, &wireConn{parts: wireParts(strings.Repeat(request, 3))})
		if len(places) != 3 || places[1] != places[2] {
			t.Errorf("%d bytes: the memory isn't used again", size)
		}
		if size > maxKeptBody && unsafe.SliceData(largeBuffers.Get(size)) != places[2] {
			t.Errorf("%d bytes: the memory isn't kept", size)
		}
	}
}

// "Later calls return the same result", and BodyReader reads the bytes that Body returns.
func TestBodyTwice(t *testing.T) {
	for name, body := range map[string]string{"small": "0123456789", "large": strings.Repeat("0123456789", 1000), "empty": ""} {
		for _, request := range []string{wireFixed(body), wireChunked + strings.TrimPrefix(wireChunkOf(body), "0\r\n\r\n") + "0\r\n\r\n"} {
			s := wireServer(t, func(c *Ctx) error {
				first, err := c.Body()
				second, err2 := c.Body()
				if err != nil || err2 != nil || string(first) != body || string(second) != body || unsafe.SliceData(first) != unsafe.SliceData(second) {
					t.Errorf("%s: Body twice: %.20q %v, %.20q %v", name, first, err, second, err2)
				}
				some := make([]byte, 3)
				if n, _ := io.ReadFull(c.BodyReader(), some); string(some[:n]) != body[:min(3, len(body))] {
					t.Errorf("%s: the reader after Body begins with %q", name, some[:n])
				}
				if third, err := c.Body(); err != nil || string(third) != body {
					t.Errorf("%s: Body after a reader that came after Body: %d bytes, %v, want %d", name, len(third), err, len(body))
				}
				rest, err := io.ReadAll(c.BodyReader())
				if err != nil || string(rest) != body[min(3, len(body)):] {
					t.Errorf("%s: the reader goes on with %.20q, %v", name, rest, err)
				}
				if n, err := c.BodyReader().Read(some); n != 0 || err != io.EOF {
					t.Errorf("%s: the reader at the end gives %d, %v", name, n, err)
				}
				return c.NoContent()
			})
			wireServe(t, s, &wireConn{parts: wireParts(request)})
		}
	}
}

// Readers share one position. Body, called after them, returns the rest at each call. A read of no bytes changes nothing.
func TestBodyReaderThenBody(t *testing.T) {
	for _, size := range []int{10, 10_000} {
		body := strings.Repeat("0123456789", size/10)
		for _, request := range []string{wireFixed(body), wireChunked + wireChunkOf(body[:5]) + wireChunkOf(body[5:]) + "0\r\n\r\n"} {
			s := wireServer(t, func(c *Ctx) error {
				some := make([]byte, 2)
				for i := range 2 {
					if n, err := c.BodyReader().Read(nil); n != 0 || err != nil {
						t.Errorf("a read of no bytes gave %d, %v", n, err)
					}
					if _, err := io.ReadFull(c.BodyReader(), some); err != nil || string(some) != body[2*i:2*i+2] {
						t.Errorf("reader %d read %q, %v", i, some, err)
					}
				}
				for range 2 {
					if rest, err := c.Body(); err != nil || string(rest) != body[4:] {
						t.Errorf("Body after the readers: %d bytes, %v, want %d", len(rest), err, len(body)-4)
					}
				}
				return c.NoContent()
			})
			wireServe(t, s, &wireConn{parts: wireParts(request)})
		}
	}
}

// Bytes are borrowed until the handler returns: the target, the fields and the body don't change while the handler makes the connection
// read on, whatever follows the request.
func TestBorrowedBytesStay(t *testing.T) {
	fields := ""
	for i := range 60 {
		fields += fmt.Sprintf("X-Field-%d: %s\r\n", i, strings.Repeat(string(rune('a'+i%26)), 40))
	}
	data := strings.Repeat("0123456789abcdef", 10_000)
	trailer := "X-Trailer: " + strings.Repeat("t", 9000) + "\r\n"
	small := strings.Repeat("s", 300)
	target := "/" + strings.Repeat("p", 300) + "?" + strings.Repeat("q", 300)
	head := strings.Replace(wirePOST, "/", target, 1) + fields
	for name, request := range map[string]string{
		"length":                  head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(data), data),
		"small":                   head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(small), small),
		"one chunk":               head + "Transfer-Encoding: chunked\r\n\r\n" + wireChunkOf(data) + "0\r\n\r\n",
		"chunks, a large trailer": head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(wireChunkOf(data[:1600]), 100) + "0\r\n" + trailer + "\r\n",
	} {
		body := data
		if name == "small" {
			body = small
		}
		for reader, read := range wireReaders {
			if reader == "byte by byte" {
				continue
			}
			requests := 0
			s := wireServer(t, func(c *Ctx) error {
				if requests++; requests == 2 {
					return c.NoContent()
				}
				r := &c.Request
				lent := [][]byte{r.TargetBytes(), r.MethodBytes(), r.HostBytes(), c.PathBytes(), r.URI().RawQueryBytes()}
				for name, value := range r.Header.All() {
					lent = append(lent, name, value)
				}
				want := bytes.Join(lent, nil)
				got, err := read(c)
				if err != nil || got != body {
					t.Errorf("%s by %s: %d bytes, %v", name, reader, len(got), err)
				}
				if !bytes.Equal(bytes.Join(lent, nil), want) {
					t.Errorf("%s by %s: what was borrowed has changed", name, reader)
				}
				if got := r.Header.Get("X-Field-59"); got != strings.Repeat("h", 40) {
					t.Errorf("%s by %s: a field has changed to %q", name, reader, got)
				}
				return c.NoContent()
			})
			for _, piece := range []int{100, 1460, 5000, 1 << 20} {
				requests = 0
				input := request + wireNext
				var cuts []int
				for cut := piece; cut < len(input); cut += piece {
					cuts = append(cuts, cut)
				}
				wireServe(t, s, &wireConn{parts: wireParts(input, cuts...)})
				if requests != 2 {
					t.Errorf("%s by %s in pieces of %d: %d requests, want 2", name, reader, piece, requests)
				}
			}
		}
	}
}

// A body in the read buffer stays unchanged while the watch for the request's context receives the next request into the same buffer.
func TestBorrowedBodyStaysWhileWatched(t *testing.T) {
	body := strings.Repeat("b", 1000)
	for _, cut := range []int{0, 10, 500, 999, 1000} {
		var paths []string
		watched := make(chan struct{})
		conn := &wireConn{}
		input := wireFixed(body) + wireNext
		begin := len(input) - len(wireNext)
		conn.parts = wireParts(input, begin-len(body)+cut, begin)
		reads := 0
		conn.reading = func([]byte) {
			if conn.sent == len(input) {
				if reads++; reads == 1 {
					close(watched) // this is the read after the one that received the next request
				}
			}
		}
		s := wireServer(t, func(c *Ctx) error {
			paths = append(paths, c.Path())
			if c.Path() == "/next" {
				return c.NoContent()
			}
			got, err := c.Body()
			host := c.HostBytes()
			c.Context().Done()
			<-watched
			if err != nil || string(got) != body || string(host) != "a" {
				t.Errorf("cut at %d: the body has changed to %.20q, the host to %q, %v", cut, got, host, err)
			}
			return c.NoContent()
		})
		wireServe(t, s, conn)
		if !slices.Equal(paths, []string{"/", "/next"}) {
			t.Errorf("cut at %d: the requests were %q", cut, paths)
		}
	}
}

// wireNetHTTP returns how net/http parses a connection's input, a line for each request that a handler of filo would see: method, target,
// body, and whether the body was complete.
func wireNetHTTP(input []byte) []string {
	var requests []string
	// The buffer is as large as any trailer, since net/http accepts a trailer only as far as it fits into the buffer.
	reader := bufio.NewReaderSize(bytes.NewReader(input), 1<<20)
	for {
		for range 4 {
			if line, _ := reader.Peek(2); string(line) == "\r\n" {
				reader.Discard(2)
			}
		}
		request, err := http.ReadRequest(reader)
		if err != nil {
			return append(requests, err.Error())
		}
		body, err := io.ReadAll(request.Body)
		if request.RequestURI != "*" {
			requests = append(requests, fmt.Sprintf("%s %s %q %t", request.Method, request.RequestURI, body, err == nil))
		}
		if err != nil {
			return append(requests, err.Error())
		}
	}
}

// A connection's input means the same however it is cut, and whether a handler reads its bodies or not. From the first request to the last,
// filo and net/http see the same requests and bodies: so neither can be made to see a request where the other sees a body. The exceptions
// are those of FuzzRequestHead and FuzzChunked.
func FuzzConnection(f *testing.F) {
	for _, test := range wireBodies {
		f.Add([]byte(test.request+wireNext), uint16(len(test.request)))
	}
	for _, test := range wireMalformedChunks {
		f.Add([]byte(wireChunked+test.input+wireNext), uint16(len(wireChunked)))
	}
	for _, seed := range conformance.Seeds() {
		if len(seed) < 2000 {
			f.Add(seed, uint16(len(seed)/2))
		}
	}
	var seen []string
	var readBodies bool
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error {
		request := c.Method() + " " + c.Request.Target()
		if readBodies {
			body, err := c.Body()
			request += fmt.Sprintf(" %q %t", body, err == nil)
		}
		seen = append(seen, request)
		return c.NoContent()
	}}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, input []byte, cut uint16) {
		serve := func(read bool, cuts ...int) ([]string, string) {
			seen, readBodies = nil, read
			answers := wireServe(t, s, &wireConn{parts: wireParts(string(input), cuts...)})
			return seen, strings.ReplaceAll(answers, "HTTP/1.1 100 Continue\r\n\r\n", "")
		}
		whole, answers := serve(true)
		at := min(int(cut), len(input))
		for _, cuts := range [][]int{{at}, {at / 2, at}, wireEachByte(input)[:min(len(input), 500)]} {
			if parts, partAnswers := serve(true, cuts...); !slices.Equal(parts, whole) || partAnswers != answers {
				t.Fatalf("cut at %d: %q, whole: %q\n%s\nwhole:\n%s", cuts, parts, whole, partAnswers, answers)
			}
		}
		unread, _ := serve(false)
		for i := range min(len(unread), len(whole)) {
			if !strings.HasPrefix(whole[i], unread[i]+" ") {
				t.Fatalf("with bodies read: %q, unread: %q", whole, unread)
			}
		}
		want := wireNetHTTP(input)
		for i, request := range whole {
			if strings.HasSuffix(request, " false") {
				return // what net/http makes of a malformed body doesn't matter
			}
			if i < len(want) && request == want[i] {
				continue
			}
			last := want[len(want)-1]
			if i >= len(want)-2 && (strings.Contains(last, "bad trailer key") || strings.Contains(last, "header line too long")) {
				return
			}
			t.Fatalf("request %d of %q, net/http: %q", i, whole, want)
		}
	})
}
