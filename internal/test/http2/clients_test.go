package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// The tests in this file imitate common clients. None of their habits may make the server end the connection.

// wantNoRefusals checks that the server has refused no request, and hasn't ended a connection because of glitches.
func wantNoRefusals(t *testing.T, s *filo.Server) {
	t.Helper()
	if refusals := s.Stats().Refusals; refusals != (filo.Refusals{}) {
		t.Errorf("the server has refused %+v", refusals)
	}
}

// net/http's client sends WINDOW_UPDATE for every 4 KB of an answer that the program reads, even if the whole answer has arrived long ago.
func TestHTTP2ClientReadsInPieces(t *testing.T) {
	const size, answers = 64 << 10, 100
	body := randomBytes(size)
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		s, c := serve(&filo.Server{HTTP2: filo.HTTP2Options{MaxGlitches: 20}, Handler: route(map[string]filo.Handler{
			"/file": func(c *filo.Ctx) error { return c.Bytes(200, "application/octet-stream", body) },
			"/echo": echoBody,
		})})
		upload, more := io.Pipe()
		beside := make(chan error, 1)
		go func() {
			response, err := c.Fetch(context.Background(), "POST", "/echo", upload)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			beside <- err
		}()
		piece := make([]byte, 4<<10)
		for range answers {
			response, err := c.Fetch(context.Background(), "GET", "/file", nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for err == nil {
				var read int
				read, err = io.ReadFull(response.Body, piece)
				n += read
			}
			if err != io.EOF || n != size {
				t.Fatalf("%d bytes, %v", n, err)
			}
			response.Body.Close()
		}
		io.WriteString(more, "done")
		more.Close()
		if err := filotest.Recv(t, beside, "the POST beside the answers"); err != nil {
			t.Errorf("the POST beside the answers: %v", err)
		}
		wantNoRefusals(t, s.Server)
	})
}

// Clients send some kinds of frames because of an answer, or after it. This test sends each kind after many answers on one connection.
func TestHTTP2ClientsBehindAnAnswer(t *testing.T) {
	const rounds = 60
	large := strings.Repeat("x", 60_000)
	for name, test := range map[string]struct {
		path    string
		upload  bool // the request has a body that doesn't end
		behind  func(c *frameClient, stream uint32)
		refused bool // no known client sends these frames
	}{
		"updates of 4 KB (Go)": {path: "/large", behind: func(c *frameClient, stream uint32) {
			for range len(large) / 4096 {
				c.done(c.WriteWindowUpdate(stream, 4096))
			}
		}},
		"one large update (Firefox)": {path: "/empty", behind: func(c *frameClient, stream uint32) { c.done(c.WriteWindowUpdate(stream, 1<<28)) }},
		"updates of both windows (Dart), small": {path: "/small", behind: func(c *frameClient, stream uint32) {
			c.done(c.WriteWindowUpdate(0, 5))
			c.done(c.WriteWindowUpdate(stream, 5))
		}},
		"the same with PING": {path: "/small", behind: func(c *frameClient, stream uint32) {
			c.done(c.WriteWindowUpdate(0, 5))
			c.done(c.WriteWindowUpdate(stream, 5))
			c.done(c.WritePing(false, [8]byte{7}))
		}},
		"RST_STREAM with NO_ERROR (grpc-go)":  {path: "/small", upload: true, behind: func(c *frameClient, stream uint32) { c.done(c.WriteRSTStream(stream, http2.ErrCodeNo)) }},
		"RST_STREAM with CANCEL (grpc-java)":  {path: "/small", upload: true, behind: func(c *frameClient, stream uint32) { c.done(c.WriteRSTStream(stream, http2.ErrCodeCancel)) }},
		"RST_STREAM of a stream that is over": {path: "/small", behind: func(c *frameClient, stream uint32) { c.done(c.WriteRSTStream(stream, http2.ErrCodeNo)) }},
		"more updates than bytes": {path: "/large", refused: true, behind: func(c *frameClient, stream uint32) {
			for range 2 * len(large) / 4096 {
				c.done(c.WriteWindowUpdate(stream, 4096))
			}
		}},
		"RST_STREAM again and again": {path: "/small", upload: true, refused: true, behind: func(c *frameClient, stream uint32) {
			for range 6 {
				c.done(c.WriteRSTStream(stream, http2.ErrCodeNo))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
				s := &filo.Server{HTTP2: filo.HTTP2Options{MaxGlitches: 20}, Handler: route(map[string]filo.Handler{
					"/large": func(c *filo.Ctx) error { return c.Text(200, large) },
					"/small": func(c *filo.Ctx) error { return c.Text(200, "small") },
					"/empty": func(c *filo.Ctx) error { return c.NoContent() },
				})}
				c := dial(s)
				c.done(c.WriteWindowUpdate(0, 1<<30))
				err := error(nil)
				for stream := uint32(1); stream < 2*rounds && err == nil; stream += 2 {
					method := "GET"
					if test.upload {
						method = "POST"
					}
					c.request(stream, method, test.path, !test.upload)
					if err = c.whole(stream); err == nil {
						test.behind(c, stream)
					}
				}
				if calm := s.Stats().Refusals.HTTP2Calm; calm > 0 != test.refused || (err != nil) != test.refused {
					t.Errorf("%v, %d connections were ended", err, calm)
				}
			})
		})
	}
}

