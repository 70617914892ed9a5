package http2

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/conformance/http2conf"
	xhttp2 "golang.org/x/net/http2"
)

// read reads all frames of b, which it passes to a Reader in parts of n bytes. It joins the pieces of a frame.
func read(b string, n int) (frames []Frame, fault Fault) {
	var r Reader
	return readFrom(&r, b, n)
}

func readFrom(r *Reader, b string, n int) (frames []Frame, fault Fault) {
	var in []byte
	for len(b) > 0 && fault == NoFault {
		k := min(n, len(b))
		in, b = append(in, b[:k]...), b[k:]
		for fault == NoFault {
			var f Frame
			var taken int
			// The capacity is the length, so that a read past the end panics.
			taken, fault = r.Next(&f, in[:len(in):len(in)])
			if taken == 0 {
				break
			}
			in = in[taken:]
			f.Payload = bytes.Clone(f.Payload)
			if last := len(frames) - 1; f.Follows {
				frames[last].Payload = append(frames[last].Payload, f.Payload...)
				frames[last].Size += f.Size
				frames[last].Flags = f.Flags
			} else {
				frames = append(frames, f)
			}
		}
	}
	if fault == NoFault && len(in) > 0 {
		frames = append(frames, Frame{Type: 0xff, Length: len(in)}) // bytes that belong to no complete frame
	}
	return frames, fault
}

var (
	start   = frameOf(FrameSettings, 0, 0, "")
	opening = frameOf(FrameHeaders, 0, 1, "x") // a field block that isn't complete
)

