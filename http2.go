package filo

import (
	"bytes"
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/syntax"
)

// http2Conn is a connection of HTTP/2 (RFC 9113): its frames, its streams, and what waits to be sent. Its driver reads the connection and
// calls next, which takes one frame from the input.
//
// One goroutine at a time owns the connection: it takes the frames, and runs handlers that are known to be quick (inline). Other handlers
// run apart: their goroutine gives the connection away before, or the loop's monitor takes it from a goroutine whose handler turns out to
// be slow. Unless said otherwise a field belongs to the owner.
//
// Nobody calls user code, or posts the connection, with mu held. LOOP.md has the order of the locks.
type http2Conn struct {
	conn   *conn       // immutable
	driver http2Driver // immutable

	in          http1.Input // what has come and wasn't taken; in a turn it is in the worker's buffer
	reader      http2.Reader
	decoder     http2.Decoder
	encoder     http2.Encoder // see updateDue
	block       http2.Block   // a field block of several frames, and the stream and the fault of its first one
	blockStream uint32
	blockFault  http2.Fault
	acks        http2.Acks
	glitches    http2.Glitches // earned is changed by the owner alone
	prioritized http2.Prioritized
	undecided   []*http2Stream // requests that wait for their body, and whose handler runs when the input is used up
	prefaced    bool           // the client's preface has come
	ending      bool           // no frame is taken any more: the connection ends when the output has been sent
	mayUpdate   bool           // updateDue may be set
	goneAway    goneAway
	goneSince   clock.Time  // when goneAway became goneSoon
	pinged      bool        // the PING behind the first GOAWAY wasn't answered yet
	headSince   clock.Time  // since when a frame, a field block or the preface has been incomplete; 0: none is
	began       bool        // the server's SETTINGS were rendered
	active      bool        // ConnState was told that the connection is active
	connContext sync.Once   // see outerContext
	closeAsked  atomic.Bool // the connection is to end when its streams have ended

	// inline is the stream whose handler the owner runs. Before the handler runs, the owner leaves the input and the finished output where
	// the monitor finds them. Whoever replaces the stream by nil, the owner or the monitor, has the connection.
	inline atomic.Pointer[http2Stream]

	out outbox.Outbox // framed bytes that the client hasn't taken

	mu         race.Mutex
	ids        http2.IDs                   // guarded by mu
	peer       http2.PeerSettings          // guarded by mu
	streams    http2.Table[http2Stream]    // those that others than the owner may touch; guarded by mu
	counts     http2.Counts                // guarded by mu
	sendWindow http2.SendWindow            // guarded by mu
	recv       http2.ReceiveWindow         // guarded by mu
	schedule   http2.Schedule[http2Stream] // streams with data and a window for it; guarded by mu
	queue      []byte                      // frames that are to go to out, in order; guarded by mu
	flushing   bool                        // a goroutine moves the queue to out; guarded by mu
	finishing  bool                        // the owner waits for the end of that; guarded by mu
	closed     bool                        // nothing is sent any more; guarded by mu
	// updateDue says that the next field block, whoever renders it, must begin with an update of HPACK's table. Until that block is in
	// the queue, encoder is guarded by mu. Set by the owner; guarded by mu.
	updateDue bool
	awaiting  int        // streams that await more of their request: see http2Stream.awaits; guarded by mu
	earned    int        // see Glitches.Earn: what the owner hasn't taken over yet; guarded by mu
	used      clock.Time // when a stream has ended last; guarded by mu
	wakeEmpty bool       // the owner must know when the last stream ends; guarded by mu
}

// http2Driver is what a connection needs of its driver.
type http2Driver interface {
	// leave makes the caller's worker an ordinary one with a place, and gives the connection, which the worker owns, to another one. It
	// reports false, and changes nothing, if no place is free. If kept is set, one of those that are kept for quick handlers will do.
	leave(s *http2Stream, class *class.Class, kept bool) bool
	// send sends b, or keeps a copy of what the client doesn't take at once.
	send(b []byte)
	// wakeOwner makes the owner have a turn, if nobody has one.
	wakeOwner()
	// flushed is called, with mu held, when the queue is empty for which the owner has set finishing.
	flushed()
}

// goneAway says how far the connection's end was announced.
type goneAway uint8

const (
	goneNowhere goneAway = iota
	goneSoon             // GOAWAY with the highest number, and a PING behind it: streams that are on their way are still served
	goneForGood          // GOAWAY with the last stream that is served
)

