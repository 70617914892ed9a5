package http2

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/syntax"
	"golang.org/x/net/http2/hpack"
)

// model is a server's end of a connection. It combines the parts of this package in the same way as a server, but it sends no answers by
// itself. It logs the effects of frames in words, and counts the bytes of the windows independently.
type model struct {
	t        *testing.T
	in       []byte
	prefaced bool
	reader   Reader
	peer     PeerSettings
	acks     Acks
	ids      IDs
	table    Table[modelStream]
	counts   Counts
	send     SendWindow
	receive  ReceiveWindow
	glitches Glitches
	earned   Earned
	block    Block
	head     Head
	decoder  *hpack.Decoder
	now      clock.Time
	ended    Fault
	log      []string
	maxPlace int

	opens         uint32 // the number of the stream that the next field block opens; 0 if the block opens none
	blockOf       *modelStream
	refusedBlock  Fault
	limits        http1.Limits
	late, charged int

	received, credited int64 // bytes of DATA, and increments of the connection's window
}

type modelStream struct {
	id                 uint32
	state              State
	send               SendWindow
	receive            ReceiveWindow
	content            Content
	received, credited int64
	drained            int64
	sent, increments   int64
}

func newModel(t *testing.T) *model {
	m := &model{t: t, now: clock.Time(time.Hour), send: DefaultWindow, maxPlace: 8,
		limits: http1.Limits{Bytes: 16 << 10, Line: 8 << 10, Fields: 100}}
	m.peer.Reset()
	m.receive.Open(DefaultWindow)
	m.acks.Sent(m.now, 10*time.Second)
	m.decoder = hpack.NewDecoder(DefaultHeaderTableSize, func(f hpack.HeaderField) {
		giveField(&m.head, f.Name, f.Value)
	})
	return m
}

// giveField adds a field to h as a decoder does.
func giveField(h *Head, name, value string) {
	valid := syntax.IsToken(strings.TrimPrefix(name, ":")) && name == strings.ToLower(name) &&
		value == strings.Trim(value, " \t") && !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
	h.Field([]byte(name), []byte(value), field.Lookup(name), valid)
}

// feed makes the model process the bytes.
func (m *model) feed(b []byte) {
	m.in = append(m.in, b...)
	if !m.prefaced {
		done, fault := ReadPreface(m.in)
		if fault != NoFault {
			m.end(fault)
		}
		if !done {
			return
		}
		m.prefaced = true
		m.in = m.in[len(Preface):]
	}
	for m.ended == NoFault {
		var f Frame
		n, fault := m.reader.Next(&f, m.in)
		if n == 0 && fault == NoFault {
			return
		}
		if fault != NoFault && !fault.OfStream() {
			m.end(fault)
			return
		}
		m.frame(&f, fault)
		m.in = m.in[n:]
	}
}

func (m *model) end(f Fault) {
	m.ended = f
	m.say("connection %v: %v", f.Code(), f)
}

func (m *model) say(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) charge(n int) {
	m.charged += n
	if fault := m.glitches.Charge(n, m.now, DefaultGlitches); fault != NoFault && m.ended == NoFault {
		m.end(fault)
	}
}

// frame handles a frame.
func (m *model) frame(f *Frame, fault Fault) {
	m.charge(m.earned.Cost(f))
	switch f.Type {
	case FrameSettings:
		m.settings(f)
	case FramePing, FrameGoAway, FramePriorityUpdate:
		m.say("%d", f.Type)
	case FrameContinuation:
		whole, fault := m.block.Continue(f, m.limits.Bytes)
		if fault != NoFault {
			m.end(fault)
		} else if whole {
			m.fields(m.block.Bytes())
		}
	default:
		if e, ok := EventOf(f); ok {
			m.step(f, e, fault)
		} else if f.Type == FrameWindowUpdate && !m.send.Grow(f.Value) {
			m.end(FaultConnectionWindow)
		}
	}
}

