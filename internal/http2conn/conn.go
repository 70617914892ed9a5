// Package http2conn implements HTTP/2 connections and their streams (RFC 9113): it processes received frames, decides when to send what, and
// passes requests and answers between client and handler. It doesn't depend on handlers and workers. A driver reads a connection, calls
// Next, and runs the handler of the stream that Next has stored in the Turn; the handler's goroutine calls the methods of the Stream.
// Package http2 implements frames, states and windows.
package http2conn

import (
	"crypto/tls"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// Conn is a connection of HTTP/2 (RFC 9113): its frames, its streams, and the bytes that wait to be sent. Its driver reads the connection
// and calls Next, which processes one frame of the input.
//
// One goroutine at a time owns the connection: it processes the frames, and runs handlers that are known to be quick (inline). Before it
// runs any other handler, it gives the connection to another worker. If an inline handler turns out to be slow, the loop's monitor takes the
// connection from its goroutine. Only the owner accesses a field, unless the field's comment says otherwise.
//
// A server may have very many idle connections, so a Conn must be small. Fields that only some connections need, or need only for a short
// time, are behind a pointer, and the order of the fields leaves little padding.
//
// User code is never called, and the connection never posted to its loop, while mu is held. docs/internals/LOOP.md has the order of the
// locks.
type Conn struct {
	shared *Shared // immutable
	driver Driver  // immutable

	in        *http1.Input // received bytes that weren't processed; nil: none. During a turn they are in the worker's buffer
	decoder   http2.Decoder
	pending   *pending // nil if nothing is pending
	silence   *silence // nil if PingInterval is 0
	acks      http2.Acks
	glitches  http2.Glitches
	headSince clock.Time // since when a frame, a field block or the preface has been incomplete; 0: nothing is incomplete
	leaveTime clock.Time // when LeaveSoon must be called at the latest; 0: no limit. Changed with mu held
	reader    http2.Reader
	encoder   http2.Encoder // see updateDue

	aloneMu    sync.Mutex  // see Alone
	closeAsked atomic.Bool // the connection must end when its streams have ended
	asksLook   atomic.Bool // a stream's reader asks the owner to read once more: see awaitReadLocked
	wakers     wakers
	life       life // changed with mu held
	drains     bool // the owner knows that the server is shutting down
	prefaced   bool // the client's preface was received
	active     bool // Driver.Active(true) was called last, or New has received bytes
	mayUpdate  bool // updateDue may be set

	// inline is the turn in which the owner runs a handler. Before the handler runs, the owner leaves the input and the finished output in
	// the turn, where the monitor finds them. Either the owner or the monitor replaces the turn with nil, and thereby becomes the
	// connection's owner.
	inline atomic.Pointer[Turn]

	Out outbox.Outbox // frames that the socket hasn't accepted yet

	mu race.Mutex[race.OfHTTP2]

	// mu guards the fields down to wakeAwaiting.
	streams    http2.Table[Stream]    // the streams that goroutines other than the owner may access
	schedule   http2.Schedule[Stream] // streams that have data, and whose window is open
	queue      []byte                 // frames that flushLocked will move to Out, in order
	starving   *Stream                // a list of parked streams whose outboxes must be pumped: see feedLocked
	used       clock.Time             // when content was last framed, or a stream last ended
	ids        http2.IDs
	peer       http2.PeerSettings
	counts     http2.Counts
	sendWindow http2.SendWindow
	recv       http2.ReceiveWindow
	busySince  uint32        // since when the owner has handled input without a wait: see LookBusy; 0 if it has waited. Only the owner uses it
	bodies     *atomic.Int64 // bytes of unread bodies: the connection's or, if MaxConnsPerIP is set, those of its client's address; nil before the first body
	grown      int32         // the sum of the bytes by which the receive windows of open streams have grown
	awaiting   int32         // how many streams wait for their client: see Stream.awaits
	earned     http2.Earned
	flushDue   bool // a goroutine is about to flush: see flushSoonLocked
	buffered   bool // a stream has an unsentBuffer
	output     output
	wakeEmpty  bool // the owner must be woken when the last stream ends
	// updateDue says that the next field block, of any stream, must begin with an update of HPACK's table. Until that block is in
	// the queue, encoder is guarded by mu. Set by the owner.
	updateDue bool
	// wakeAwaiting says that the owner waits, and must be woken when a stream whose handler has answered begins to wait for its client.
	wakeAwaiting bool

	Shed       bool   // the connection must end if it has no streams, to make room for new connections; only the owner uses it
	lastServed uint32 // the stream number in the last GOAWAY; set from lifeLast on. Only the owner uses it

	requests atomic.Int32 // how many requests have begun, at most math.MaxInt32; only the owner increments it
}

// pending holds requests that are incomplete, and priorities of future requests. It belongs to the connection's owner.
type pending struct {
	block       *fieldBlock       // an incomplete field block, nil for none
	prioritized http2.Prioritized // priorities of streams that the client hasn't opened yet
	undecided   []uint32          // streams whose handlers run when the input is used up, even if the body is still incomplete
}

// fieldBlock is a field block of several frames.
type fieldBlock struct {
	http2.Block
	stream uint32      // the stream of its first frame
	fault  http2.Fault // a fault of its first frame
}

// silence says how long the client has sent nothing. It belongs to the connection's owner.
type silence struct {
	heard clock.Time // when bytes were last received, or when the connection began
	asked clock.Time // when a PING was sent after heard; 0: no PING was sent
}

// Step tells a driver what comes next.
type Step uint8

const (
	StepRead   Step = iota // send, then read more input
	StepNext               // call Next again
	StepRun                // run the handler of the turn's stream
	StepRefuse             // answer the turn's stream with an error, then call Next again
	StepEnd                // send, then close
)

// Turn holds the buffers that a worker lends to an HTTP/2 connection from BeginTurn to EndTurn. After that the worker keeps them for the
// next connection.
type Turn struct {
	In      *http1.Input // the worker's input buffer
	Lender  any          // the worker; only the drivers use it
	head    http2.Head
	frame   http2.Frame
	spare   *Stream     // reused for the next request; nil if the last request still uses it
	Stream  *Stream     // the stream whose handler must run (StepRun), or whose request must be refused (StepRefuse)
	Refused http1.Fault // the reason for StepRefuse
	owned   *Conn       // the connection that the worker owns, nil once another worker owns it
	toWake  uint32      // the stream whose reader must be woken once the input is used up: see wakeLaterLocked; 0 for none
	out     []byte      // rendered in this turn, and not in the connection's queue yet
}

const (
	// MaxControl is how many bytes of output may wait for the client before the server stops reading from it. Content of answers alone never
	// reaches that limit, since it is framed only while less than maxFilled waits. So a client that takes a large answer slowly can still
	// reset it.
	MaxControl = 192 << 10
	maxFilled  = 64 << 10
	// fillSize is how many bytes of DATA are framed at a time. A more urgent answer waits for at most that many bytes.
	fillSize = 64 << 10
	// maxStreamUnsent is how much of an answer may wait for the client before its handler blocks in Write. The handler goes on once at most
	// lowStreamUnsent waits.
	maxStreamUnsent = 256 << 10
	lowStreamUnsent = maxStreamUnsent / 2
	// maxQueuedUnsent replaces maxStreamUnsent for an answer while another answer of the connection has an unsentBuffer. A higher limit
	// wouldn't make the connection faster, since it carries one frame after the other.
	maxQueuedUnsent = 16 << 10
	// maxShutUnsent is how much of an answer may wait while the client's windows are closed. That is less memory than a blocked handler needs.
	maxShutUnsent = 4 << 10
	// firstWindow is how much a client may send on a stream at first: the SETTINGS that the server sends name no other size.
	firstWindow = http2.DefaultWindow
	// settingsTimeout is how long a client may take to acknowledge SETTINGS.
	settingsTimeout = 10 * time.Second
)

// New returns a connection that is about to send the server's preface: its SETTINGS. state is nil without TLS. unread holds the bytes that
// were received so far; if there are any, the connection counts as active, as if Driver.Active(true) had been called. The caller opens Out.
func New(shared *Shared, driver Driver, state *tls.ConnectionState, unread []byte) *Conn {
	h := &Conn{shared: shared, driver: driver, sendWindow: http2.DefaultWindow}
	h.decoder.Reset()
	h.encoder.Reset()
	h.peer.Reset()
	h.recv.Open(http2.DefaultWindow)
	h.used = shared.Clock.Now()
	if shared.PingInterval > 0 {
		h.silence = &silence{heard: h.used}
	}
	if len(unread) > 0 {
		h.saveInput(unread)
		h.active = true
	}
	h.queue = append(h.queue, shared.Settings...)
	h.acks.Sent(h.used, settingsTimeout)
	if state != nil && state.Version == tls.VersionTLS12 && !slices.Contains(suites, state.CipherSuite) {
		h.life = lifeEnding
		h.queue = http2.AppendGoAway(h.queue, 0, http2.InadequateSecurity, "the cipher suite is one that RFC 9113, appendix A, prohibits")
	}
	return h
}

// suites are the cipher suites of TLS 1.2 that crypto/tls implements and RFC 9113, section 9.2.2, permits.
var suites = []uint16{
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Next processes a frame, or a part of one, and returns what the driver must do next. Before StepRun or StepEnd it wakes the reader whose
// wake-up wakeLaterLocked has put off.
func (h *Conn) Next(t *Turn) Step {
	step := h.takeNext(t)
	switch step {
	case StepRun:
		h.WakePutOff(t)
		t.Stream.running = true
	case StepEnd:
		h.WakePutOff(t)
	}
	return step
}

// takeNext processes a frame, or a part of one, of the input.
func (h *Conn) takeNext(t *Turn) Step {
	if h.life == lifeEnding {
		return StepEnd
	}
	unread := t.In.Unread()
	if !h.prefaced {
		switch done, fault := http2.ReadPreface(unread); {
		case fault != http2.NoFault:
			return h.fail(t, fault)
		case !done:
			return h.needInput(t)
		}
		h.prefaced = true
		t.In.Advance(len(http2.Preface))
		return StepNext
	}
	f := &t.frame
	n, fault := h.reader.Next(f, unread)
	if n == 0 && fault == http2.NoFault {
		if h.pending != nil && len(h.pending.undecided) > 0 {
			return h.decide(t)
		}
		return h.needInput(t)
	}
	step := h.take(t, f, fault)
	t.In.Advance(n)
	if !h.reader.InBlock() {
		h.headSince = 0
	}
	return step
}

// needInput returns the step for an input that is used up. If the connection must end, needInput announces that to the client. The
// connection ends when its streams have ended.
func (h *Conn) needInput(t *Turn) Step {
	if h.leaves() {
		h.LeaveSoon(t)
	}
	if h.life == lifeEnding {
		return StepEnd
	}
	return StepRead
}

// Limits implements outbox.Owner.
func (h *Conn) Limits() pace.Limits { return h.shared.Writing }

// Now implements outbox.Owner.
func (h *Conn) Now() clock.Time { return h.shared.Clock.Exact() }

// HasMore implements outbox.Owner.
func (h *Conn) HasMore() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.schedule.Empty() && h.sendWindow > 0
}

// Drained implements outbox.Owner.
func (h *Conn) Drained() { h.Flush() }

// Disconnect implements outbox.Owner.
func (h *Conn) Disconnect(err error) { h.driver.Disconnect(err) }

// Close ends all streams, since the connection has ended.
func (h *Conn) Close() {
	var ended []Watcher
	h.mu.Lock()
	race.Enter(&h.output, outputClosed)
	h.queue = nil
	for s := range h.streams.All {
		if w := h.endStreamLocked(s, http2.Closed); w != nil {
			ended = append(ended, w)
		}
	}
	h.mu.Unlock()
	for _, w := range ended {
		tell(w)
	}
	h.endWaking()
}

// trailerSection is the received trailer section of a request, which the handler may ask for once it has read the body.
type trailerSection struct {
	head   http1.RequestHead
	fields field.List
}

// Alone calls f while no other goroutine is in Alone, since handlers of several streams may access the same state of their connection.
func (h *Conn) Alone(f func()) {
	h.aloneMu.Lock()
	defer h.aloneMu.Unlock()
	f()
}

// OpenStreams returns how many streams are open, or have a handler.
func (h *Conn) OpenStreams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts.Streams()
}

