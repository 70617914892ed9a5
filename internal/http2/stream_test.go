package http2

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The diagram of RFC 9113, section 5.1: what each frame does in each state. A state's name alone means that the stream is in this state
// afterwards; "=" that its state doesn't change; "late" that the frame is discarded and charged; "drop" that the frame isn't sent. Other
// entries are the codes of faults. RST_STREAM answers the fault or, if the entry begins with "!", GOAWAY does.
const diagram = `
                      | idle              | open            | hc-remote      | hc-local         | closed          | reset
HEADERS               | open              | PROTOCOL_ERROR  | STREAM_CLOSED  | PROTOCOL_ERROR   | !STREAM_CLOSED  | late
HEADERS END_STREAM    | hc-remote         | hc-remote       | STREAM_CLOSED  | closed           | !STREAM_CLOSED  | late
DATA                  | !PROTOCOL_ERROR   | =               | STREAM_CLOSED  | =                | STREAM_CLOSED   | late
DATA END_STREAM       | !PROTOCOL_ERROR   | hc-remote       | STREAM_CLOSED  | closed           | STREAM_CLOSED   | late
PRIORITY              | =                 | =               | =              | =                | =               | =
RST_STREAM            | !PROTOCOL_ERROR   | closed          | closed         | closed           | late            | late
WINDOW_UPDATE         | !PROTOCOL_ERROR   | =               | =              | =                | late            | late
send HEADERS          | drop              | =               | =              | drop             | drop            | drop
send HEADERS END      | drop              | hc-local        | closed         | drop             | drop            | drop
send DATA             | drop              | =               | =              | drop             | drop            | drop
send DATA END_STREAM  | drop              | hc-local        | closed         | drop             | drop            | drop
send RST_STREAM       | drop              | reset           | reset          | reset            | reset           | drop
send WINDOW_UPDATE    | drop              | =               | drop           | =                | drop            | drop
`

func TestDiagram(t *testing.T) {
	names := map[string]State{"idle": Idle, "open": Open, "hc-remote": HalfClosedRemote, "hc-local": HalfClosedLocal, "closed": Closed,
		"reset": Reset}
	lines := strings.Split(strings.TrimSpace(diagram), "\n")
	columns := strings.Split(lines[0], "|")
	if len(columns) != int(states)+1 || len(lines)-1 != int(events) {
		t.Fatalf("the diagram has %d states and %d events", len(columns)-1, len(lines)-1)
	}
	for e, line := range lines[1:] {
		cells := strings.Split(line, "|")
		for i, cell := range cells[1:] {
			s := names[strings.TrimSpace(columns[i+1])]
			if s != State(i) {
				t.Fatalf("column %d is %v", i, s)
			}
			v := s.Step(Event(e))
			got := "="
			switch {
			case v.Late:
				got = "late"
			case v.Drop:
				got = "drop"
			case v.Fault != NoFault:
				if got = v.Fault.Code().String(); s.Ends(v.Fault) == EndsConnection {
					got = "!" + got
				} else if s.Ends(v.Fault) != EndsStream {
					t.Errorf("%s in %v: nothing ends", cells[0], s)
				}
			case v.Next != s:
				for name, state := range names {
					if state == v.Next {
						got = name
					}
				}
			}
			if got != strings.TrimSpace(cell) {
				t.Errorf("%sin %v: %s, want %s", cells[0], s, got, cell)
			}
			if (v.Late || v.Drop || v.Fault != NoFault) && v.Next != s {
				t.Errorf("%sin %v: the stream becomes %v", cells[0], s, v.Next)
			}
		}
	}
}

// wireStates lists sequences of frames and events that lead to each state.
var wireStates = []struct {
	name   string
	state  State
	frames string
	then   []Event // the events of frames that the server then sends on stream 5
}{
	{"idle", Idle, "", nil},
	{"idle, with a later stream to come", Idle, frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 3, getBlock), nil},
	{"open", Open, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock), nil},
	{"open, and answered in part", Open, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock), []Event{SendHeaders, SendData}},
	{"half-closed (remote)", HalfClosedRemote, frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 5, getBlock), nil},
	{"half-closed (remote) by DATA", HalfClosedRemote, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock) + frameOf(FrameData,
		FlagEndStream, 5, "x"), nil},
	{"half-closed (remote) by trailers", HalfClosedRemote,
		frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock) + frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 5, "\x00\x01x\x01y"), nil},
	{"half-closed (local)", HalfClosedLocal, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock), []Event{SendHeaders, SendDataEnd}},
	{"closed by both", Closed, frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 5, getBlock), []Event{SendHeadersEnd}},
	{"closed by the client's RST_STREAM", Closed, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock) + frameOf(FrameReset, 0, 5,
		"\x00\x00\x00\x08"), nil},
	{"closed since a later stream was opened", Closed, frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 7, getBlock), nil},
	{"reset, after a whole request", Reset, frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 5, getBlock), []Event{SendReset}},
	{"reset", Reset, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock), []Event{SendReset}},
	{"reset, after the answer", Reset, frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock), []Event{SendHeadersEnd, SendReset}},
}