func (m *model) settings(f *Frame) {
	if f.Ack() {
		if !m.acks.Received() {
			m.charge(1)
		}
		return
	}
	delta, fault := m.peer.Apply(f.Payload)
	for s := range m.table.All {
		if fault == NoFault && !s.send.Adjust(delta) {
			fault = FaultInitialWindow
		}
	}
	if fault != NoFault {
		m.end(fault)
	}
}

func (m *model) step(f *Frame, e Event, fault Fault) {
	s := m.table.Find(f.Stream)
	state := m.ids.State(f.Stream)
	if s != nil {
		state = s.state
	}
	v := state.Step(e)
	if f.Type == FrameData {
		m.received += int64(f.Size)
		if !m.receive.Receive(f.Size) {
			m.end(FaultConnectionOverrun)
			return
		}
		m.credited += int64(m.receive.Drain(f.Size, MaxReceiveWindow))
	}
	if f.Type == FrameHeaders {
		m.opens, m.blockOf, m.refusedBlock = 0, s, NoFault
	}
	m.charge(m.earned.StreamCost(f, v))
	if v.Late {
		m.late++
		m.say("stream %d: late", f.Stream)
	} else if v.Fault == NoFault {
		if state == Idle && f.Type == FrameHeaders {
			if v.Fault = m.ids.Open(f.Stream); v.Fault == NoFault {
				s = m.open(f.Stream)
			}
		}
		if s != nil {
			s.state = v.Next
		}
		state = v.Next
		if v.Fault == NoFault {
			v.Fault = m.apply(f, s)
		}
	}
	if v.Fault != NoFault {
		fault = v.Fault
	}
	if f.Type == FrameHeaders && m.ended == NoFault && (fault == NoFault || fault.OfStream()) {
		if m.refusedBlock = fault; m.block.Begin(f) {
			m.fields(f.Payload, f.EndStream())
		}
		return
	}
	m.fail(f.Stream, s, state, fault)
	m.leave(s)
}

// fail ends the stream or the connection, as the fault requires.
func (m *model) fail(id uint32, s *modelStream, state State, fault Fault) {
	if fault == NoFault {
		return
	}
	switch state.Ends(fault) {
	case EndsConnection:
		m.end(fault)
	case EndsStream:
		m.say("stream %d %v: %v", id, fault.Code(), fault)
		m.charge(1)
		m.sendReset(id, s, state)
	}
}

func (m *model) sendReset(id uint32, s *modelStream, state State) {
	v := state.Step(SendReset)
	if v.Drop {
		m.t.Fatalf("RST_STREAM on stream %d, which is %v", id, state)
	}
	if v.Next == Reset {
		m.ids.Reset(id)
	}
	if s != nil {
		s.state = v.Next
	}
	m.leave(s)
}

// leave removes a stream that has ended.
func (m *model) leave(s *modelStream) {
	if s != nil && s.state.Over() && m.table.Find(s.id) == s {
		m.table.Remove(s.id)
		m.counts.Leave()
	}
}

func (m *model) open(id uint32) *modelStream {
	if fault := m.counts.Enter(m.maxPlace); fault != NoFault {
		m.t.Fatalf("the test must let streams end before there are %d", m.maxPlace)
	}
	s := &modelStream{id: id, send: SendWindow(m.peer.InitialWindow)}
	s.receive.Open(DefaultWindow)
	s.content.Begin(-1)
	m.table.Add(id, s)
	m.opens, m.blockOf = id, s
	return s
}

// apply applies a frame to a stream that hasn't ended.
func (m *model) apply(f *Frame, s *modelStream) Fault {
	switch f.Type {
	case FrameData:
		s.received += int64(f.Size)
		if !s.receive.Receive(f.Size) {
			return FaultOverrun
		}
		m.drain(s, f.Size-len(f.Payload))
		m.say("stream %d: %d bytes, end %t", f.Stream, len(f.Payload), f.EndStream())
		return s.content.Receive(int64(len(f.Payload)), f.EndStream())
	case FrameWindowUpdate:
		s.increments += int64(f.Value)
		if !s.send.Grow(f.Value) {
			return FaultWindow
		}
	case FrameReset:
		m.say("stream %d: reset by the client", f.Stream)
	}
	return NoFault
}