// http2Step tells a driver what comes next.
type http2Step uint8

const (
	http2Read http2Step = iota // send, then read more input
	http2Next                  // call next again
	http2Run                   // run the handler of the worker's stream
	http2End                   // send, then close
)

// http2Scratch is what a worker lends to a connection of HTTP/2.
type http2Scratch struct {
	head  http2.Head
	frame http2.Frame
	spare *http2Stream // for the next request; nil if the last one kept it
	run   *http2Stream // whose handler is to run: see http2Run
	owned *http2Conn   // the connection that the worker owns, nil once others have it
	out   []byte       // rendered in this turn, and not in the connection's queue yet
}

const (
	// maxControl is how many bytes may wait for the client before nothing is read from it any more.
	maxControl = 64 << 10
	// fillSize is how many bytes of DATA are framed at a time, so that a more urgent answer doesn't wait behind more than that.
	fillSize = 64 << 10
	// maxStreamUnsent is how much of an answer may wait for the client's window before a writing handler waits.
	maxStreamUnsent = 256 << 10
	// settingsTimeout is how long a client may take to acknowledge SETTINGS.
	settingsTimeout = 10 * time.Second
)

func newHTTP2(c *conn, driver http2Driver) *http2Conn {
	h := &http2Conn{conn: c, driver: driver, sendWindow: http2.DefaultWindow}
	h.decoder.Reset()
	h.encoder.Reset()
	h.peer.Reset()
	h.recv.Open(http2.DefaultWindow)
	h.used = c.server.clock.now()
	return h
}

// begin renders the server's preface: its SETTINGS.
func (h *http2Conn) begin(w *scratch) {
	w.http2.out = append(w.http2.out, h.conn.server.config.http2.settings...)
	h.acks.Sent(h.conn.server.clock.now(), settingsTimeout)
	if state := h.conn.tlsState; state != nil && state.Version == tls.VersionTLS12 && !slices.Contains(http2Suites, state.CipherSuite) {
		h.goAway(w, http2.InadequateSecurity, "the cipher suite is one that RFC 9113, appendix A, prohibits")
	}
}