// wireFrames are frames on stream 5, each with its result in each state: "" for no fault, "late", or the code of the fault, after "!" if it
// ends the connection.
var wireFrames = []struct {
	rfc   string
	frame string
	want  [states]string // idle, open, half-closed (remote), half-closed (local), closed, reset
}{
	{"5.1: HEADERS", frameOf(FrameHeaders, FlagEndHeaders, 5, getBlock),
		[states]string{"", "PROTOCOL_ERROR", "STREAM_CLOSED", "PROTOCOL_ERROR", "!STREAM_CLOSED", "late"}},
	{"5.1: HEADERS with END_STREAM, as trailers", frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 5, "\x00\x01x\x01y"),
		[states]string{"PROTOCOL_ERROR", "", "STREAM_CLOSED", "", "!STREAM_CLOSED", "late"}},
	{"8.1: trailers with a pseudo-header field", frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, 5, getBlock),
		[states]string{"", "PROTOCOL_ERROR", "STREAM_CLOSED", "", "!STREAM_CLOSED", "late"}},
	{"6.2: HEADERS in two frames", frameOf(FrameHeaders, 0, 5, getBlock[:2]) + frameOf(FrameContinuation, FlagEndHeaders, 5, getBlock[2:]),
		[states]string{"", "PROTOCOL_ERROR", "STREAM_CLOSED", "PROTOCOL_ERROR", "!STREAM_CLOSED", "late"}},
	{"RFC 7540, 5.3.1: HEADERS that depend on themselves", frameOf(FrameHeaders, FlagEndHeaders|FlagPriority, 5,
		"\x00\x00\x00\x05\x00"+getBlock),
		[states]string{"PROTOCOL_ERROR", "PROTOCOL_ERROR", "STREAM_CLOSED", "PROTOCOL_ERROR", "!STREAM_CLOSED", "late"}},
	{"4.3: a block that can't be decoded", frameOf(FrameHeaders, FlagEndHeaders, 5, "\xff\xff"),
		[states]string{"!COMPRESSION_ERROR", "!COMPRESSION_ERROR", "!COMPRESSION_ERROR", "!COMPRESSION_ERROR", "!STREAM_CLOSED",
			"!COMPRESSION_ERROR"}},
	{"6.1: DATA", frameOf(FrameData, 0, 5, "abc"), [states]string{"!PROTOCOL_ERROR", "", "STREAM_CLOSED", "", "STREAM_CLOSED", "late"}},
	{"6.1: DATA with END_STREAM", frameOf(FrameData, FlagEndStream, 5, "abc"),
		[states]string{"!PROTOCOL_ERROR", "", "STREAM_CLOSED", "", "STREAM_CLOSED", "late"}},
	{"6.1: DATA with padding alone", frameOf(FrameData, FlagPadded, 5, "\x01\x00"),
		[states]string{"!PROTOCOL_ERROR", "", "STREAM_CLOSED", "", "STREAM_CLOSED", "late"}},
	{"6.1: DATA with too much padding", frameOf(FrameData, FlagPadded, 5, "\x04abc"),
		[states]string{"!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR"}},
	{"6.3: PRIORITY", frameOf(FramePriority, 0, 5, "\x00\x00\x00\x03\x10"), [states]string{}},
	{"6.3: PRIORITY of 4 bytes", frameOf(FramePriority, 0, 5, "\x00\x00\x00\x03"),
		[states]string{"!FRAME_SIZE_ERROR", "FRAME_SIZE_ERROR", "FRAME_SIZE_ERROR", "FRAME_SIZE_ERROR", "FRAME_SIZE_ERROR", ""}},
	{"RFC 7540, 5.3.1: PRIORITY that depends on itself", frameOf(FramePriority, 0, 5, "\x00\x00\x00\x05\x10"),
		[states]string{"!PROTOCOL_ERROR", "PROTOCOL_ERROR", "PROTOCOL_ERROR", "PROTOCOL_ERROR", "", ""}},
	{"6.4: RST_STREAM", frameOf(FrameReset, 0, 5, "\x00\x00\x00\x08"), [states]string{"!PROTOCOL_ERROR", "", "", "", "late", "late"}},
	{"6.4: RST_STREAM of 3 bytes", frameOf(FrameReset, 0, 5, "\x00\x00\x08"),
		[states]string{"!FRAME_SIZE_ERROR", "!FRAME_SIZE_ERROR", "!FRAME_SIZE_ERROR", "!FRAME_SIZE_ERROR", "!FRAME_SIZE_ERROR",
			"!FRAME_SIZE_ERROR"}},
	{"6.9: WINDOW_UPDATE", frameOf(FrameWindowUpdate, 0, 5, "\x00\x00\x10\x00"), [states]string{"!PROTOCOL_ERROR", "", "", "", "late", "late"}},
	{"6.9: WINDOW_UPDATE of 0", frameOf(FrameWindowUpdate, 0, 5, "\x00\x00\x00\x00"),
		[states]string{"!PROTOCOL_ERROR", "PROTOCOL_ERROR", "PROTOCOL_ERROR", "PROTOCOL_ERROR", "PROTOCOL_ERROR", "late"}},
	{"6.9.1: WINDOW_UPDATE over 2^31-1", frameOf(FrameWindowUpdate, 0, 5, "\x7f\xff\xff\xff"),
		[states]string{"!PROTOCOL_ERROR", "FLOW_CONTROL_ERROR", "FLOW_CONTROL_ERROR", "FLOW_CONTROL_ERROR", "late", "late"}},
	{"6.10: CONTINUATION", frameOf(FrameContinuation, FlagEndHeaders, 5, "x"),
		[states]string{"!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR"}},
	{"5.1.1: HEADERS on a stream of the server's", frameOf(FrameHeaders, FlagEndHeaders, 4, getBlock),
		[states]string{"!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR"}},
	{"5.1: DATA on a stream of the server's", frameOf(FrameData, 0, 2, "x"),
		[states]string{"!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR", "!PROTOCOL_ERROR"}},
	{"5.5: an unknown type", frameOf(0x70, 0, 5, "x"), [states]string{}},
}

