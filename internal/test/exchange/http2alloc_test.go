//go:build !race

package exchange

import (
	"bytes"
	"encoding/binary"
	"io"
	"strconv"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Requests returns the frames of this number of requests, and the offsets of the stream numbers in them. No field is added to HPACK's
// table, so the frames can be sent again with other numbers.
func http2Requests(streams int, method string, body []byte) (frames []byte, numbers []int) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := []string{":method", method, ":scheme", "http", ":authority", "a", ":path", "/path?q=1", "user-agent", "test"}
	if body != nil {
		fields = append(fields, "content-length", strconv.Itoa(len(body)))
	}
	for i := 0; i < len(fields); i += 2 {
		encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	var out bytes.Buffer
	framer := http2.NewFramer(&out, nil)
	const stream = 5 // the offset of the stream's number in a frame
	for range streams {
		numbers = append(numbers, out.Len()+stream)
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == nil})
		if body != nil {
			numbers = append(numbers, out.Len()+stream)
			framer.WriteData(1, true, body)
		}
	}
	return out.Bytes(), numbers
}

// A quick request causes no allocation, whether it arrives alone or together with others.
func TestHTTP2Allocations(t *testing.T) {
	if filotest.Blocking() {
		t.Skip("of the loop driver")
	}
	const streams = 10
	body := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for _, test := range []struct {
		name    string
		body    []byte
		handler filo.Handler
	}{
		{"GET", nil, func(c *filo.Ctx) error { return c.Text(200, answerEnd) }},
		{"GET with fields", nil, func(c *filo.Ctx) error {
			c.Response.Header.Set("Cache-Control", "no-store")
			if c.Request.Header.Get("User-Agent") != "test" || string(c.Request.Query().GetBytes("q")) != "1" {
				return filo.Error(500, "")
			}
			return c.BytesNoCopy(200, "text/plain", answerGiven)
		}},
		{"POST", body, func(c *filo.Ctx) error {
			if b, err := c.Body(); err != nil || len(b) != len(body) {
				return filo.Error(500, "")
			}
			return c.Text(200, answerEnd)
		}},
		{"POST, with a trailer", body, func(c *filo.Ctx) error {
			if b, err := c.Body(); err != nil || len(b) != len(body) {
				return filo.Error(500, "")
			}
			c.Response.Trailer.Set("Grpc-Status", "0")
			return c.Bytes(200, "application/grpc", answerGiven)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The handler is inline: on a slow machine, the server might measure it as slow, and run it in other workers, whose buffers
			// haven't grown yet.
			_, dial := filotest.ServeRawHTTP2(t, &filo.Server{Handler: filo.Inline(test.handler)}, false)
			c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			c.Add(func(f *http2.Framer) { f.WriteWindowUpdate(0, 1<<30) }).Send()
			method := "GET"
			if test.body != nil {
				method = "POST"
			}
			frames, numbers := http2Requests(streams, method, test.body)
			perRequest := len(numbers) / streams
			in, id := make([]byte, 64<<10), uint32(1)
			exchange := func() {
				for i, at := range numbers {
					binary.BigEndian.PutUint32(frames[at:], id+uint32(2*(i/perRequest)))
				}
				id += 2 * streams
				if _, err := c.Write(frames); err != nil {
					t.Fatal(err)
				}
				for ended := 0; ended < streams; {
					if _, err := io.ReadFull(c, in[:9]); err != nil {
						t.Fatal(err)
					}
					size, kind, flags := binary.BigEndian.Uint32(in)>>8, http2.FrameType(in[3]), http2.Flags(in[4])
					if _, err := io.ReadFull(c, in[:size]); err != nil {
						t.Fatal(err)
					}
					switch {
					case kind == http2.FrameHeaders && !flags.Has(http2.FlagHeadersEndStream) && in[0] != 0x88: // :status 200; a trailer has none
						t.Fatalf("a head begins with %#x", in[0])
					case kind == http2.FrameHeaders || kind == http2.FrameData:
						if flags.Has(http2.FlagDataEndStream) {
							ended++
						}
					case kind == http2.FrameGoAway || kind == http2.FrameRSTStream:
						t.Fatalf("the server sent %v: %x", kind, in[:size])
					}
				}
			}
			for range 200 { // let buffers and pools reach their final size
				exchange()
			}
			// On a busy machine, a batch may take so long that another worker takes the connection over, so the measurement is repeated.
			allocs := 1.0
			for try := 0; try < 10 && allocs != 0; try++ {
				allocs = testing.AllocsPerRun(500, exchange)
			}
			if allocs != 0 {
				t.Errorf("%v allocations for %d requests, want none", allocs, streams)
			}
		})
	}
}