// http2Suites are the suites of TLS 1.2 that package crypto/tls has and RFC 9113, section 9.2.2, permits.
var http2Suites = []uint16{
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// errMisdirected answers a request for a host other than the one that the TLS handshake was for, where the program chooses the
// configuration of TLS by the host. A browser sends requests for every host of the certificate on one connection, so another host's
// demands, such as a client certificate, would be passed by.
var errMisdirected = Error(421, "the connection was opened for another host")

// misdirected reports whether a request for the host came by a connection that was opened for another.
func (h *http2Conn) misdirected(host []byte) bool {
	s, state := h.conn.server, h.conn.tlsState
	if state == nil || state.ServerName == "" || s.TLSConfig == nil || s.TLSConfig.GetConfigForClient == nil {
		return false
	}
	if i := bytes.IndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	return !syntax.EqualFold(host, state.ServerName)
}

// next takes a frame, or a part of one, from the input.
func (h *http2Conn) next(w *scratch) http2Step {
	if h.ending {
		return http2End
	}
	unread := w.in.Unread()
	if !h.prefaced {
		switch done, fault := http2.ReadPreface(unread); {
		case fault != http2.NoFault:
			return h.fail(w, fault)
		case !done:
			return http2Read
		}
		h.prefaced = true
		w.in.Advance(len(http2.Preface))
		return http2Next
	}
	f := &w.http2.frame
	n, fault := h.reader.Next(f, unread)
	if n == 0 && fault == http2.NoFault {
		if len(h.undecided) > 0 {
			return h.decide(w)
		}
		return http2Read
	}
	step := h.take(w, f, fault)
	w.in.Advance(n)
	return step
}

// take does what a frame asks for. fault is what its form has wrong.
func (h *http2Conn) take(w *scratch, f *http2.Frame, fault http2.Fault) http2Step {
	if fault != http2.NoFault && !fault.OfStream() {
		return h.fail(w, fault)
	}
	if f.Type == http2.FramePing || f.Type == http2.FrameWindowUpdate {
		h.takeEarned()
	}
	if fault := h.charge(h.glitches.Cost(f)); fault != http2.NoFault {
		return h.fail(w, fault)
	}
	switch f.Type {
	case http2.FrameHeaders:
		if !h.block.Begin(f) {
			h.blockStream, h.blockFault = f.Stream, fault
			return http2Next
		}
		return h.takeBlock(w, f.Stream, f.Payload, f.EndStream(), fault)
	case http2.FrameContinuation:
		whole, fault := h.block.Continue(f, h.conn.server.config.head.Bytes)
		if fault != http2.NoFault {
			return h.fail(w, fault)
		}
		if !whole {
			return http2Next
		}
		block, endStream := h.block.Bytes()
		step := h.takeBlock(w, h.blockStream, block, endStream, h.blockFault)
		h.block.Release()
		return step
	case http2.FrameData:
		return h.takeData(w, f)
	case http2.FrameSettings:
		return h.takeSettings(w, f)
	case http2.FramePing:
		h.takePing(w, f)
	case http2.FrameWindowUpdate:
		return h.takeWindow(w, f, fault)
	case http2.FramePriority, http2.FrameReset:
		return h.takeOther(w, f, fault)
	case http2.FramePriorityUpdate:
		return h.takePriority(w, f)
	}
	return http2Next
}

// takeEarned takes over what the client has earned since the last call.
func (h *http2Conn) takeEarned() {
	h.mu.Lock()
	n := h.earned
	h.earned = 0
	h.mu.Unlock()
	h.glitches.Earn(n)
}

// charge charges the client for glitches.
func (h *http2Conn) charge(cost int) http2.Fault {
	if cost == 0 {
		return http2.NoFault
	}
	return h.glitches.Charge(cost, h.conn.server.clock.now(), h.conn.server.config.http2.glitches)
}

// fail ends the connection, because of what the client has sent.
func (h *http2Conn) fail(w *scratch, fault http2.Fault) http2Step {
	if h.conn.server.LogAllErrors {
		h.conn.server.logger().Warn("HTTP/2 connection refused", "error", fault.String(), "code", fault.Code().String(),
			"remote", h.conn.netConn.RemoteAddr().String())
	}
	h.goAway(w, fault.Code(), fault.String())
	return http2End
}

// goAway announces the end of the connection, which ends when its output has been sent.
func (h *http2Conn) goAway(w *scratch, code http2.ErrCode, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.goAwayLocked(w, code, text)
}

func (h *http2Conn) goAwayLocked(w *scratch, code http2.ErrCode, text string) {
	h.mu.AssertHeld()
	h.ending, h.goneAway = true, goneForGood
	w.http2.out = http2.AppendGoAway(w.http2.out, h.ids.Last(), code, text)
}

// stateLocked returns the stream with the number, if it is known, and its state.
func (h *http2Conn) stateLocked(id uint32) (*http2Stream, http2.State) {
	h.mu.AssertHeld()
	if s := h.streams.Find(id); s != nil {
		return s, s.state
	}
	return nil, h.ids.State(id)
}

// takeBlock takes the field block of a request or of a trailer section.
func (h *http2Conn) takeBlock(w *scratch, id uint32, block []byte, endStream bool, fault http2.Fault) http2Step {
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
			return h.fail(w, idFault)
		}
		if refused = h.goneAway == goneForGood; !refused && fault == http2.NoFault {
			fault = h.counts.Enter(h.conn.server.config.http2.maxStreams)
		}
		if refused || fault != http2.NoFault {
			h.ids.Reset(id)
		}
	}
	h.mu.Unlock()
	switch {
	case fault != http2.NoFault && v.Next.Ends(fault) == http2.EndsConnection:
		return h.fail(w, fault)
	case fault != http2.NoFault, v.Late, refused:
		// The client's later blocks build upon this one.
		if _, err := h.decoder.Decode(block, h.conn.server.config.head.Bytes, nil); err != nil {
			return h.fail(w, http2.FaultCompression)
		}
		if v.Late {
			if fault := h.charge(1); fault != http2.NoFault {
				return h.fail(w, fault)
			}
		}
		if fault == http2.NoFault {
			return http2Next
		}
		return h.reset(w, id, fault)
	case s != nil:
		return h.takeTrailer(w, s, block)
	}
	return h.takeRequest(w, id, block, endStream)
}