// The test sends each frame in each state, for each sequence that leads to the state, at once and divided at every byte. A fault that ends a
// stream doesn't affect other streams.
func TestFramesInStates(t *testing.T) {
	for _, way := range wireStates {
		for _, test := range wireFrames {
			t.Run(way.name+", "+test.rfc, func(t *testing.T) {
				sibling := frameOf(FrameHeaders, FlagEndHeaders, 1, getBlock)
				for cut := range len(test.frame) + 1 {
					m := newModel(t)
					m.feed([]byte(clientPreface + sibling + way.frames))
					for _, e := range way.then {
						m.sends(5, e)
					}
					if got := m.state(5); got != way.state || m.ended != NoFault {
						t.Fatalf("stream 5 is %v: %s", got, m.words())
					}
					m.log, m.late = nil, 0
					m.feed([]byte(test.frame[:cut]))
					m.feed([]byte(test.frame[cut:]))
					m.check()
					if got := m.outcome(); got != test.want[way.state] {
						t.Fatalf("cut at %d: %q, want %q", cut, got, test.want[way.state])
					}
					if m.ended != NoFault {
						continue
					}
					m.log = nil
					if m.feed([]byte(frameOf(FrameData, FlagEndStream, 1, "abc"))); m.last() != "stream 1: 3 bytes, end true" {
						t.Fatalf("the sibling: %s", m.words())
					}
				}
			})
		}
	}
}

// sends applies an event that the server sends on a stream.
func (m *model) sends(id uint32, e Event) {
	s := m.table.Find(id)
	if e == SendReset {
		m.sendReset(id, s, m.state(id))
		return
	}
	v := s.state.Step(e)
	if v.Drop {
		m.t.Fatalf("event %d in %v", e, s.state)
	}
	s.state = v.Next
	m.leave(s)
}