// frameTests are frames that follow start, each with the result that the RFC requires.
var frameTests = []struct {
	rfc   string
	bytes string
	want  Frame // Type, Flags and Length come from the bytes; not compared if the fault ends the connection
	fault Fault
}{
	// DATA: RFC 9113, section 6.1.
	{"6.1: DATA", frameOf(FrameData, 0, 1, "abc"), Frame{Payload: []byte("abc"), Size: 3, Stream: 1}, 0},
	{"6.1: END_STREAM", frameOf(FrameData, FlagEndStream, 1, "abc"), Frame{Payload: []byte("abc"), Size: 3, Stream: 1}, 0},
	{"6.1: empty", frameOf(FrameData, FlagEndStream, 1, ""), Frame{Stream: 1}, 0},
	{"4.1: the reserved bit is ignored", frameOf(FrameData, 0, 1<<31|1, "a"), Frame{Payload: []byte("a"), Size: 1, Stream: 1}, 0},
	{"4.1: unknown flags are ignored", frameOf(FrameData, 0xf6, 1, "a"), Frame{Payload: []byte("a"), Size: 1, Stream: 1}, 0},
	{"4.2: a frame of 16,384 bytes", frameOf(FrameData, 0, 1, strings.Repeat("a", 16384)),
		Frame{Payload: bytes.Repeat([]byte("a"), 16384), Size: 16384, Stream: 1}, 0},
	{"6.1: the entire payload is included in flow control", frameOf(FrameData, FlagPadded, 1, "\x02abc\x00\x00"),
		Frame{Payload: []byte("abc"), Size: 6, Stream: 1}, 0},
	{"6.1: padding of no bytes", frameOf(FrameData, FlagPadded|FlagEndStream, 1, "\x00abc"), Frame{Payload: []byte("abc"), Size: 4,
		Stream: 1}, 0},
	{"6.1: padding alone", frameOf(FrameData, FlagPadded, 1, "\x02\x00\x00"), Frame{Size: 3, Stream: 1}, 0},
	{"6.1: a receiver isn't obligated to verify padding", frameOf(FrameData, FlagPadded, 1, "\x02axy"), Frame{Payload: []byte("a"), Size: 4,
		Stream: 1}, 0},
	{"6.1: padding as long as the payload", frameOf(FrameData, FlagPadded, 1, "\x03abc"), Frame{Payload: nil, Stream: 1, Size: 4}, 0},
	{"6.1: padding longer than what remains", frameOf(FrameData, FlagPadded, 1, "\x04abc"), Frame{}, FaultPadding},
	{"6.1: padding of 255", frameOf(FrameData, FlagPadded, 1, "\xffabc"), Frame{}, FaultPadding},
	{"4.2: PADDED without the length of the padding", frameOf(FrameData, FlagPadded, 1, ""), Frame{}, FaultLength},
	{"6.1: stream 0", frameOf(FrameData, 0, 0, "a"), Frame{}, FaultNoStream},
	{"4.2: longer than SETTINGS_MAX_FRAME_SIZE", frameOf(FrameData, 0, 1, strings.Repeat("a", 16385)), Frame{}, FaultFrameSize},

	// HEADERS: section 6.2.
	{"6.2: HEADERS", frameOf(FrameHeaders, FlagEndHeaders, 1, "xy"), Frame{Payload: []byte("xy"), Stream: 1}, 0},
	{"6.2: END_STREAM", frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 3, "xy"), Frame{Payload: []byte("xy"), Stream: 3}, 0},
	{"6.2: an empty fragment", frameOf(FrameHeaders, FlagEndHeaders, 1, ""), Frame{Stream: 1}, 0},
	{"6.2: padding", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded, 1, "\x02xy\x00\x00"), Frame{Payload: []byte("xy"), Stream: 1}, 0},
	{"6.2: priority", frameOf(FrameHeaders, FlagEndHeaders|FlagPriority, 1, "\x00\x00\x00\x03\x10xy"), Frame{Payload: []byte("xy"),
		Stream: 1}, 0},
	{"6.2: padding and priority", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded|FlagPriority, 1, "\x01\x80\x00\x00\x00\x10xy\x00"),
		Frame{Payload: []byte("xy"), Stream: 1}, 0},
	{"6.2: padding that leaves nothing", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded, 1, "\x02\x00\x00"), Frame{Stream: 1}, 0},
	{"6.2: padding longer than what remains", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded, 1, "\x03xy"), Frame{}, FaultPadding},
	{"4.2: PADDED without the length of the padding", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded, 1, ""), Frame{}, FaultLength},
	{"4.2: PRIORITY without a priority", frameOf(FrameHeaders, FlagEndHeaders|FlagPriority, 1, "\x00\x00\x00\x03"), Frame{}, FaultLength},
	{"4.2: PADDED and PRIORITY without a whole priority", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded|FlagPriority, 1, "\x00\x00\x00\x00\x03"),
		Frame{}, FaultLength},
	{"6.2: padding that exceeds what the priority leaves", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded|FlagPriority, 1, "\x01\x00\x00\x00\x03\x00"),
		Frame{}, FaultPadding},
	{"6.2: and that isn't longer than the frame", frameOf(FrameHeaders, FlagEndHeaders|FlagPadded|FlagPriority, 1, "\x04\x00\x00\x00\x03\x10xyz"),
		Frame{}, FaultPadding},
	{"RFC 7540, 5.3.1: a stream that depends on itself", frameOf(FrameHeaders, FlagEndHeaders|FlagPriority, 1, "\x00\x00\x00\x01\x10xy"),
		Frame{Payload: []byte("xy"), Stream: 1}, FaultSelfDependency},
	{"6.2: stream 0", frameOf(FrameHeaders, FlagEndHeaders, 0, "xy"), Frame{}, FaultNoStream},
	{"4.2: longer than SETTINGS_MAX_FRAME_SIZE", frameOf(FrameHeaders, FlagEndHeaders, 1, strings.Repeat("a", 16385)), Frame{}, FaultFrameSize},

	// PRIORITY: section 6.3.
	{"6.3: PRIORITY", frameOf(FramePriority, 0, 1, "\x00\x00\x00\x03\x10"), Frame{Payload: []byte("\x00\x00\x00\x03\x10"), Stream: 1}, 0},
	{"6.3: 4 bytes", frameOf(FramePriority, 0, 1, "\x00\x00\x00\x03"), Frame{Payload: []byte("\x00\x00\x00\x03"), Stream: 1},
		FaultPriorityLength},
	{"6.3: 6 bytes", frameOf(FramePriority, 0, 1, "\x00\x00\x00\x03\x10\x00"),
		Frame{Payload: []byte("\x00\x00\x00\x03\x10\x00"), Stream: 1}, FaultPriorityLength},
	{"RFC 7540, 5.3.1: a stream that depends on itself", frameOf(FramePriority, 0, 3, "\x80\x00\x00\x03\x10"),
		Frame{Payload: []byte("\x80\x00\x00\x03\x10"), Stream: 3}, FaultSelfDependency},
	{"6.3: stream 0", frameOf(FramePriority, 0, 0, "\x00\x00\x00\x03\x10"), Frame{}, FaultNoStream},

	// RST_STREAM: section 6.4.
	{"6.4: RST_STREAM", frameOf(FrameReset, 0, 1, "\x00\x00\x00\x08"), Frame{Payload: []byte("\x00\x00\x00\x08"), Value: 8, Stream: 1}, 0},
	{"7: an unknown code", frameOf(FrameReset, 0, 1, "\xff\x00\x00\x08"), Frame{Payload: []byte("\xff\x00\x00\x08"), Value: 0xff000008,
		Stream: 1}, 0},
	{"6.4: 3 bytes", frameOf(FrameReset, 0, 1, "\x00\x00\x08"), Frame{}, FaultLength},
	{"6.4: 5 bytes", frameOf(FrameReset, 0, 1, "\x00\x00\x00\x00\x08"), Frame{}, FaultLength},
	{"6.4: stream 0", frameOf(FrameReset, 0, 0, "\x00\x00\x00\x08"), Frame{}, FaultNoStream},

	// SETTINGS: section 6.5.
	{"6.5: SETTINGS", frameOf(FrameSettings, 0, 0, "\x00\x03\x00\x00\x00\x64"), Frame{Payload: []byte("\x00\x03\x00\x00\x00\x64")}, 0},
	{"6.5: empty", frameOf(FrameSettings, 0, 0, ""), Frame{}, 0},
	{"6.5: ACK", frameOf(FrameSettings, FlagAck, 0, ""), Frame{}, 0},
	{"6.5: ACK with a payload", frameOf(FrameSettings, FlagAck, 0, "\x00\x03\x00\x00\x00\x64"), Frame{}, FaultLength},
	{"6.5: no multiple of 6 bytes", frameOf(FrameSettings, 0, 0, "\x00\x03\x00\x00\x00"), Frame{}, FaultLength},
	{"6.5: on a stream", frameOf(FrameSettings, 0, 1, ""), Frame{}, FaultStreamGiven},
	{"4.2: longer than SETTINGS_MAX_FRAME_SIZE", frameOf(FrameSettings, 0, 0, strings.Repeat("\x00\x03\x00\x00\x00\x64", 2731)), Frame{},
		FaultFrameSize},

	// PUSH_PROMISE: section 8.4.
	{"8.4: a client can't push", frameOf(FramePush, FlagEndHeaders, 1, "\x00\x00\x00\x02"), Frame{}, FaultPush},
	{"8.4: nor on stream 0", frameOf(FramePush, FlagEndHeaders, 0, "\x00\x00\x00\x02"), Frame{}, FaultPush},

	// PING: section 6.7.
	{"6.7: PING", frameOf(FramePing, 0, 0, "12345678"), Frame{Payload: []byte("12345678")}, 0},
	{"6.7: ACK", frameOf(FramePing, FlagAck, 0, "12345678"), Frame{Payload: []byte("12345678")}, 0},
	{"6.7: 7 bytes", frameOf(FramePing, 0, 0, "1234567"), Frame{}, FaultLength},
	{"6.7: 9 bytes", frameOf(FramePing, 0, 0, "123456789"), Frame{}, FaultLength},
	{"6.7: empty", frameOf(FramePing, 0, 0, ""), Frame{}, FaultLength},
	{"6.7: on a stream", frameOf(FramePing, 0, 1, "12345678"), Frame{}, FaultStreamGiven},

	// GOAWAY: section 6.8.
	{"6.8: GOAWAY", frameOf(FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x0b"), Frame{Value: 11}, 0},
	{"6.8: debug data", frameOf(FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00bye"), Frame{Payload: []byte("bye")}, 0},
	{"4.2: 7 bytes", frameOf(FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00"), Frame{}, FaultLength},
	{"6.8: on a stream", frameOf(FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00"), Frame{}, FaultStreamGiven},

	// WINDOW_UPDATE: section 6.9.
	{"6.9: on the connection", frameOf(FrameWindowUpdate, 0, 0, "\x00\x00\x01\x00"), Frame{Payload: []byte("\x00\x00\x01\x00"), Value: 256}, 0},
	{"6.9: on a stream", frameOf(FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff"), Frame{Payload: []byte("\x7f\xff\xff\xff"), Value: 1<<31 - 1,
		Stream: 1}, 0},
	{"6.9: the reserved bit is ignored", frameOf(FrameWindowUpdate, 0, 1, "\x80\x00\x00\x05"), Frame{Payload: []byte("\x80\x00\x00\x05"),
		Value: 5, Stream: 1}, 0},
	{"6.9: 0 on a stream", frameOf(FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00"), Frame{Payload: []byte("\x00\x00\x00\x00"), Stream: 1},
		FaultIncrement},
	{"6.9: the reserved bit alone", frameOf(FrameWindowUpdate, 0, 1, "\x80\x00\x00\x00"), Frame{Payload: []byte("\x80\x00\x00\x00"),
		Stream: 1}, FaultIncrement},
	{"6.9: 0 on the connection", frameOf(FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), Frame{}, FaultConnectionIncrement},
	{"6.9: 3 bytes", frameOf(FrameWindowUpdate, 0, 0, "\x00\x00\x01"), Frame{}, FaultLength},
	{"6.9: 5 bytes", frameOf(FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00\x01"), Frame{}, FaultLength},

	// CONTINUATION: section 6.10.
	{"6.10: without a block that goes on", frameOf(FrameContinuation, FlagEndHeaders, 1, "x"), Frame{}, FaultContinuation},
	{"6.10: stream 0", frameOf(FrameContinuation, FlagEndHeaders, 0, "x"), Frame{}, FaultNoStream},
	{"6.10: after the block has ended", opening + frameOf(FrameContinuation, FlagEndHeaders, 1, "x") + frameOf(FrameContinuation,
		FlagEndHeaders, 1, "x"),
		Frame{}, FaultContinuation},
	{"6.10: on another stream", opening + frameOf(FrameContinuation, 0, 3, "x"), Frame{}, FaultInBlock},
	{"6.2: DATA in a block", opening + frameOf(FrameData, 0, 1, "x"), Frame{}, FaultInBlock},
	{"6.2: HEADERS in a block", opening + frameOf(FrameHeaders, FlagEndHeaders, 1, "x"), Frame{}, FaultInBlock},
	{"6.2: PRIORITY in a block", opening + frameOf(FramePriority, 0, 3, "\x00\x00\x00\x03\x10"), Frame{}, FaultInBlock},
	{"6.2: RST_STREAM in a block", opening + frameOf(FrameReset, 0, 1, "\x00\x00\x00\x08"), Frame{}, FaultInBlock},
	{"6.2: SETTINGS in a block", opening + frameOf(FrameSettings, 0, 0, ""), Frame{}, FaultInBlock},
	{"6.2: PING in a block", opening + frameOf(FramePing, 0, 0, "12345678"), Frame{}, FaultInBlock},
	{"6.2: GOAWAY in a block", opening + frameOf(FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"), Frame{}, FaultInBlock},
	{"6.2: WINDOW_UPDATE in a block", opening + frameOf(FrameWindowUpdate, 0, 0, "\x00\x00\x01\x00"), Frame{}, FaultInBlock},
	{"5.5: an unknown frame in a block", opening + frameOf(0x20, 0, 1, "x"), Frame{}, FaultInBlock},
	{"4.2: CONTINUATION longer than SETTINGS_MAX_FRAME_SIZE", opening + frameOf(FrameContinuation, 0, 1, strings.Repeat("a", 16385)),
		Frame{}, FaultFrameSize},

	// PRIORITY_UPDATE: RFC 9218, section 7.1.
	{"RFC 9218, 7.1: PRIORITY_UPDATE", frameOf(FramePriorityUpdate, 0, 0, "\x00\x00\x00\x05u=1, i"), Frame{Payload: []byte("u=1, i"),
		Value: 5}, 0},
	{"RFC 9218, 7.1: the reserved bit is ignored", frameOf(FramePriorityUpdate, 0, 0, "\x80\x00\x00\x05"), Frame{Value: 5}, 0},
	{"RFC 9218, 7.1: 3 bytes", frameOf(FramePriorityUpdate, 0, 0, "\x00\x00\x00"), Frame{}, FaultLength},
	{"RFC 9218, 7.1: on a stream", frameOf(FramePriorityUpdate, 0, 5, "\x00\x00\x00\x05u=1"), Frame{}, FaultStreamGiven},

	// Unknown types: section 5.5.
	{"5.5: unknown types are discarded", frameOf(0x0a, 0xff, 7, "abc"), Frame{Payload: []byte("abc"), Size: 3, Stream: 7}, 0},
	{"5.5: empty, on the connection", frameOf(0xfe, 0, 0, ""), Frame{}, 0},
	{"4.2: longer than SETTINGS_MAX_FRAME_SIZE", frameOf(0x0a, 0, 1, strings.Repeat("a", 16385)), Frame{}, FaultFrameSize},
}

// Each frame is parsed in the same way, however its bytes are divided.
func TestReadFrames(t *testing.T) {
	for _, test := range frameTests {
		t.Run(test.rfc, func(t *testing.T) {
			parts := []int{1, 2, 3, 5, 8, 9, 10, 11, 13, 1 << 20}
			for cut := range min(len(test.bytes), 64) {
				parts = append(parts, len(start)+cut)
			}
			for _, n := range parts {
				frames, fault := read(start+test.bytes, n)
				if fault != test.fault {
					t.Fatalf("in parts of %d bytes: %q, want %q", n, fault, test.fault)
				}
				if fault != NoFault && !fault.OfStream() {
					continue
				}
				if len(frames) != 2 {
					t.Fatalf("in parts of %d bytes: %d frames", n, len(frames))
				}
				want, got := test.want, frames[1]
				want.Type, want.Flags, want.Length = FrameType(test.bytes[3]), Flags(test.bytes[4]), len(test.bytes)-FrameHeaderLen
				if fmt.Sprintf("%q %+v", got.Payload, got) != fmt.Sprintf("%q %+v", want.Payload, want) {
					t.Fatalf("in parts of %d bytes: %+v, want %+v", n, got, want)
				}
			}
		})
	}
}

// A frame whose last byte hasn't arrived isn't complete, and has no fault unless its first bytes are invalid.
func TestReadFrameCut(t *testing.T) {
	for _, test := range frameTests {
		for cut := range min(len(test.bytes), 2000) {
			frames, fault := read(start+test.bytes[:cut], 1<<20)
			if fault != NoFault && fault != test.fault {
				t.Fatalf("%s: the first %d bytes are %q, and the frame is %q", test.rfc, cut, fault, test.fault)
			}
			if test.fault == NoFault && fault != NoFault {
				t.Fatalf("%s: the first %d bytes are %q", test.rfc, cut, fault)
			}
			for _, f := range frames[1:] {
				if f.Type != 0xff && f.Type == FrameData && f.EndStream() {
					t.Fatalf("%s: the first %d bytes end the stream", test.rfc, cut)
				}
			}
		}
	}
}

// A frame that can't be valid is refused without waiting for its payload.
func TestReadFrameRefusedEarly(t *testing.T) {
	for _, test := range frameTests {
		switch test.fault {
		case FaultFrameSize, FaultLength, FaultNoStream, FaultStreamGiven, FaultPush, FaultContinuation:
		default:
			continue
		}
		if strings.HasPrefix(test.bytes, opening) || Flags(test.bytes[4]).Has(FlagPadded|FlagPriority) {
			continue
		}
		if _, fault := read(start+test.bytes[:FrameHeaderLen], 1<<20); fault != test.fault {
			t.Errorf("%s: the header alone is %q, want %q", test.rfc, fault, test.fault)
		}
	}
}

// RFC 9113, section 3.4: the preface is followed by SETTINGS.
func TestFirstFrame(t *testing.T) {
	for _, test := range []struct {
		bytes string
		want  Fault
	}{
		{frameOf(FrameSettings, 0, 0, ""), NoFault},
		{frameOf(FrameSettings, FlagAck, 0, ""), FaultFirstFrame},
		{frameOf(FramePing, 0, 0, "12345678"), FaultFirstFrame},
		{frameOf(FrameHeaders, FlagEndHeaders, 1, getBlock), FaultFirstFrame},
		{frameOf(FrameWindowUpdate, 0, 0, "\x00\x00\x01\x00"), FaultFirstFrame},
		{frameOf(0xfe, 0, 0, ""), FaultFirstFrame},
		{"GET / HTTP/1.1\r\n\r\n", FaultFirstFrame},
	} {
		if _, fault := read(test.bytes, 1<<20); fault != test.want {
			t.Errorf("%q: %q, want %q", test.bytes, fault, test.want)
		}
	}
}

// RFC 9113, section 3.4: the preface is 24 bytes.
func TestReadPreface(t *testing.T) {
	if len(Preface) != 24 {
		t.Fatalf("the preface has %d bytes", len(Preface))
	}
	for cut := range len(Preface) {
		if done, fault := ReadPreface([]byte(Preface[:cut])); done || fault != NoFault {
			t.Errorf("%q: %t, %v", Preface[:cut], done, fault)
		}
		wrong := []byte(Preface)
		wrong[cut] ^= 0x20
		for n := cut + 1; n <= len(wrong); n++ {
			if done, fault := ReadPreface(wrong[:n:n]); done || fault != FaultPreface {
				t.Errorf("%q: %t, %v", wrong[:n], done, fault)
			}
		}
	}
	if done, fault := ReadPreface([]byte(Preface + "\x00\x00")); !done || fault != NoFault {
		t.Errorf("with bytes behind it: %t, %v", done, fault)
	}
}

// Each piece of DATA has at least one byte of data, unless the whole frame has none.
func TestPiecesHaveData(t *testing.T) {
	whole := start + frameOf(FrameData, FlagPadded|FlagEndStream, 1, "\x05abc\x00\x00\x00\x00\x00")
	var r Reader
	var in []byte
	pieces, size := 0, 0
	for i := range len(whole) {
		in = append(in, whole[i])
		var f Frame
		n, fault := r.Next(&f, in)
		if fault != NoFault {
			t.Fatal(fault)
		}
		in = in[n:]
		if n == 0 || f.Type != FrameData {
			continue
		}
		last := i == len(whole)-1
		if pieces++; len(f.Payload) == 0 != last || f.Follows != (pieces > 1) || f.EndStream() != last {
			t.Errorf("after byte %d: %+v", i, f)
		}
		size += f.Size
	}
	if pieces != 4 || size != 9 {
		t.Errorf("%d pieces of %d bytes", pieces, size)
	}
}

// x/net's Framer reads the frames that a server appends.
func TestAppendedFrames(t *testing.T) {
	var b []byte
	b = (&Settings{MaxStreams: 128, MaxHeaderList: 16384, ExtendedConnect: true}).Append(b)
	b = AppendSettingsAck(b)
	b = AppendPing(b, FlagAck, [8]byte([]byte("12345678")))
	b = AppendWindowUpdate(b, 0, 1<<20)
	b = AppendWindowUpdate(b, 5, 77)
	b = AppendReset(b, 7, EnhanceYourCalm)
	b = AppendGoAway(b, 1<<31-1, NoError, strings.Repeat("a", 2000))
	b = append(AppendFrameHeader(b, 3, FrameData, FlagEndStream, 9), "abc"...)
	framer := xhttp2.NewFramer(io.Discard, bytes.NewReader(b))
	framer.SetMaxReadFrameSize(MaxFrameSize)
	for _, want := range []string{
		"[FrameHeader SETTINGS len=24] MAX_CONCURRENT_STREAMS=128 MAX_HEADER_LIST_SIZE=16384 ENABLE_CONNECT_PROTOCOL=1 NO_RFC7540_PRIORITIES=1",
		"[FrameHeader SETTINGS flags=ACK len=0]",
		"[FrameHeader PING flags=ACK len=8] 12345678",
		"[FrameHeader WINDOW_UPDATE len=4] 1048576",
		"[FrameHeader WINDOW_UPDATE stream=5 len=4] 77",
		"[FrameHeader RST_STREAM stream=7 len=4] ENHANCE_YOUR_CALM",
		"[FrameHeader GOAWAY len=1008] 2147483647 NO_ERROR 1000",
		"[FrameHeader DATA flags=END_STREAM stream=9 len=3] abc",
	} {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		got := f.Header().String()
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			f.ForeachSetting(func(s xhttp2.Setting) error {
				got += fmt.Sprintf(" %v=%d", s.ID, s.Val)
				return nil
			})
			got = strings.ReplaceAll(got, "UNKNOWN_SETTING_8", "ENABLE_CONNECT_PROTOCOL")
			got = strings.ReplaceAll(got, "UNKNOWN_SETTING_9", "NO_RFC7540_PRIORITIES")
		case *xhttp2.PingFrame:
			got += " " + string(f.Data[:])
		case *xhttp2.WindowUpdateFrame:
			got += fmt.Sprintf(" %d", f.Increment)
		case *xhttp2.RSTStreamFrame:
			got += " " + f.ErrCode.String()
		case *xhttp2.GoAwayFrame:
			got += fmt.Sprintf(" %d %v %d", f.LastStreamID, f.ErrCode, len(f.DebugData()))
		case *xhttp2.DataFrame:
			got += " " + string(f.Data())
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A field block of any length becomes HEADERS and CONTINUATION frames of at most 16,384 bytes. Only the last frame has END_HEADERS.
func TestEndHeaders(t *testing.T) {
	for _, length := range []int{0, 1, 16383, 16384, 16385, 32768, 32769, 100_000} {
		for _, endStream := range []bool{false, true} {
			block := make([]byte, length)
			for i := range block {
				block[i] = byte(i ^ i>>8)
			}
			b := EndHeaders(append(BeginHeaders([]byte("before")), block...), len("before"), 5, endStream)
			if !strings.HasPrefix(string(b), "before") {
				t.Fatalf("%d bytes: begins with %q", length, b[:6])
			}
			frames, fault := readFrom(&Reader{begun: true}, string(b[len("before"):]), 1<<20)
			if fault != NoFault || len(frames) != max(1, (length+16383)/16384) {
				t.Fatalf("%d bytes: %d frames, %v", length, len(frames), fault)
			}
			var got []byte
			for i, f := range frames {
				kind, last := FrameHeaders, i == len(frames)-1
				if i > 0 {
					kind = FrameContinuation
				}
				if f.Type != kind || f.Stream != 5 || f.Flags.Has(FlagEndHeaders) != last || f.Flags.Has(FlagEndStream) != (endStream && i == 0) {
					t.Errorf("%d bytes: frame %d is %+v", length, i, f)
				}
				got = append(got, f.Payload...)
			}
			if !bytes.Equal(got, block) {
				t.Errorf("%d bytes: another block", length)
			}
		}
	}
}

// A Reader parses the frames that x/net's Framer writes.
func TestReadFramesOfXNet(t *testing.T) {
	var b bytes.Buffer
	framer := xhttp2.NewFramer(&b, nil)
	framer.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 7})
	framer.WriteDataPadded(1, true, []byte("abc"), make([]byte, 9))
	framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("x"), PadLength: 3, EndHeaders: false,
		Priority: xhttp2.PriorityParam{StreamDep: 1, Exclusive: true, Weight: 5}})
	framer.WriteContinuation(3, true, []byte("y"))
	framer.WriteRSTStream(3, xhttp2.ErrCodeCancel)
	framer.WriteWindowUpdate(1, 99)
	framer.WriteGoAway(0, xhttp2.ErrCodeNo, []byte("bye"))
	framer.WritePing(false, [8]byte([]byte("12345678")))
	framer.WriteRawFrame(0x77, 0xff, 3, []byte("z"))
	frames, fault := read(b.String(), 7)
	var got []string
	for _, f := range frames {
		got = append(got, fmt.Sprintf("%d %d %q %d", f.Type, f.Stream, f.Payload, f.Value))
	}
	want := []string{`4 0 "\x00\x04\x00\x00\x00\a" 0`, `0 1 "abc" 0`, `1 3 "x" 0`, `9 3 "y" 0`, `3 3 "\x00\x00\x00\b" 8`,
		`8 1 "\x00\x00\x00c" 99`, `7 0 "bye" 0`, `6 0 "12345678" 0`, `119 3 "z" 0`}
	if fault != NoFault || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v, %v", got, fault)
	}
}

// FuzzReader checks that any bytes are parsed in the same way whether they arrive at once or in parts, and that no frame exceeds its limits.
func FuzzReader(f *testing.F) {
	for _, test := range frameTests {
		if len(test.bytes) < 100 {
			f.Add(start+test.bytes, 3)
		}
	}
	for _, seed := range http2conf.Seeds() {
		if frames, ok := strings.CutPrefix(string(seed), Preface); ok && len(frames) < 2000 {
			f.Add(frames, 7)
		}
	}
	f.Fuzz(func(t *testing.T, b string, n int) {
		whole, wholeFault := read(b, 1<<20)
		parts, partsFault := read(b, max(1, n&0xff))
		if wholeFault != partsFault {
			t.Fatalf("whole %v, in parts %v", wholeFault, partsFault)
		}
		if got, want := fmt.Sprintf("%+v", parts), fmt.Sprintf("%+v", whole); got != want {
			t.Fatalf("whole %s\nin parts %s", want, got)
		}
		size := 0
		for _, frame := range whole {
			if frame.Type == 0xff {
				continue
			}
			if frame.Length > MaxFrameSize || len(frame.Payload) > frame.Length {
				t.Fatalf("%+v", frame)
			}
			size += FrameHeaderLen + frame.Length
		}
		if wholeFault == NoFault && size > len(b)+MaxFrameSize {
			t.Fatalf("%d bytes of frames in %d", size, len(b))
		}
	})
}

func TestReaderAllocs(t *testing.T) {
	b := []byte(start + frameOf(FrameHeaders, FlagEndHeaders|FlagPadded, 1, "\x01xy\x00") + frameOf(FrameData, FlagEndStream, 1, "abc") +
		frameOf(FrameWindowUpdate, 0, 1, "\x00\x00\x01\x00") + frameOf(FramePing, 0, 0, "12345678"))
	out := make([]byte, 0, 200)
	if n := testing.AllocsPerRun(100, func() {
		var r Reader
		var f Frame
		for rest := b; len(rest) > 0; {
			n, _ := r.Next(&f, rest)
			rest = rest[n:]
		}
		out = AppendPing(AppendReset(AppendWindowUpdate(out[:0], 1, 5), 3, Cancel), FlagAck, [8]byte{})
		out = EndHeaders(append(BeginHeaders(out[:0]), "abc"...), 0, 1, true)
		out = (&Settings{MaxStreams: 5}).Append(out[:0])
		out = AppendGoAway(out[:0], 5, NoError, "bye")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkReadHeaders(b *testing.B) {
	frame := []byte(frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 1, getBlock))
	r := Reader{begun: true}
	var f Frame
	for b.Loop() {
		if n, _ := r.Next(&f, frame); n == 0 {
			b.Fatal("not whole")
		}
	}
}