// takeRequest begins a request, which has a place.
func (h *http2Conn) takeRequest(w *scratch, id uint32, block []byte, endStream bool) http2Step {
	config := &h.conn.server.config
	s := w.http2.spare
	if s == nil {
		s = new(http2Stream)
	}
	w.http2.spare = nil
	s.open(h, id)
	head := &w.http2.head
	head.Begin(&s.request, s.text[:0], &config.head, config.http2.extendedConnect)
	over, err := h.decoder.Decode(block, config.head.Bytes, head)
	if err != nil {
		return h.fail(w, http2.FaultCompression)
	}
	text, framing, fault, refused := head.End(endStream, over)
	s.text, s.framing = text, framing
	h.conn.requests++
	if most := config.maxRequests; most > 0 && h.conn.requests >= most {
		h.closeAsked.Store(true)
	}
	if !h.active {
		h.active = true
		h.conn.server.changed(h.conn, StateActive)
	}
	if fault != http2.NoFault {
		h.mu.Lock()
		h.ids.Reset(id)
		h.leaveLocked()
		h.mu.Unlock()
		w.http2.spare = s
		return h.reset(w, id, fault)
	}
	priority, prioritized := h.prioritized.Take(id)
	if !prioritized {
		priority = head.Priority
	}
	s.sender.Init(s, id, priority)
	s.state = http2.HalfClosedRemote
	if !endStream {
		s.state = http2.Open
	}
	if refused != http1.NoFault {
		return h.refuse(w, s, faultErrors[refused])
	}
	w.http2.run = s
	if endStream {
		return http2Run
	}
	s.content.Begin(framing.Length)
	s.recv.Open(http2.DefaultWindow)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listLocked(s)
	if limit := config.maxBody; framing.ExpectContinue || framing.Length > maxAwaitedBody || limit >= 0 && framing.Length > limit {
		return http2Run
	}
	if framing.Length < 0 {
		h.undecided = append(h.undecided, s)
	}
	h.awaitLocked(s, awaitsBody)
	return http2Next
}

// awaitLocked notes what a stream awaits of its request, and since when.
func (h *http2Conn) awaitLocked(s *http2Stream, what http2Awaits) {
	h.mu.AssertHeld()
	if s.awaits != awaitsNothing {
		h.awaiting--
	}
	if s.awaits = what; what != awaitsNothing {
		h.awaiting++
		s.awaitsSince = h.conn.server.clock.now()
	}
}

// refuse answers a request that isn't valid without calling a handler.
func (h *http2Conn) refuse(w *scratch, s *http2Stream, reason *HTTPError) http2Step {
	s.worker = w
	s.logRefused(reason)
	s.count(reason.Status)
	h.mu.Lock()
	s.running = true
	s.refuseLocked(reason, string(s.request.Method(s.text)) == "HEAD")
	h.handlerEndedLocked(s)
	h.mu.Unlock()
	return http2Next
}

// decide runs the handler of a request whose body has no length and hasn't come as a whole yet.
func (h *http2Conn) decide(w *scratch) http2Step {
	s := h.undecided[0]
	h.undecided = h.undecided[1:]
	if len(h.undecided) == 0 {
		h.undecided = nil
	}
	return h.arrived(w, s) // unless its body has come since, or the client has reset it
}

// takeTrailer takes the trailer section of a request, which ends it.
func (h *http2Conn) takeTrailer(w *scratch, s *http2Stream, block []byte) http2Step {
	config := &h.conn.server.config
	head, trailer := &w.http2.head, new(http2Trailer)
	head.BeginTrailer(&trailer.head, nil, &config.head)
	over, err := h.decoder.Decode(block, config.head.Bytes, head)
	if err != nil {
		return h.fail(w, http2.FaultCompression)
	}
	fault, refused := head.EndTrailer(&trailer.fields, over)
	if fault == http2.NoFault && refused != http1.NoFault {
		fault = http2.FaultMalformed
	}
	h.mu.Lock()
	if fault == http2.NoFault {
		fault = s.content.Receive(0, true)
	}
	if fault == http2.NoFault {
		s.trailer = trailer
		h.receivedLocked(s)
	}
	h.mu.Unlock()
	if fault != http2.NoFault {
		return h.reset(w, s.id, fault)
	}
	return h.arrived(w, s)
}

// arrived runs the handler of a request if it waits for the body.
func (h *http2Conn) arrived(w *scratch, s *http2Stream) http2Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.awaits != awaitsBody {
		return http2Next
	}
	h.awaitLocked(s, awaitsNothing)
	w.http2.run = s
	return http2Run
}