func (m *model) state(id uint32) State {
	if s := m.table.Find(id); s != nil {
		return s.state
	}
	return m.ids.State(id)
}

// outcome returns the code with which a stream or the connection has ended.
func (m *model) outcome() string {
	if m.ended != NoFault {
		return "!" + m.ended.Code().String()
	}
	for _, line := range m.log {
		for _, code := range codeNames {
			if strings.Contains(line, code) {
				return code
			}
		}
	}
	if m.late > 0 {
		return "late"
	}
	return ""
}

// RFC 9113, section 5.1.1: numbers are odd, and rise.
func TestIDs(t *testing.T) {
	var ids IDs
	if ids.Last() != 0 || ids.State(1) != Idle || ids.State(2) != Idle {
		t.Fatalf("%+v", ids)
	}
	for _, step := range []struct {
		id    uint32
		fault Fault
	}{{2, FaultStreamID}, {0, FaultStreamID}, {5, NoFault}, {5, FaultStreamID}, {3, FaultStreamID}, {4, FaultStreamID}, {6, FaultStreamID},
		{7, NoFault},
		{1<<31 - 1, NoFault}, {1, FaultStreamID}} {
		if got := ids.Open(step.id); got != step.fault {
			t.Errorf("%d: %v", step.id, got)
		}
	}
	ids = IDs{}
	ids.Open(9)
	ids.Reset(5)
	ids.Reset(3)
	for id, want := range map[uint32]State{1: Reset, 3: Reset, 5: Reset, 7: Closed, 9: Closed, 11: Idle, 4: Idle, 10: Idle} {
		if got := ids.State(id); got != want {
			t.Errorf("stream %d is %v, want %v", id, got, want)
		}
	}
}

// A table finds the streams that were added and not removed. Its memory is at most a few times what these streams need.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table Table[int]
	live := map[uint32]*int{}
	last := uint32(0)
	for range 20_000 {
		if random.IntN(2) == 0 && len(live) < 50 {
			last += uint32(1 + random.IntN(5))
			live[last] = new(int)
			table.Add(last, live[last])
		} else if len(live) > 0 && random.IntN(3) > 0 {
			for id := range live {
				delete(live, id)
				table.Remove(id)
				table.Remove(id)
				break
			}
		}
		if id := random.Uint32N(last + 2); table.Find(id) != live[id] {
			t.Fatalf("stream %d: %v, want %v", id, table.Find(id), live[id])
		}
		if table.Len() != len(live) || cap(table.slots) > 300 || len(live) == 0 && (len(table.slots) > 0 || cap(table.slots) > keptSlots) {
			t.Fatalf("%d of %d streams in %d", table.Len(), len(live), cap(table.slots))
		}
	}
	n := 0
	for s := range table.All {
		found := false
		for _, each := range live {
			found = found || each == s
		}
		if n++; !found {
			t.Error("a stream that was removed")
		}
		if n == len(live)/2 {
			for id, each := range live {
				if each == s {
					table.Remove(id)
				}
			}
		}
	}
	if n != len(live) {
		t.Errorf("%d streams of %d", n, len(live))
	}
}

// FuzzStreams checks that random frames have the same results however they are divided, and violate no invariant. It plays a client that
// keeps to the rules, and one that doesn't.
func FuzzStreams(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, polite bool) { playRandom(t, seed, polite) })
}

func TestRandomStreams(t *testing.T) {
	ended := map[Fault]int{}
	for seed := range uint64(500) {
		ended[playRandom(t, seed, seed%2 == 0)]++
	}
	for _, f := range []Fault{NoFault, FaultIdle, FaultReused, FaultConnectionWindow} {
		if ended[f] == 0 {
			t.Errorf("no play has ended with %q: %v", f, ended)
		}
	}
}

