package http2

import (
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// A client may cause Burst glitches at once, and then Second glitches a second. Time without glitches never gives it more than Burst.
func TestGlitches(t *testing.T) {
	const start = clock.Time(time.Hour)
	charge := func(g *Glitches, n int, now clock.Time) (done int) {
		for range n {
			if g.Charge(1, now, DefaultGlitches) != NoFault {
				return done
			}
			done++
		}
		return done
	}
	var g Glitches
	if n := charge(&g, 2000, start); n != 1000 {
		t.Errorf("%d at once", n)
	}
	g = Glitches{}
	charge(&g, 1000, start)
	if n := charge(&g, 100, start.Add(time.Second)); n != 33 {
		t.Errorf("%d a second later", n)
	}
	// A rate below the limit never leads to a fault, whatever the intervals are.
	g = Glitches{}
	now := start
	for range 100_000 {
		now = now.Add(time.Second/33 + 1)
		if g.Charge(1, now, DefaultGlitches) != NoFault {
			t.Fatalf("after %v", now.Sub(start))
		}
	}
	if n := charge(&g, 2000, now.Add(time.Hour)); n != 1000 {
		t.Errorf("%d at once, an hour later", n)
	}
	// A higher rate leads to a fault after some time.
	g = Glitches{}
	now, n := start, 0
	for g.Charge(1, now, DefaultGlitches) == NoFault {
		now = now.Add(time.Second / 66)
		n++
	}
	if n < 1990 || n > 2010 {
		t.Errorf("%d at twice the rate", n)
	}
	g = Glitches{}
	if g.Charge(1000, start, DefaultGlitches) != NoFault || g.Charge(1, start, DefaultGlitches) != FaultGlitches {
		t.Error("a thousand in one")
	}
	g = Glitches{}
	for range 5000 {
		if g.Charge(1, start, GlitchLimits{Burst: -1}) != NoFault {
			t.Fatal("without a limit")
		}
	}
}

// Cost returns the expected number of glitches for each frame.
func TestCost(t *testing.T) {
	for _, test := range []struct {
		name  string
		frame string
		cost  int
		late  int
	}{
		{"DATA", frameOf(FrameData, 0, 1, "x"), 0, 1},
		{"DATA of some size", frameOf(FrameData, 0, 1, strings.Repeat("x", 256)), 0, 0},
		{"empty DATA", frameOf(FrameData, 0, 1, ""), 1, 1},
		{"empty DATA that ends the stream", frameOf(FrameData, FlagEndStream, 1, ""), 0, 1},
		{"padding alone", frameOf(FrameData, FlagPadded, 1, "\x02\x00\x00"), 1, 1},
		{"HEADERS", frameOf(FrameHeaders, FlagEndHeaders, 1, "x"), 0, 1},
		{"RST_STREAM", frameOf(FrameReset, 0, 1, "\x00\x00\x00\x08"), 0, 1},
		{"PRIORITY", frameOf(FramePriority, 0, 1, "\x00\x00\x00\x03\x00"), 1, 0},
		{"PRIORITY_UPDATE", frameOf(FramePriorityUpdate, 0, 0, "\x00\x00\x00\x03u=1"), 1, 0},
		{"SETTINGS", frameOf(FrameSettings, 0, 0, ""), 1, 0},
		{"SETTINGS with entries", frameOf(FrameSettings, 0, 0, settingOf(3, 1)+settingOf(3, 1)+settingOf(3, 1)), 4, 0},
		{"SETTINGS with ACK", frameOf(FrameSettings, FlagAck, 0, ""), 0, 0},
		{"PING", frameOf(FramePing, 0, 0, "12345678"), 1, 0},
		{"PING with ACK", frameOf(FramePing, FlagAck, 0, "12345678"), 1, 0},
		{"WINDOW_UPDATE", frameOf(FrameWindowUpdate, 0, 1, uint32Of(256)), 0, 1},
		{"a small WINDOW_UPDATE", frameOf(FrameWindowUpdate, 0, 0, uint32Of(255)), 1, 0},
		{"GOAWAY", frameOf(FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"), 1, 0},
		{"unknown", frameOf(0xf0, 0, 0, "abcdef"), 1, 0},
	} {
		for parts := 1; parts < 12; parts++ { // the cost of a frame doesn't depend on how many parts it is received in
			var e Earned
			r := Reader{begun: true}
			var in []byte
			cost, late := 0, 0
			for rest := test.frame; len(rest) > 0; {
				n := min(parts, len(rest))
				in, rest = append(in, rest[:n]...), rest[n:]
				var f Frame
				n, fault := r.Next(&f, in)
				if fault != NoFault {
					t.Fatal(fault)
				}
				if in = in[n:]; n > 0 {
					cost += e.Cost(&f)
					late += e.StreamCost(&f, Verdict{Late: true})
				}
			}
			if cost != test.cost || late != test.late {
				t.Errorf("%s in parts of %d: costs %d, late %d; want %d, %d", test.name, parts, cost, late, test.cost, test.late)
			}
		}
	}
}

// For each frame that it has earned, the client may send one PING, one small WINDOW_UPDATE, or one frame for a stream that has ended.
func TestEarn(t *testing.T) {
	var e Earned
	ping, update := Frame{Type: FramePing}, Frame{Type: FrameWindowUpdate, Value: 5}
	late := func(f *Frame) int { return e.StreamCost(f, Verdict{Late: true}) }
	e.Answer(0)
	e.Data(5, true)
	if e.Cost(&ping) != 0 || e.Cost(&update) != 0 || late(&Frame{Type: FrameReset}) != 0 || e.Cost(&update) != 1 || e.Cost(&ping) != 1 {
		t.Error("an answer with little content is for three frames")
	}
	if e.Data(1<<10, false); e.Cost(&ping) != 0 {
		t.Error("a kilobyte is a reason")
	}
	if e.Data(1<<10-1, false); e.Cost(&ping) != 1 {
		t.Error("less is none, unless it was all")
	}
	reset := Frame{Type: FrameReset}
	e = Earned{answers: 1, frames: 5}
	e.Data(1<<10, false)
	if e.StreamCost(&reset, Verdict{GivesUp: true}) != 0 || e.StreamCost(&reset, Verdict{GivesUp: true}) != 1 {
		t.Error("a whole answer is for one that is given up, and nothing else is")
	}
	e = Earned{}
	for range 10 * maxEarned {
		e.Answer(0)
	}
	free := 0
	for e.Cost(&ping) == 0 {
		free++
	}
	if free != maxEarned {
		t.Errorf("%d frames were put by", free)
	}
}

// WINDOW_UPDATE for streams that have ended is no glitch as long as the sum of the increments isn't larger than the content of whole
// answers.
func TestEarnContent(t *testing.T) {
	late := func(e *Earned, n uint32) int {
		return e.StreamCost(&Frame{Type: FrameWindowUpdate, Value: n}, Verdict{Late: true})
	}
	var e Earned
	e.Answer(10_000)
	e.frames = 0
	for i, want := range []int{0, 0, 1, 1} {
		if cost := late(&e, 4096); cost != want {
			t.Errorf("update %d costs %d", i, cost)
		}
	}
	if late(&e, 10_000-2*4096) != 0 || late(&e, smallUpdate) != 1 {
		t.Error("the rest")
	}
	e.Answer(-100) // the client has credited more than it has received
	for range 3 {
		e.Answer(maxEarnedContent)
	}
	if e.content != maxEarnedContent {
		t.Errorf("%d bytes were put by", e.content)
	}
}

// RST_STREAM is a glitch if the answer isn't complete. A PING that is sent together with it isn't a glitch.
func TestResetCost(t *testing.T) {
	reset := Frame{Type: FrameReset}
	for state, want := range map[State]int{Open: 1, HalfClosedRemote: 1, HalfClosedLocal: 0, Closed: 1, Reset: 1} {
		var e Earned
		if cost := e.Cost(&reset) + e.StreamCost(&reset, state.Step(ReceiveReset)); cost != want {
			t.Errorf("%v: costs %d, want %d", state, cost, want)
		}
		if ping := e.Cost(&Frame{Type: FramePing}); (ping == 0) != !(state.Over() || state == HalfClosedLocal) {
			t.Errorf("%v: the PING costs %d", state, ping)
		}
	}
}

func TestCounts(t *testing.T) {
	var c Counts
	for i := range 3 {
		if c.Enter(3) != NoFault || c.Streams() != i+1 {
			t.Fatalf("%d streams", c.Streams())
		}
	}
	if c.Enter(3) != FaultRefused || c.Streams() != 3 {
		t.Errorf("%d streams", c.Streams())
	}
	if c.Leave(); c.Enter(3) != NoFault {
		t.Error("a place that was given back")
	}
	defer func() {
		if recover() == nil {
			t.Error("a place that nobody had")
		}
	}()
	for range 4 {
		c.Leave()
	}
}

// RFC 9113, section 10.5.1: a block is bounded in bytes and frames.
func TestBlock(t *testing.T) {
	headers := func(flags Flags, payload string) *Frame {
		return &Frame{Type: FrameHeaders, Flags: flags, Payload: []byte(payload)}
	}
	more := func(flags Flags, size int) *Frame {
		return &Frame{Type: FrameContinuation, Flags: flags, Payload: make([]byte, size)}
	}
	var k Block
	if !k.Begin(headers(FlagEndHeaders, "abc")) || cap(k.b) > 0 {
		t.Error("a whole block is kept")
	}
	f := headers(FlagEndStream, "abc")
	if k.Begin(f) {
		t.Error("the block goes on")
	}
	copy(f.Payload, "xxx") // the payload's memory is reused for further input
	for range MaxContinuations - 1 {
		if whole, fault := k.Continue(more(0, 1), 100); whole || fault != NoFault {
			t.Fatal(whole, fault)
		}
	}
	whole, fault := k.Continue(more(FlagEndHeaders, 1), 100)
	if b, end := k.Bytes(); !whole || fault != NoFault || !end || string(b) != "abc"+strings.Repeat("\x00", MaxContinuations) {
		t.Errorf("%t, %v: %q, %t", whole, fault, b, end)
	}
	if k.Begin(headers(0, "")); k.frames != 0 || len(k.b) != 0 {
		t.Errorf("the next one: %+v", k)
	}
	for i := range MaxContinuations + 1 {
		if _, fault := k.Continue(more(0, 0), 100); (fault == FaultBlock) != (i == MaxContinuations) {
			t.Errorf("CONTINUATION %d: %v", i, fault)
		}
	}
	// A larger limit allows more frames than clients need.
	k.Begin(headers(0, "abc"))
	const raised = 1 << 20
	for i := range raised/continuationSize + 1 {
		if _, fault := k.Continue(more(0, 10), raised); (fault == FaultBlock) != (i == raised/continuationSize) {
			t.Fatalf("CONTINUATION %d of a large limit: %v", i, fault)
		}
	}
	k.Begin(headers(0, ""))
	for i := range raised / (16 << 10) {
		if _, fault := k.Continue(more(0, 16<<10), raised); fault != NoFault {
			t.Fatalf("CONTINUATION %d of 16 KB: %v", i, fault)
		}
	}
	if _, fault := k.Continue(more(0, 1), 1<<31-1); fault != NoFault {
		t.Errorf("without a limit: %v", fault)
	}
	k.Begin(headers(0, "abc"))
	if _, fault := k.Continue(more(0, 197), 100); fault != NoFault {
		t.Error(fault)
	}
	if _, fault := k.Continue(more(0, 1), 100); fault != FaultBlock {
		t.Error("more than twice the limit")
	}
}

// The table of faults is complete, and the faults are in the order that OfStream requires.
func TestFaults(t *testing.T) {
	if NoFault.String() != "" || NoFault.OfStream() || NoFault.Code() != NoError {
		t.Error("NoFault")
	}
	seen := map[string]Fault{}
	for f := NoFault + 1; f < faultCount; f++ {
		if f.String() == "" || f.Code() == NoError {
			t.Errorf("fault %d: %v %q", f, f.Code(), f)
		}
		if other, twice := seen[f.String()]; twice {
			t.Errorf("faults %d and %d are %q", f, other, f)
		}
		seen[f.String()] = f
		if f >= FaultField && (!f.OfStream() || f.Code() != ProtocolError) {
			t.Errorf("%v: a malformed request is a stream error of type PROTOCOL_ERROR", f)
		}
	}
	if FaultGlitches.OfStream() || !FaultPriorityLength.OfStream() || FaultRefused >= FaultField {
		t.Error("the order of the faults")
	}
	if ErrCode(13).String() != "HTTP_1_1_REQUIRED" || ErrCode(14).String() != "an unknown error code" {
		t.Error("the names of codes")
	}
}

func TestLimitsAllocs(t *testing.T) {
	var g Glitches
	var e Earned
	var m ReceiveWindow
	m.Open(DefaultWindow)
	var peer PeerSettings
	peer.Reset()
	entries := []byte(settingOf(4, 100) + settingOf(1, 5))
	f := Frame{Type: FrameData, Flags: FlagEndStream, Stream: 1}
	now := clock.Time(time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		g.Charge(e.Cost(&f)+e.StreamCost(&f, Verdict{Late: true}), now, DefaultGlitches)
		e.Answer(1)
		e.Data(1, true)
		m.Receive(10)
		m.Drain(10, MaxReceiveWindow)
		peer.Apply(entries)
		event, _ := EventOf(&f)
		Open.Step(event)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGlitches(b *testing.B) {
	var g Glitches
	var e Earned
	f := Frame{Type: FrameWindowUpdate, Value: 1}
	now := clock.Time(time.Hour)
	for b.Loop() {
		now += clock.Time(time.Second)
		if g.Charge(e.Cost(&f), now, DefaultGlitches) != NoFault {
			b.Fatal("too many")
		}
	}
}