// whole reads frames until the answer on a stream has ended.
func (c *frameClient) whole(stream uint32) error {
	for {
		switch frame, err := c.ReadFrame(); f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream && f.StreamEnded() {
				return nil
			}
		case *http2.DataFrame:
			if f.StreamID == stream && f.StreamEnded() {
				return nil
			}
		case *http2.GoAwayFrame:
			return errors.New(f.ErrCode.String())
		default:
			if err != nil {
				return err
			}
		}
	}
}

// The users of a proxy or of gRPC share a connection, and cancel requests. As long as at least as many requests are answered as are
// cancelled, no cancellation counts as a glitch.
func TestHTTP2ClientsCancel(t *testing.T) {
	const glitches = 20
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		s := &filo.Server{HTTP2: filo.HTTP2Options{MaxGlitches: glitches}, Handler: func(c *filo.Ctx) error {
			if c.Path() == "/cancelled" {
				<-c.Context().Done()
			}
			return c.Text(200, "ok")
		}}
		c := dial(s)
		cancel := func(stream uint32) {
			c.request(stream, "GET", "/cancelled", true)
			c.done(c.WriteRSTStream(stream, http2.ErrCodeCancel))
		}
		stream := uint32(1)
		for ; stream < 4*10*glitches; stream += 4 {
			c.request(stream, "GET", "/", true)
			c.done(c.whole(stream))
			cancel(stream + 2)
		}
		wantNoRefusals(t, s)
		for range 3 * glitches { // none of these is answered
			cancel(stream)
			stream += 2
		}
		if err := c.whole(stream); err == nil || err.Error() != http2.ErrCodeEnhanceYourCalm.String() {
			t.Errorf("requests that are cancelled without an end: %v", err)
		}
	})
}

// When a program cancels a request, net/http's client sends RST_STREAM and a PING. Together they count as one glitch.
func TestHTTP2ClientGivesUp(t *testing.T) {
	const requests = 30
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		s := &filo.Server{HTTP2: filo.HTTP2Options{MaxGlitches: requests + 5}, Handler: func(c *filo.Ctx) error {
			<-c.Context().Done()
			return nil
		}}
		c := dial(s)
		for i := range uint32(requests) {
			c.request(2*i+1, "GET", "/", true)
			c.done(c.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
			c.ping(byte(i))
			c.await(fmt.Sprintf("PING %d", i))
		}
		wantNoRefusals(t, s)
	})
}