func playRandom(t *testing.T, seed uint64, polite bool) Fault {
	random := rand.New(rand.NewPCG(seed, 5))
	whole, cut := newModel(t), newModel(t)
	whole.feed([]byte(clientPreface))
	cut.feed([]byte(clientPreface))
	next := uint32(1)
	for range 150 {
		frame := randomFrame(random, whole, &next, polite)
		whole.feed([]byte(frame))
		for rest := frame; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(1+random.IntN(4000)))
			cut.feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		whole.check()
		cut.check()
		randomWork(random, whole, cut)
		whole.check()
		cut.check()
		if whole.ended != cut.ended || whole.charged != cut.charged || whole.ended == NoFault && len(cut.in) > 0 {
			t.Fatalf("seed %d: whole %v, %d glitches, %d left; cut %v, %d, %d", seed, whole.ended, whole.charged, len(whole.in),
				cut.ended, cut.charged, len(cut.in))
		}
		for id := range next + 2 {
			if whole.state(id) != cut.state(id) {
				t.Fatalf("seed %d: stream %d is %v, and cut %v", seed, id, whole.state(id), cut.state(id))
			}
		}
		if polite && whole.ended != NoFault {
			t.Fatalf("seed %d: a polite client's connection has ended with %v\n%s", seed, whole.ended, whole.words())
		}
		if whole.ended != NoFault {
			break
		}
	}
	return whole.ended
}

// randomFrame returns a random frame.
func randomFrame(random *rand.Rand, m *model, next *uint32, polite bool) string {
	id := 1 + 2*random.Uint32N((*next+2)/2)
	open := m.state(id)
	full := m.table.Len() >= m.maxPlace-1
	end := Flags(random.IntN(2))
	switch n := random.IntN(12); {
	case n < 3 && !full:
		id = *next
		*next += 2 + 2*random.Uint32N(2)
		if !polite && random.IntN(30) == 0 {
			id = random.Uint32N(*next)
		}
		return frameOf(FrameHeaders, FlagEndHeaders|end, id, getBlock)
	case n < 6 && (!polite || open == Open || open == HalfClosedLocal):
		size := random.IntN(1 + random.IntN(16384))
		if s := m.table.Find(id); s != nil && polite {
			size = min(size, int(s.receive.left)-1, int(m.receive.left)-1)
		}
		if size < 1 {
			break
		}
		padding := random.IntN(min(size, 256))
		return frameOf(FrameData, FlagPadded|end, id, string([]byte{byte(padding)})+strings.Repeat("d", size-1))
	case n < 8 && (!polite || open != Idle && m.windowsLow()):
		if random.IntN(4) == 0 {
			id = 0
		}
		increment := random.Uint32N(1 << random.Uint32N(20))
		if !polite && random.IntN(40) == 0 {
			increment = 1<<31 - 1
		}
		return frameOf(FrameWindowUpdate, 0, id, uint32Of(max(increment, 1)))
	case n == 8 && (!polite || open != Idle):
		return frameOf(FrameReset, 0, id, uint32Of(8))
	case n == 9:
		return frameOf(FrameSettings, 0, 0, "\x00\x04"+uint32Of(random.Uint32N(1<<20)))
	case n == 10 && (!polite || open == Open):
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, "\x00\x01x\x01y")
	}
	return frameOf(FramePriority, 0, id, uint32Of(id+1)+"\x00")
}

// windowsLow reports whether all send windows are far below the largest allowed one.
func (m *model) windowsLow() bool {
	low := m.send < 1<<29
	for s := range m.table.All {
		low = low && s.send < 1<<29
	}
	return low
}

// randomWork makes handlers read, answer and reset, in the same way in all models.
func randomWork(random *rand.Rand, models ...*model) {
	id := uint32(random.IntN(40))
	what, part := random.IntN(5), random.IntN(1<<16)
	for _, m := range models {
		s := m.table.Find(id)
		if s == nil || m.ended != NoFault {
			continue
		}
		switch what {
		case 0, 1:
			m.drain(s, min(part, s.receive.Undrained()))
		case 2:
			if n := Sendable(m.send, s.send, part); !s.state.Step(SendData).Drop {
				Sent(&m.send, &s.send, n)
				s.sent += int64(n)
				if n < 0 || n > 0 && (s.send < 0 || m.send < 0) {
					m.t.Fatalf("%d bytes were sent, and the windows are %d and %d", n, m.send, s.send)
				}
			}
		case 3:
			if !s.state.Step(SendDataEnd).Drop {
				m.sends(id, SendDataEnd)
			}
		case 4:
			if part%4 == 0 {
				m.sends(id, SendReset)
			}
		}
	}
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var table Table[int]
			s := new(int)
			id := uint32(1)
			for range n {
				table.Add(id, s)
				id += 2
			}
			for b.Loop() {
				table.Add(id, s)
				if table.Find(id) == nil {
					b.Fatal("lost")
				}
				table.Remove(id - uint32(2*n))
				id += 2
			}
		})
	}
}
