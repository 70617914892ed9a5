package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fuzzHTTP2Handler behaves in one of several ways, depending on the path's length.
func fuzzHTTP2Handler(c *filo.Ctx) error {
	switch len(c.Path()) % 8 {
	case 2:
		return echoBody(c)
	case 3:
		return echoReader(c)
	case 4:
		w := c.Stream()
		w.Write(http2ModelContent[:20_000])
		c.Response.Trailer.Set("X-End", "1")
		return w.Flush()
	case 5:
		return filo.ErrAbort
	case 6:
		c.SetTimeout(time.Millisecond, nil)
		<-c.Context().Done()
		return c.Context().Err()
	case 7:
		_, err := c.ParkStream(func(p *filo.ParkedConn, _ filo.Wake) error {
			_, err := p.Read(make([]byte, 10))
			return err
		})
		return err
	}
	return c.Text(200, c.Path())
}

// fuzzHTTP2Seeds are inputs that a client sends after its preface and SETTINGS.
func fuzzHTTP2Seeds() (seeds [][]byte) {
	for _, add := range []func(c *filotest.RawHTTP2){
		func(c *filotest.RawHTTP2) { c.Request(1, "/", true).Request(3, "/1", true, ":method", "HEAD") },
		func(c *filotest.RawHTTP2) { c.Request(1, "/2", false, ":method", "POST").Data(1, true, []byte("body")) },
		func(c *filotest.RawHTTP2) {
			c.Request(1, "/23", false, ":method", "POST", "content-length", "8").Data(1, false, []byte("some")).Data(1, true, []byte("more"))
		},
		func(c *filotest.RawHTTP2) {
			c.SetWindow(10).Request(1, "/234", true).Open(1, 1000).SetWindow(70_000).Open(1, 100_000)
		},
		func(c *filotest.RawHTTP2) {
			c.Request(1, "/2345", true).Request(3, "/23456", true).Request(5, "/234567", true)
		},
		func(c *filotest.RawHTTP2) {
			c.Request(1, "/2", false, ":method", "POST").Add(func(f *http2.Framer) {
				f.WriteRSTStream(1, http2.ErrCodeCancel)
				f.WriteDataPadded(1, true, []byte("late"), make([]byte, 5))
				f.WritePing(false, [8]byte{})
				f.WritePriority(3, http2.PriorityParam{StreamDep: 1, Weight: 2})
				f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize})
				f.WriteGoAway(0, http2.ErrCodeNo, nil)
			}).Request(3, "/", true)
		},
		func(c *filotest.RawHTTP2) {
			c.Add(func(f *http2.Framer) {
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndStream: true})
				f.WriteContinuation(1, false, []byte{0x86, 0x84})
				f.WriteContinuation(1, true, []byte{0x41, 1, 'a'})
				f.WriteRawFrame(0x10, 0, 0, []byte("\x00\x00\x00\x03u=1, i"))
				f.WriteRawFrame(0xfe, 1, 7, []byte("unknown"))
			})
		},
	} {
		c := filotest.NewRawHTTP2(nil, nil)
		c.Out.Reset()
		add(c)
		seeds = append(seeds, bytes.Clone(c.Out.Bytes()))
	}
	return seeds
}

// FuzzHTTP2 sends a client's input in pieces. The server must not panic, and must send only frames that a server may send. After the client
// has ended its side, the server must release all resources.
func FuzzHTTP2(f *testing.F) {
	for _, seed := range fuzzHTTP2Seeds() {
		for _, socket := range []bool{false, true} {
			f.Add(seed, uint16(0), true, socket)
			f.Add(seed, uint16(1), true, socket)
			f.Add(seed, uint16(7), true, socket)
		}
	}
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x01\x00\x00\x00\x00"), uint16(3), false, true)
	log := new(filotest.Log)
	s := filotest.Serve(f, &filo.Server{Logger: log.Logger(), Handler: fuzzHTTP2Handler, HTTP2: filo.HTTP2Options{Unencrypted: true}})
	listener := servertest.NewListener()
	memory := filotest.Serve(f, &filo.Server{Logger: log.Logger(), Handler: fuzzHTTP2Handler, HTTP2: filo.HTTP2Options{Unencrypted: true}}, listener)
	f.Fuzz(func(t *testing.T, input []byte, split uint16, greets, socket bool) {
		served, dial := memory, listener.Dial
		if socket {
			served, dial = s, func() (net.Conn, error) { return net.Dial("tcp", s.Addr) }
		}
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(filotest.Bound))
		var reading sync.WaitGroup
		reading.Go(func() {
			if greets {
				if err := checkServerHTTP2(conn); err != nil {
					t.Error(err)
				}
			} else if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Error(err)
			}
		})
		if greets {
			input = append([]byte(http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), input...)
		}
		for len(input) > 0 {
			n := len(input)
			if split > 0 {
				n = min(n, int(split))
			}
			if _, err := conn.Write(input[:n]); err != nil {
				break // the server has ended the connection
			}
			input = input[n:]
		}
		conn.(interface{ CloseWrite() error }).CloseWrite()
		reading.Wait()
		conn.Close()
		if !filotest.Try(func() bool { stats := served.Stats(); return stats.ConnsOpen == 0 && stats.Streams == 0 }) {
			t.Fatalf("left: %+v", served.Stats())
		}
		for _, line := range log.Lines("panic in ") {
			t.Fatal(line)
		}
	})
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// checkServerHTTP2 reads a server's frames to the end, and checks the rules that don't depend on the client's frames.
func checkServerHTTP2(conn net.Conn) error {
	framer := http2.NewFramer(nil, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.SetMaxReadFrameSize(16 << 10)
	last := uint32(1<<31 - 1)
	const headed, ended, reset = 1, 2, 4
	streams := make(map[uint32]int)
	for first := true; ; first = false {
		frame, err := framer.ReadFrame()
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF, filotest.IsReset(err):
			return nil // a server that lingers may reset the connection if the client sends too much
		case err != nil:
			return fmt.Errorf("reading frames: %w", err)
		}
		head := frame.Header()
		state := streams[head.StreamID]
		if _, ok := frame.(*http2.SettingsFrame); first && !ok {
			return fmt.Errorf("%v comes before SETTINGS", frame)
		}
		if head.StreamID%2 == 0 && head.StreamID > 0 || state&reset != 0 {
			return fmt.Errorf("%v on a stream in the state %b", frame, state)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status := f.PseudoValue("status")
			if state&ended != 0 || state&headed != 0 && (status != "" || !f.StreamEnded()) || state == 0 && len(status) != 3 {
				return fmt.Errorf("%v in the state %b", frame, state)
			}
			if status == "" || status[0] != '1' {
				streams[head.StreamID] |= headed
			}
			if f.StreamEnded() {
				streams[head.StreamID] |= ended
			}
		case *http2.DataFrame:
			if state != headed {
				return fmt.Errorf("%v in the state %b", frame, state)
			}
			if f.StreamEnded() {
				streams[head.StreamID] |= ended
			}
		case *http2.RSTStreamFrame:
			streams[head.StreamID] |= reset
		case *http2.GoAwayFrame:
			if f.LastStreamID > last {
				return fmt.Errorf("%v, after %d", frame, last)
			}
			last = f.LastStreamID
		case *http2.PushPromiseFrame, *http2.PriorityFrame:
			return fmt.Errorf("%v", frame)
		}
	}
}