// drain makes a handler read n bytes.
func (m *model) drain(s *modelStream, n int) {
	s.drained += int64(n)
	s.credited += int64(s.receive.Drain(n, MaxReceiveWindow))
}

// fields decodes a field block.
func (m *model) fields(block []byte, endStream bool) {
	head, s := new(http1.RequestHead), m.blockOf
	switch {
	case s == nil || m.refusedBlock != NoFault:
		m.head.BeginTrailer(head, nil, &m.limits)
	case m.opens != 0:
		m.head.Begin(head, nil, &m.limits, true)
	default:
		m.head.BeginTrailer(head, nil, &m.limits)
	}
	if _, err := m.decoder.Write(block); err != nil {
		m.end(FaultCompression)
		return
	}
	if err := m.decoder.Close(); err != nil {
		m.end(FaultCompression)
		return
	}
	fault := m.refusedBlock
	switch {
	case s == nil || fault != NoFault:
	case m.opens != 0:
		var f http1.Framing
		var refused http1.Fault
		if _, f, fault, refused = m.head.End(endStream, false); fault == NoFault {
			s.content.Begin(f.Length)
			m.say("stream %d: request of length %d, refused %q", s.id, f.Length, refused)
		}
	default:
		var l field.List
		if fault, _ = m.head.EndTrailer(&l, false); fault == NoFault {
			m.say("stream %d: trailers", s.id)
			fault = s.content.Receive(0, true)
		}
	}
	state, id := Closed, uint32(0)
	if s != nil {
		state, id = s.state, s.id
	}
	m.fail(id, s, state, fault)
	m.leave(s)
}

// check checks the model's invariants.
func (m *model) check() {
	m.t.Helper()
	if m.ended != NoFault {
		return
	}
	if m.receive.left < 0 || m.receive.left+m.receive.owed != m.receive.size {
		m.t.Fatalf("the connection's window: %+v", m.receive)
	}
	if want := DefaultWindow + m.credited - m.received; want != int64(m.receive.left) {
		m.t.Fatalf("the client may send %d, and the server lets it send %d", want, m.receive.left)
	}
	if m.counts.Streams() != m.table.Len() {
		m.t.Fatalf("%d places are taken by %d streams", m.counts.Streams(), m.table.Len())
	}
	for s := range m.table.All {
		if s.state.Over() || s.state == Idle || m.ids.State(s.id) == Idle {
			m.t.Fatalf("stream %d is remembered, and is %v", s.id, s.state)
		}
		if r := &s.receive; r.left < 0 || r.owed < 0 || int64(r.Undrained()) != s.received-s.drained ||
			DefaultWindow+s.credited-s.received != int64(r.left) {
			m.t.Fatalf("stream %d: %+v, %d were received, %d drained, %d credited", s.id, *r, s.received, s.drained, s.credited)
		}
		if want := int64(m.peer.InitialWindow) + s.increments - s.sent; want != int64(s.send) {
			m.t.Fatalf("stream %d: the send window is %d, want %d", s.id, s.send, want)
		}
	}
}

// frameOf returns a frame as a client sends it.
func frameOf(kind FrameType, flags Flags, stream uint32, payload string) string {
	return string(AppendFrameHeader(nil, len(payload), kind, flags, stream)) + payload
}

func uint32Of(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

const clientPreface = Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // and empty SETTINGS

// getBlock is the field block of GET / of http://a, without the dynamic table.
const getBlock = "\x82\x86\x84\x01\x01a"

func (m *model) last() string {
	if len(m.log) == 0 {
		return ""
	}
	return m.log[len(m.log)-1]
}

func (m *model) words() string { return strings.Join(m.log, "\n") }