// takeData takes DATA, or a part of it.
func (h *http2Conn) takeData(w *scratch, f *http2.Frame) http2Step {
	event, _ := http2.EventOf(f)
	h.mu.Lock()
	if !h.recv.Receive(f.Size) {
		h.mu.Unlock()
		return h.fail(w, http2.FaultConnectionOverrun)
	}
	// The connection's window must not depend on a body that nobody reads.
	credit, streamCredit := h.recv.Drain(f.Size, h.conn.server.config.http2.connWindow), uint32(0)
	s, state := h.stateLocked(f.Stream)
	v := state.Step(event)
	fault := v.Fault
	if s != nil && fault == http2.NoFault && !v.Late {
		if !s.recv.Receive(f.Size) {
			fault = http2.FaultOverrun
		} else if fault = s.content.Receive(len(f.Payload), f.EndStream()); fault == http2.NoFault {
			switch {
			case f.EndStream():
				s.body = append(s.body, f.Payload...)
				h.receivedLocked(s)
			case s.state == http2.HalfClosedLocal:
				h.discourageLocked(s)
			default:
				s.body = append(s.body, f.Payload...)
				streamCredit = s.recv.Drain(f.Size-len(f.Payload), h.conn.server.config.http2.streamWindow)
				s.wakeLocked()
			}
		}
	}
	h.mu.Unlock()
	if credit > 0 {
		w.http2.out = http2.AppendWindowUpdate(w.http2.out, 0, credit)
	}
	if streamCredit > 0 {
		w.http2.out = http2.AppendWindowUpdate(w.http2.out, f.Stream, streamCredit)
	}
	switch {
	case fault != http2.NoFault:
		return h.faulty(w, f.Stream, v.Next, fault)
	case v.Late:
		return h.late(w, f)
	case f.EndStream() && s != nil:
		return h.arrived(w, s)
	}
	return http2Next
}

// faulty ends what a fault ends, where next is the stream's state after the frame.
func (h *http2Conn) faulty(w *scratch, id uint32, next http2.State, fault http2.Fault) http2Step {
	switch next.Ends(fault) {
	case http2.EndsConnection:
		return h.fail(w, fault)
	case http2.EndsStream:
		return h.reset(w, id, fault)
	}
	return http2Next
}

// late charges for a frame on a stream that is over.
func (h *http2Conn) late(w *scratch, f *http2.Frame) http2Step {
	if fault := h.charge(h.glitches.LateCost(f)); fault != http2.NoFault {
		return h.fail(w, fault)
	}
	return http2Next
}

// reset resets a stream because of a fault.
func (h *http2Conn) reset(w *scratch, id uint32, fault http2.Fault) http2Step {
	if h.conn.server.LogAllErrors {
		h.conn.server.logger().Warn("HTTP/2 stream reset", "error", fault.String(), "code", fault.Code().String(), "stream", id,
			"remote", h.conn.netConn.RemoteAddr().String())
	}
	if fault != http2.FaultRefused || h.acks.Acked() {
		if fault := h.charge(1); fault != http2.NoFault {
			return h.fail(w, fault)
		}
	}
	h.mu.Lock()
	h.ids.Reset(id)
	var ended *requestContext
	if s := h.streams.Find(id); s != nil {
		ended = h.endStreamLocked(s, http2.Reset)
	}
	h.mu.Unlock()
	w.http2.out = http2.AppendReset(w.http2.out, id, fault.Code())
	ended.clientGone()
	return http2Next
}

// takeSettings takes SETTINGS.
func (h *http2Conn) takeSettings(w *scratch, f *http2.Frame) http2Step {
	if f.Ack() {
		if !h.acks.Received() {
			if fault := h.charge(1); fault != http2.NoFault {
				return h.fail(w, fault)
			}
		}
		return http2Next
	}
	w.http2.out = http2.AppendSettingsAck(w.http2.out)
	h.mu.Lock()
	fault := h.applyLocked(f.Payload)
	if least, last, changed := h.peer.TakeTableSize(); changed {
		// The blocks that were rendered before belong before the acknowledgement, and the update into the first block behind it.
		h.pushLocked(w)
		h.encoder.SetTableSize(least, last)
		h.updateDue, h.mayUpdate = true, true
	}
	h.mu.Unlock()
	if fault != http2.NoFault {
		return h.fail(w, fault)
	}
	return http2Next
}

