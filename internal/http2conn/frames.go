package http2conn

import (
	"math"

	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file handles the frames of an HTTP/2 client, except DATA: see body.go. Only the connection's owner calls its functions.

// take handles a frame. fault says what is wrong with the frame's format.
func (h *Conn) take(t *Turn, f *http2.Frame, fault http2.Fault) Step {
	if fault != http2.NoFault && !fault.OfStream() {
		return h.fail(t, fault)
	}
	if fault := h.charge(h.cost(f)); fault != http2.NoFault {
		return h.fail(t, fault)
	}
	switch f.Type {
	case http2.FrameHeaders:
		if f.Flags.Has(http2.FlagEndHeaders) {
			return h.takeBlock(t, f.Stream, f.Payload, f.EndStream(), fault)
		}
		k := &fieldBlock{stream: f.Stream, fault: fault}
		k.Begin(f)
		h.openPending().block = k
	case http2.FrameContinuation:
		whole, fault := h.pending.block.Continue(f, h.shared.Head.Bytes)
		if fault != http2.NoFault {
			return h.fail(t, fault)
		}
		if !whole {
			return StepNext
		}
		k := h.pending.block
		h.pending.block = nil
		block, endStream := k.Bytes()
		return h.takeBlock(t, k.stream, block, endStream, k.fault)
	case http2.FrameData:
		return h.takeData(t, f)
	case http2.FrameSettings:
		return h.takeSettings(t, f)
	case http2.FramePing:
		h.takePing(t, f)
	case http2.FrameWindowUpdate:
		return h.takeWindow(t, f, fault)
	case http2.FramePriority, http2.FrameReset:
		return h.takeOther(t, f, fault)
	case http2.FramePriorityUpdate:
		return h.takePriority(t, f)
	}
	return StepNext
}

// cost returns how many glitches a frame costs by itself.
func (h *Conn) cost(f *http2.Frame) int {
	if http2.Pays(f) {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	return h.earned.Cost(f)
}

// charge charges the client for glitches.
func (h *Conn) charge(cost int) http2.Fault {
	if cost == 0 {
		return http2.NoFault
	}
	return h.glitches.Charge(cost, h.shared.Clock.Now(), h.shared.Glitches)
}

// fail ends the connection because of the client's fault.
func (h *Conn) fail(t *Turn, fault http2.Fault) Step {
	h.driver.Failed(fault)
	h.goAway(t, fault.Code(), fault.String())
	return StepEnd
}

// goAway announces the end of the connection, which ends when its output has been sent.
func (h *Conn) goAway(t *Turn, code http2.ErrCode, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.goAwayLocked(t, code, text)
}

func (h *Conn) goAwayLocked(t *Turn, code http2.ErrCode, text string) {
	h.mu.AssertHeld()
	if h.life < lifeLast { // the number in the last GOAWAY mustn't grow
		h.lastServed = h.ids.Last()
	}
	race.Enter(&h.life, lifeEnding)
	t.out = http2.AppendGoAway(t.out, h.lastServed, code, text)
}

// stateLocked returns the stream with the number id, nil if it isn't listed, and the stream's state.
func (h *Conn) stateLocked(id uint32) (*Stream, http2.State) {
	h.mu.AssertHeld()
	if s := h.streams.Find(id); s != nil {
		return s, s.state
	}
	return nil, h.ids.State(id)
}

// takeBlock handles the field block of a request or of a trailer section.
func (h *Conn) takeBlock(t *Turn, id uint32, block []byte, endStream bool, fault http2.Fault) Step {
	event := http2.ReceiveHeaders
	if endStream {
		event = http2.ReceiveHeadersEnd
	}
	refused := false
	h.mu.Lock()
	s, state := h.stateLocked(id)
	v := state.Step(event)
	if v.Fault != http2.NoFault {
		fault = v.Fault
	}
	if state == http2.Idle {
		if idFault := h.ids.Open(id); idFault != http2.NoFault {
			h.mu.Unlock()
			return h.fail(t, idFault)
		}
		if refused = h.life >= lifeLast; !refused && fault == http2.NoFault {
			fault = h.counts.Enter(h.shared.MaxStreams)
		}
		if refused || fault != http2.NoFault {
			h.ids.Reset(id)
		}
	}
	h.mu.Unlock()
	switch {
	case fault != http2.NoFault && v.Next.Ends(fault) == http2.EndsConnection:
		return h.fail(t, fault)
	case fault != http2.NoFault, v.Late, refused:
		// The block must be decoded all the same, since later blocks refer to entries that it adds to HPACK's table.
		if _, err := h.decoder.Decode(block, h.shared.Head.Bytes, nil); err != nil {
			return h.fail(t, http2.FaultCompression)
		}
		if v.Late {
			if fault := h.charge(1); fault != http2.NoFault {
				return h.fail(t, fault)
			}
		}
		if fault == http2.NoFault || v.Late {
			return StepNext
		}
		return h.reset(t, id, fault)
	case s != nil:
		return h.takeTrailer(t, id, s, block)
	}
	return h.takeRequest(t, id, block, endStream)
}

// maxAwaitedHead is the largest head that is kept without a handler until a small body has arrived. By references into HPACK's table a client
// can send heads of 16 KB in a few bytes each, and the room for bodies doesn't count them; handlers are limited by the number of places.
const maxAwaitedHead = 2 << 10

// takeRequest begins a request. takeBlock has counted it against MaxStreams.
func (h *Conn) takeRequest(t *Turn, id uint32, block []byte, endStream bool) Step {
	s := t.spare
	if s == nil {
		s = &Stream{Request: new(Request)}
	}
	t.spare = nil
	s.open(h, id)
	priority, over, fault, refused := h.decodeRequest(t, s, block, endStream)
	if fault == http2.FaultCompression {
		return h.fail(t, fault)
	}
	requests := min(h.requests.Load(), math.MaxInt32-1) + 1
	h.requests.Store(requests)
	if most := h.shared.MaxRequests; most > 0 && int(requests) >= most {
		h.closeAsked.Store(true)
	}
	if !h.active {
		h.setActive(true)
	}
	if fault != http2.NoFault {
		h.mu.Lock()
		h.ids.Reset(id)
		h.freePlaceLocked()
		h.mu.Unlock()
		t.spare = s
		return h.reset(t, id, fault)
	}
	if h.pending != nil {
		if prioritized, ok := h.pending.prioritized.Take(id); ok {
			priority = prioritized
		}
	}
	s.sender.Init(s, id, priority)
	s.expectBody(endStream, refused != http1.NoFault)
	if refused != http1.NoFault {
		if over {
			if fault := h.charge(overCost); fault != http2.NoFault {
				return h.fail(t, fault)
			}
		}
		t.Stream, t.Refused = s, refused
		return StepRefuse
	}
	t.Stream = s
	if endStream {
		return StepRun
	}
	framing := &s.Framing
	bodies := h.bodies
	if bodies == nil {
		bodies = h.driver.Bodies()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = bodies
	h.listLocked(s)
	large := framing.Length > int64(h.shared.AwaitedBody) // the handler reads the body while it arrives, or its read fails for lack of room
	if !large && !h.mayBufferLocked(1) {
		h.overrunLocked(s)
		return StepNext
	}
	large = large || len(s.Text) > maxAwaitedHead
	if limit := h.shared.MaxBody; large || s.Extended || framing.ExpectContinue || limit >= 0 && framing.Length > limit {
		return StepRun
	}
	if framing.Length < 0 {
		h.leaveUndecided(s)
	}
	h.setAwaitsLocked(s, awaitsBody)
	return StepNext
}

// decodeRequest decodes the block into the stream's request. over says that the fields were too many or too large.
func (h *Conn) decodeRequest(t *Turn, s *Stream, block []byte, endStream bool) (p http2.Priority, over bool, f http2.Fault, refused http1.Fault) {
	shared, head := h.shared, &t.head
	s.Text, s.Framing, s.Extended = s.Text[:0], http1.Framing{}, false
	head.Begin(&s.Head, s.Text, &shared.Head, shared.ExtendedConnect)
	over, err := h.decoder.Decode(block, shared.Head.Bytes, head)
	if err != nil {
		return p, over, http2.FaultCompression, http1.NoFault
	}
	s.Text, s.Framing, f, refused = head.End(endStream, over)
	s.Extended = len(head.Protocol()) > 0
	return head.Priority, over, f, refused
}

// expectBody sets the state of a new stream. Unless the head ends the request, it prepares the stream for the bytes after the head.
func (s *Stream) expectBody(endStream, refused bool) {
	if s.state = http2.HalfClosedRemote; endStream {
		return
	}
	length := s.Framing.Length
	if s.Extended || refused {
		length = -1 // the bytes after the head aren't content, or Content-Length wasn't parsed
	}
	s.state = http2.Open
	s.content.Begin(length)
	s.recv.Open(firstWindow)
}

// setAwaitsLocked records what a stream waits for, and that the wait begins now.
func (h *Conn) setAwaitsLocked(s *Stream, what awaits) {
	h.mu.AssertHeld()
	if s.awaits != awaitsNothing {
		h.awaiting--
	}
	race.Enter(&s.awaits, what)
	if what != awaitsNothing {
		h.awaiting++
		s.awaitsSince = h.shared.Clock.Now()
	}
	if h.wakeAwaiting && (what == awaitsEnd || what == awaitsWindow) {
		h.wakeAwaiting = false
		go h.WakeOwner() // WakeOwner takes locks that come before mu
	}
}

// overCost is how many glitches a head over the limits costs. The cost is high, since a block of a few kilobytes can encode thousands of
// fields by indexes into HPACK's table.
const overCost = 20

// leaveUndecided arranges that the stream's handler runs when the input is used up.
func (h *Conn) leaveUndecided(s *Stream) {
	p := h.openPending()
	p.undecided = append(p.undecided, s.id)
}

func (h *Conn) openPending() *pending {
	if h.pending == nil {
		h.pending = new(pending)
	}
	return h.pending
}

// trimPending drops h.pending if it is empty.
func (h *Conn) trimPending() {
	if p := h.pending; p != nil && p.block == nil && len(p.undecided) == 0 && p.prioritized.Empty() {
		h.pending = nil
	}
}

// decide runs the handler of the first undecided request: its body has no announced length or is late, and is still incomplete.
func (h *Conn) decide(t *Turn) Step {
	id := h.pending.undecided[0]
	h.pending.undecided = h.pending.undecided[1:]
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.streams.Find(id); s != nil {
		return h.arrivedLocked(t, s) // does nothing if the handler runs already, since the rest of the body has arrived
	}
	return StepNext
}

// takeTrailer handles the trailer section of a request, which ends the request. While it decodes the block without mu, the stream may end,
// and another request may reuse the Stream.
func (h *Conn) takeTrailer(t *Turn, id uint32, s *Stream, block []byte) Step {
	head, trailer := &t.head, new(trailerSection)
	head.BeginTrailer(&trailer.head, nil, &h.shared.Head)
	over, err := h.decoder.Decode(block, h.shared.Head.Bytes, head)
	if err != nil {
		return h.fail(t, http2.FaultCompression)
	}
	fault, refused := head.EndTrailer(&trailer.fields, over)
	if fault == http2.NoFault && refused != http1.NoFault {
		fault = http2.FaultMalformed
	}
	h.mu.Lock()
	if h.streams.Find(id) != s {
		h.mu.Unlock()
		return StepNext // the stream ended during the decoding
	}
	step := StepNext
	if fault == http2.NoFault {
		fault = s.content.Receive(0, true)
	}
	if fault == http2.NoFault {
		s.trailer = trailer
		h.receivedLocked(s)
		step = h.arrivedLocked(t, s)
	}
	h.mu.Unlock()
	if fault != http2.NoFault {
		return h.reset(t, id, fault)
	}
	return step
}

// arrivedLocked runs the handler of a request that waits for its body. Callers must hold mu from the lookup of s on: without mu, a stream
// whose handler has begun may end at any time, and its Stream may be reused for another connection.
func (h *Conn) arrivedLocked(t *Turn, s *Stream) Step {
	h.mu.AssertHeld()
	if s.awaits != awaitsBody {
		return StepNext
	}
	h.setAwaitsLocked(s, awaitsNothing)
	t.Stream = s
	return StepRun
}

// judge carries out the verdict on a stream's frame. It ends the stream or the connection if the fault requires that. It charges glitches
// for a late frame, and for one by which the client gives up the answer. If nothing was wrong, it returns step.
func (h *Conn) judge(t *Turn, f *http2.Frame, v http2.Verdict, fault http2.Fault, step Step) Step {
	switch {
	case fault != http2.NoFault:
		switch v.Next.Ends(fault) {
		case http2.EndsConnection:
			return h.fail(t, fault)
		case http2.EndsStream:
			return h.reset(t, f.Stream, fault)
		}
		return StepNext
	case v.Late || v.GivesUp:
		h.mu.Lock()
		cost := h.earned.StreamCost(f, v)
		h.mu.Unlock()
		if fault := h.charge(cost); fault != http2.NoFault {
			return h.fail(t, fault)
		}
		return StepNext
	}
	return step
}

// reset resets a stream because of a fault.
func (h *Conn) reset(t *Turn, id uint32, fault http2.Fault) Step {
	h.driver.StreamFailed(id, fault)
	if fault := h.charge(1); fault != http2.NoFault {
		return h.fail(t, fault)
	}
	h.mu.Lock()
	h.ids.Reset(id)
	var ended Watcher
	if s := h.streams.Find(id); s != nil {
		ended = h.endStreamLocked(s, http2.Reset)
	}
	h.mu.Unlock()
	t.out = http2.AppendReset(t.out, id, fault.Code())
	tell(ended)
	return StepNext
}

// takeSettings handles SETTINGS.
func (h *Conn) takeSettings(t *Turn, f *http2.Frame) Step {
	if f.Ack() {
		if !h.acks.Received() {
			if fault := h.charge(1); fault != http2.NoFault {
				return h.fail(t, fault)
			}
		}
		return StepNext
	}
	h.mu.Lock()
	fault := h.applyLocked(f.Payload)
	if fault == http2.NoFault {
		t.out = http2.AppendSettingsAck(t.out)
	}
	if least, last, changed := h.peer.TakeTableSize(); changed {
		// Blocks that were rendered before must be sent before the acknowledgement, and the first block after it must begin with the update.
		h.pushLocked(t)
		h.encoder.SetTableSize(least, last)
		h.updateDue, h.mayUpdate = true, true
	}
	streams := h.streams.Len()
	h.mu.Unlock()
	if fault == http2.NoFault {
		fault = h.charge(streams / streamsPerGlitch) // applyLocked has visited each stream
	}
	if fault != http2.NoFault {
		return h.fail(t, fault)
	}
	return StepNext
}

// streamsPerGlitch is the number of open streams for which a SETTINGS frame costs one more glitch.
const streamsPerGlitch = 128

// applyLocked applies the client's settings.
func (h *Conn) applyLocked(entries []byte) http2.Fault {
	h.mu.AssertHeld()
	delta, fault := h.peer.Apply(entries)
	if fault != http2.NoFault || delta == 0 {
		return fault
	}
	for s := range h.streams.All {
		if !s.send.Adjust(delta) {
			return http2.FaultInitialWindow
		}
		h.mayGoOnLocked(s)
	}
	return http2.NoFault
}

// takePing answers PING, and recognizes the answer to the server's own PING.
func (h *Conn) takePing(t *Turn, f *http2.Frame) {
	if f.Ack() {
		if h.life == lifeLeaving {
			h.mu.Lock()
			race.Enter(&h.life, lifeAnswered)
			h.mu.Unlock()
		}
		return
	}
	t.out = http2.AppendPing(t.out, http2.FlagAck, [8]byte(f.Payload))
}

// takeWindow handles WINDOW_UPDATE.
func (h *Conn) takeWindow(t *Turn, f *http2.Frame, fault http2.Fault) Step {
	if f.Stream != 0 {
		return h.takeOther(t, f, fault)
	}
	h.mu.Lock()
	shut := h.sendWindow <= 0
	ok := h.sendWindow.Grow(f.Value)
	if shut && h.sendWindow > 0 {
		h.windowOpenedLocked()
	}
	h.mu.Unlock()
	if !ok {
		return h.fail(t, http2.FaultConnectionWindow)
	}
	return StepNext
}

// takeOther handles the frames of a stream that carry neither fields nor content: PRIORITY, RST_STREAM and WINDOW_UPDATE.
func (h *Conn) takeOther(t *Turn, f *http2.Frame, fault http2.Fault) Step {
	event, _ := http2.EventOf(f)
	var ended Watcher
	h.mu.Lock()
	s, state := h.stateLocked(f.Stream)
	v := state.Step(event)
	if v.Fault != http2.NoFault {
		fault = v.Fault
	}
	if s != nil && fault == http2.NoFault && !v.Late {
		switch event {
		case http2.ReceiveReset:
			ended = h.endStreamLocked(s, http2.Closed)
		case http2.ReceiveWindowUpdate:
			if s.send.Grow(f.Value) {
				h.mayGoOnLocked(s)
			} else {
				fault = http2.FaultWindow
			}
		}
	}
	h.mu.Unlock()
	tell(ended)
	return h.judge(t, f, v, fault, StepNext)
}

// takePriority handles PRIORITY_UPDATE.
func (h *Conn) takePriority(t *Turn, f *http2.Frame) Step {
	priority := http2.ParsePriority(f.Payload)
	h.mu.Lock()
	s, state := h.stateLocked(f.Value)
	if s != nil {
		h.schedule.SetPriority(&s.sender, priority)
	}
	room := h.shared.MaxStreams - h.counts.Streams()
	h.mu.Unlock()
	if state != http2.Idle {
		return StepNext
	}
	if fault := h.openPending().prioritized.Put(f.Value, priority, room); fault != http2.NoFault && (h.acks.Acked() || f.Value&1 == 0) {
		return h.fail(t, fault)
	}
	return StepNext
}