// LastUse returns when the connection was last used, and whether its client has never sent a request.
func (h *Conn) LastUse() (used clock.Time, silent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.used, h.ids.Last() == 0
}

// Requests returns how many requests have begun. Any goroutine may call it.
func (h *Conn) Requests() int32 { return h.requests.Load() }

// Stop makes the connection process no more frames: it ends when its output has been sent. Only the owner calls Stop.
func (h *Conn) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	race.Enter(&h.life, lifeEnding)
}

// IsStopped reports to the owner whether the connection processes no more frames.
func (h *Conn) IsStopped() bool { return h.life == lifeEnding }

// IsLookAsked reports whether a stream's reader asks the owner to read from the socket once more, and then to call HasLooked.
func (h *Conn) IsLookAsked() bool { return h.asksLook.Load() }

// KeepsInput reports to the owner whether input waits for the next turn.
func (h *Conn) KeepsInput() bool { return h.in != nil }

// IsOwnedBy reports whether the worker of t, which is the caller, owns the connection.
func (h *Conn) IsOwnedBy(t *Turn) bool { return t.owned == h }

// IsHead reports whether the last decoded request is a HEAD.
func (t *Turn) IsHead() bool { return string(t.head.Method()) == "HEAD" }

// Rendered returns how many bytes were rendered in the turn and aren't in the connection's queue yet.
func (t *Turn) Rendered() int { return len(t.out) }