// applyLocked takes over the client's settings.
func (h *http2Conn) applyLocked(entries []byte) http2.Fault {
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

// takePing answers PING, and knows the answer to the server's own.
func (h *http2Conn) takePing(w *scratch, f *http2.Frame) {
	if f.Ack() {
		h.pinged = false
		return
	}
	w.http2.out = http2.AppendPing(w.http2.out, http2.FlagAck, [8]byte(f.Payload))
}

// takeWindow takes WINDOW_UPDATE.
func (h *http2Conn) takeWindow(w *scratch, f *http2.Frame, fault http2.Fault) http2Step {
	if f.Stream != 0 {
		return h.takeOther(w, f, fault)
	}
	h.mu.Lock()
	ok := h.sendWindow.Grow(f.Value)
	h.mu.Unlock()
	if !ok {
		return h.fail(w, http2.FaultConnectionWindow)
	}
	return http2Next
}

// takeOther takes a frame of a stream that has no content.
func (h *http2Conn) takeOther(w *scratch, f *http2.Frame, fault http2.Fault) http2Step {
	event, _ := http2.EventOf(f)
	var ended *requestContext
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
	ended.clientGone()
	switch {
	case fault != http2.NoFault:
		return h.faulty(w, f.Stream, v.Next, fault)
	case v.Late:
		return h.late(w, f)
	}
	return http2Next
}

// takePriority takes PRIORITY_UPDATE.
func (h *http2Conn) takePriority(w *scratch, f *http2.Frame) http2Step {
	priority := http2.ParsePriority(f.Payload)
	h.mu.Lock()
	s, state := h.stateLocked(f.Value)
	if s != nil {
		h.schedule.SetPriority(&s.sender, priority)
	}
	room := h.conn.server.config.http2.maxStreams - h.counts.Streams()
	h.mu.Unlock()
	if state != http2.Idle {
		return http2Next
	}
	if fault := h.prioritized.Put(f.Value, priority, room); fault != http2.NoFault && (h.acks.Acked() || f.Value&1 == 0) {
		return h.fail(w, fault)
	}
	return http2Next
}

// listLocked makes a stream known to others than the owner.
func (h *http2Conn) listLocked(s *http2Stream) {
	h.mu.AssertHeld()
	if !s.listed {
		s.listed = true
		s.send += http2.SendWindow(h.peer.InitialWindow)
		h.streams.Add(s.id, s)
	}
}

// endStreamLocked ends a stream before its time: neither side sends on it any more. The caller cancels the context, without mu.
func (h *http2Conn) endStreamLocked(s *http2Stream, state http2.State) (ended *requestContext) {
	h.mu.AssertHeld()
	s.state, s.gone = state, true
	s.unsent, s.tail = nil, nil
	h.schedule.Remove(&s.sender)
	h.overLocked(s)
	s.wakeLocked()
	ended, s.watcher = s.watcher, nil
	return ended
}

// handlerEndedLocked notes that a stream has no handler any more.
func (h *http2Conn) handlerEndedLocked(s *http2Stream) {
	h.mu.AssertHeld()
	s.running = false
	switch {
	case s.state.Over():
		h.leaveLocked()
	case len(s.unsent) > 0:
		h.awaitLocked(s, awaitsWindow)
	}
}

// leaveLocked gives back the place of a stream that has ended.
func (h *http2Conn) leaveLocked() {
	h.mu.AssertHeld()
	h.counts.Leave()
	h.used = h.conn.server.clock.now()
	if (h.wakeEmpty || h.conn.server.ConnState != nil) && h.counts.Streams() == 0 {
		h.wakeEmpty = false
		go h.driver.wakeOwner() // it takes locks that come before mu
	}
}

// sentLocked notes that the answer's end is in the queue.
func (h *http2Conn) sentLocked(s *http2Stream) {
	h.mu.AssertHeld()
	s.state = s.state.Step(http2.SendDataEnd).Next
	if s.state.Over() {
		h.overLocked(s)
		return
	}
	h.awaitLocked(s, awaitsEnd)
	h.discourageLocked(s)
}

// discourageLocked resets a stream that was answered before its request has ended, once the client has sent so much that it goes on sending,
// or will wait for its window.
func (h *http2Conn) discourageLocked(s *http2Stream) {
	h.mu.AssertHeld()
	if s.recv.Undrained() > http2.DefaultWindow/4 {
		h.resetLocked(s, http2.NoError)
	}
}

// receivedLocked notes that the request has come as a whole.
func (h *http2Conn) receivedLocked(s *http2Stream) {
	h.mu.AssertHeld()
	if s.state = s.state.Step(http2.ReceiveDataEnd).Next; s.state.Over() {
		h.overLocked(s)
	}
	s.wakeLocked()
}

// resetLocked resets a stream that nobody sends on or reads from any more.
func (h *http2Conn) resetLocked(s *http2Stream, code http2.ErrCode) {
	h.mu.AssertHeld()
	h.queue = http2.AppendReset(h.queue, s.id, code)
	h.ids.Reset(s.id)
	s.state = http2.Reset
	h.overLocked(s)
}

// overLocked forgets a stream that is over. It keeps its place until its handler has returned.
func (h *http2Conn) overLocked(s *http2Stream) {
	h.mu.AssertHeld()
	h.awaitLocked(s, awaitsNothing)
	if s.listed {
		s.listed = false
		h.streams.Remove(s.id)
	}
	if !s.running {
		h.leaveLocked()
	}
}

// Limits implements outbox.Owner.
func (h *http2Conn) Limits() pace.Limits { return h.conn.server.config.writing }

// Now implements outbox.Owner.
func (h *http2Conn) Now() clock.Time { return h.conn.server.clock.exact() }

// Drained implements outbox.Owner.
func (h *http2Conn) Drained() { h.flush() }

// Disconnect implements outbox.Owner.
func (h *http2Conn) Disconnect() { (*observedConn)(h.conn).Close() }

// close ends all streams, since the connection has ended.
func (h *http2Conn) close() {
	var ended []*requestContext
	h.mu.Lock()
	h.closed, h.queue = true, nil
	for s := range h.streams.All {
		if r := h.endStreamLocked(s, http2.Closed); r != nil {
			ended = append(ended, r)
		}
	}
	h.mu.Unlock()
	for _, r := range ended {
		r.clientGone()
	}
}

// clientGone ends the context, if there is one, since its stream has ended.
func (r *requestContext) clientGone() {
	if r != nil {
		r.cancel(ErrClientGone)
	}
}

// http2Trailer is a request's trailer section, until its handler has read the body.
type http2Trailer struct {
	head   http1.RequestHead
	fields field.List
}

// wait returns what the connection waits for, and until when at most. partial says that a part of a frame has come.
func (h *http2Conn) wait(now clock.Time, partial bool) (state waitState, deadline clock.Time) {
	config := &h.conn.server.config
	h.mu.Lock()
	streams := h.counts.Streams()
	deadline = now.Deadline(config.idleTimeout)
	if h.awaiting > 0 {
		for s := range h.streams.All {
			deadline = earliest(deadline, s.awaitsUntil())
		}
	}
	h.mu.Unlock()
	switch {
	case h.goneAway != goneNowhere:
		state = stateLeaving
	case streams > 0:
		state = stateStreams
	case h.conn.requests == 0:
		state = stateNew
	default:
		state = stateIdle
	}
	if state == stateIdle && h.active {
		h.active = false
		h.conn.server.changed(h.conn, StateIdle)
	}
	deadline = earliest(deadline, h.acks.Deadline())
	switch {
	case h.prefaced && !partial && !h.reader.InBlock():
		h.headSince = 0
	case h.headSince == 0:
		h.headSince = now
		fallthrough
	default:
		deadline = earliest(deadline, h.headSince.Deadline(config.readHeaderTimeout))
	}
	if h.goneAway == goneSoon {
		deadline = earliest(deadline, h.goneSince.Add(goAwayTime))
	}
	return state, deadline
}

// earliest returns the earlier of two deadlines; 0 is none.
func earliest(a, b clock.Time) clock.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// goAwayTime is how long the client's answer to the PING behind the first GOAWAY is awaited.
const goAwayTime = 100 * time.Millisecond

// look is called when nothing has come. It does what is due, and reports whether something was.
func (h *http2Conn) look(w *scratch, expired bool) (did bool) {
	s := h.conn.server
	if s.life.draining.Load() || h.closeAsked.Load() {
		did = h.leaveSoon(w)
	}
	if !expired {
		return did
	}
	config, now := &s.config, s.clock.exact()
	passed := func(deadline clock.Time) bool { return deadline != 0 && now >= deadline }
	if fault := h.acks.Late(now); fault != http2.NoFault {
		h.fail(w, fault)
		return true
	}
	if h.headSince != 0 && passed(h.headSince.Deadline(config.readHeaderTimeout)) {
		h.goAway(w, http2.ProtocolError, errSlowHead.Detail)
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts.Streams() == 0 && passed(h.used.Deadline(config.idleTimeout)) {
		h.goAwayLocked(w, http2.NoError, "idle")
		return true
	}
	for s := range h.streams.All {
		if !passed(s.awaitsUntil()) {
			continue
		}
		did = true
		switch s.awaits {
		case awaitsBody:
			s.readPace.Add(0, now.Sub(s.awaitsSince)) // the handler gets the error
			h.undecided = append(h.undecided, s)
		case awaitsEnd:
			h.resetLocked(s, http2.NoError)
		case awaitsWindow:
			h.queue = http2.AppendReset(h.queue, s.id, http2.Cancel)
			h.ids.Reset(s.id)
			h.endStreamLocked(s, http2.Reset)
		}
	}
	return did
}

// closeSoon ends the connection when its streams have ended. Any goroutine may call it.
func (h *http2Conn) closeSoon() {
	if !h.closeAsked.Swap(true) {
		h.driver.wakeOwner()
	}
}

// leaveSoon takes the next step towards the end of a connection whose server shuts down, or that has had enough requests. It reports
// whether there was one.
func (h *http2Conn) leaveSoon(w *scratch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.goneAway == goneNowhere:
		h.goneAway, h.goneSince, h.pinged = goneSoon, h.conn.server.clock.exact(), true
		w.http2.out = http2.AppendGoAway(w.http2.out, 1<<31-1, http2.NoError, "")
		w.http2.out = http2.AppendPing(w.http2.out, 0, [8]byte{})
		return true
	case h.goneAway == goneSoon && (!h.pinged || h.conn.server.clock.exact() >= h.goneSince.Add(goAwayTime)):
		h.goneAway = goneForGood
		w.http2.out = http2.AppendGoAway(w.http2.out, h.ids.Last(), http2.NoError, "")
		return true
	case h.goneAway == goneForGood && !h.ending:
		if h.counts.Streams() == 0 {
			h.ending = true
			return true
		}
		h.wakeEmpty = true
	}
	return false
}

// outerContext returns the context of ConnContext.
func (h *http2Conn) outerContext() context.Context {
	h.connContext.Do(func() { h.conn.outerContext() })
	return h.conn.context
}

// openStreams returns how many streams are open, or have a handler.
func (h *http2Conn) openStreams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts.Streams()
}

