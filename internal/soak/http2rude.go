package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames renders a client's frames.
type frames struct {
	bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	nextID uint32
}

// newFrames begins with the preface and the SETTINGS.
func newFrames(settings ...http2.Setting) *frames {
	f := &frames{nextID: 1}
	f.framer = http2.NewFramer(f, nil)
	f.fields = hpack.NewEncoder(&f.block)
	f.WriteString(http2.ClientPreface)
	f.framer.WriteSettings(settings...)
	return f
}

// request adds a request, whose content comes in frames of up to most bytes.
func (f *frames) request(q *request, most int) (id uint32) {
	id = f.nextID
	f.nextID += 2
	f.block.Reset()
	for _, field := range [][2]string{{":method", q.method}, {":scheme", "http"}, {":authority", "soak.test"}, {":path", q.target}} {
		f.fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	f.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: len(q.content) == 0,
	})
	for rest := q.content; len(rest) > 0; {
		p := rest[:min(most, len(rest))]
		rest = rest[len(p):]
		f.framer.WriteData(id, len(rest) == 0, p)
	}
	return id
}

// windows begins with closed windows, and opens them bit by bit: the server must send exactly what each of them allows.
func windows(v *visit) error {
	defer func() { v.reader.Discard(v.reader.Buffered()) }() // a server that shuts down says so after the answers
	out := newFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	type stream struct {
		q    *request
		id   uint32
		got  answer
		over bool
	}
	streams := make([]*stream, 1+v.random.IntN(4))
	for i := range streams {
		q := v.content(v.random.IntN(200 << 10))
		if v.random.IntN(2) == 0 {
			q = v.stream(v.random.IntN(200 << 10))
		}
		streams[i] = &stream{q: q, id: out.request(q, 0)}
	}
	v.Write(out.Bytes())
	in := http2.NewFramer(v, v.reader)
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	byID := func(id uint32) *stream {
		i := slices.IndexFunc(streams, func(s *stream) bool { return s.id == id })
		if i < 0 {
			return nil
		}
		return streams[i]
	}
	window := 65535 // of the connection
	// next takes a frame. DATA must belong to stream id, and its length must not exceed left.
	next := func(id uint32, left int) (n int, err error) {
		frame, err := in.ReadFrame()
		if err != nil {
			if v.excused() && !errors.Is(err, os.ErrDeadlineExceeded) {
				return 0, errInterrupted
			}
			return 0, fmt.Errorf("%s: %w", byID(id).q, err)
		}
		s := byID(frame.Header().StreamID)
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			fmt.Sscan(frame.PseudoValue("status"), &s.got.status)
			fields := frame.RegularFields()
			s.got.values = func(name string) (values []string) {
				for _, f := range fields {
					if len(f.Name) == len(name) && bytes.EqualFold([]byte(f.Name), []byte(name)) {
						values = append(values, f.Value)
					}
				}
				return values
			}
			s.over = frame.StreamEnded()
		case *http2.DataFrame:
			n = len(frame.Data())
			if s.id != id && n > 0 || n > left {
				return 0, fmt.Errorf("stream %d sends %d bytes while %d has a window for %d", s.id, n, id, left)
			}
			s.got.body = append(s.got.body, frame.Data()...)
			s.over = frame.StreamEnded()
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				return 0, in.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				return 0, in.WritePing(true, frame.Data)
			}
		case *http2.GoAwayFrame:
			if !v.excused() || frame.ErrCode != http2.ErrCodeNo {
				return 0, fmt.Errorf("GOAWAY with %v %q", frame.ErrCode, frame.DebugData())
			}
			if frame.LastStreamID < streams[len(streams)-1].id {
				return 0, errInterrupted
			}
		case *http2.RSTStreamFrame:
			return 0, fmt.Errorf("%s: reset with %v", s.q, frame.ErrCode)
		}
		return n, nil
	}
	for {
		open := slices.DeleteFunc(slices.Clone(streams), func(s *stream) bool { return s.over })
		if len(open) == 0 {
			break
		}
		s := open[v.random.IntN(len(open))]
		left := len(s.q.want) - len(s.got.body)
		if left > 0 {
			left = min(left, 1024+v.random.IntN(48<<10))
			in.WriteWindowUpdate(s.id, uint32(left))
			if left > window {
				v.sleep(time.Millisecond)
				in.WriteWindowUpdate(0, 128<<10)
				window += 128 << 10
			}
			window -= left
		}
		for end := len(s.got.body)+left == len(s.q.want); left > 0 || end && !s.over; {
			n, err := next(s.id, left)
			if err != nil {
				return err
			}
			left -= n
		}
	}
	for _, s := range streams {
		if err := s.q.check(&s.got); err != nil {
			return fmt.Errorf("%s: %w", s.q, err)
		}
		v.count.done.Add(1)
	}
	return nil
}

// someFrames are the frames of a client that opens its windows, sends bodies, and cancels some requests.
func (v *visit) someFrames() *frames {
	out := newFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	out.framer.WriteWindowUpdate(0, 1<<24)
	requests := v.some(6)
	switch v.random.IntN(4) {
	case 0:
		requests = append(requests, v.upload(40<<10))
	case 1:
		requests = append(requests, v.content(largeBody), v.stream(largeBody))
	case 2:
		requests = append(requests, v.call("/context"))
	}
	for _, q := range requests {
		id := out.request(q, 1+v.random.IntN(16<<10))
		switch v.random.IntN(6) {
		case 0:
			out.framer.WriteRSTStream(id, http2.ErrCodeCancel)
		case 1:
			out.framer.WritePing(false, [8]byte{1})
		}
	}
	return out
}

// cuts ends a connection anywhere within the bytes that it sends.
func cuts(v *visit) error {
	b := v.someFrames().Bytes()
	v.Write(b[:v.random.IntN(len(b)+1)])
	v.sleep(8 * time.Millisecond)
	if v.random.IntN(2) == 0 {
		v.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		io.CopyN(io.Discard, v, v.random.Int64N(largeBody/2))
	}
	if v.random.IntN(2) == 0 {
		v.reset()
	}
	v.count.done.Add(1)
	return nil
}

// frameGarbage changes some of the bytes that it sends. Whatever they mean, the connection must end soon after the client's side has ended.
func frameGarbage(v *visit) error {
	b := v.someFrames().Bytes()
	for range 1 + v.random.IntN(4) {
		b[v.random.IntN(len(b))] = byte(v.random.Uint32())
	}
	go func() {
		v.Write(b) // the server needn't read all of it
		v.CloseWrite()
	}()
	if _, err := io.Copy(io.Discard, v.reader); errors.Is(err, os.ErrDeadlineExceeded) {
		return hang(fmt.Errorf("the connection isn't closed after %v", v.run.patience))
	}
	v.count.done.Add(1)
	return nil
}