// beginTurn lends the worker's buffers to the connection.
func (h *http2Conn) beginTurn(w *scratch) {
	if w.http2 == nil {
		w.http2 = new(http2Scratch)
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	w.http2.owned = h
	if !h.began {
		h.began = true
		h.begin(w)
	}
	unread := h.in.Unread()
	if len(unread) == 0 {
		return
	}
	if space := w.in.Space(); len(unread) <= len(space) {
		w.in.Received(copy(space, unread))
		h.in = http1.Input{}
		return
	}
	w.in, h.in = h.in, http1.Input{}
}

// endTurn returns the buffers to the worker.
func (h *http2Conn) endTurn(w *scratch) {
	w.http2.owned = nil
	h.keepInput(w)
}

// keepInput keeps what hasn't been taken of the input while no worker lends the connection a buffer.
func (h *http2Conn) keepInput(w *scratch) {
	if unread := w.in.Unread(); len(unread) > 0 {
		h.in.Save(unread)
	}
	w.in.Reset()
}

// giveAwayLocked prepares the connection for another worker, while the one that has had it runs the handler of s.
func (h *http2Conn) giveAwayLocked(s *http2Stream) {
	h.mu.AssertHeld()
	h.listLocked(s)
	h.pushLocked(s.worker)
	h.keepInput(s.worker)
}

// takeAway takes the connection from a worker that runs a handler inline, with what that worker has of it, and returns the worker. Then the
// connection is the caller's. takeAway returns nil if no handler runs inline.
func (h *http2Conn) takeAway() *scratch {
	s := h.inline.Load()
	if s == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.inline.CompareAndSwap(s, nil) {
		return nil
	}
	h.giveAwayLocked(s)
	return s.worker
}
