// Package http2conn has the connections of HTTP/2 (RFC 9113) and their streams: what is received, what is sent when, and how requests and
// answers pass. It knows nothing of handlers and workers. A driver reads a connection, calls Next, and runs the handler of the stream that Next
// leaves in the turn; the handler's goroutine calls the stream. Package http2 has the frames, the states and the windows.
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
// and calls Next, which takes one frame from the input.
//
// One goroutine at a time owns the connection: it takes the frames, and runs handlers that are known to be quick (inline). Other handlers
// run apart: their goroutine gives the connection away before, or the loop's monitor takes it from a goroutine whose handler turns out to
// be slow. Unless said otherwise a field belongs to the owner.
//
// A server may have very many idle connections. So fields that only some of them need, or need only for a short time, are behind a pointer,
// and the fields are in an order that leaves few gaps.
//
// Nobody calls user code, or posts the connection, with mu held. docs/internals/LOOP.md has the order of the locks.
type Conn struct {
	shared *Shared // immutable
	driver Driver  // immutable

	in        *http1.Input // received bytes that weren't taken; nil: none. During a turn they are in the worker's buffer
	decoder   http2.Decoder
	pending   *pending // nil for nothing
	silence   *silence // kept if PingInterval is set, else nil
	acks      http2.Acks
	glitches  http2.Glitches
	headSince clock.Time // since when a frame, a field block or the preface has been incomplete; 0: none is
	leaveTime clock.Time // when LeaveSoon is due, unless the client does something before; 0: never. Changed with mu held
	reader    http2.Reader
	encoder   http2.Encoder // see updateDue

	aloneMu    sync.Mutex  // see Alone
	closeAsked atomic.Bool // the connection must end when its streams have ended
	asksLook   atomic.Bool // a stream's reader asks the owner to look once more: see awaitReadLocked
	wakers     wakers
	life       life // changed with mu held
	drains     bool // the owner knows that the server is shutting down
	prefaced   bool // the client's preface has come
	active     bool // Driver.Active was told that the connection is active
	mayUpdate  bool // updateDue may be set

	// inline is the turn in which the owner runs a handler. Before the handler runs, the owner leaves the input and the finished output in
	// the turn, where the monitor finds them. Either the owner or the monitor replaces the turn by nil, and then has the connection.
	inline atomic.Pointer[Turn]

	Out outbox.Outbox // framed bytes that the client hasn't taken

	mu race.Mutex[race.OfHTTP2]

	// What follows is guarded by mu.
	streams    http2.Table[Stream]    // the streams that goroutines other than the owner may touch
	schedule   http2.Schedule[Stream] // streams with data and a window for it
	queue      []byte                 // frames that will go to out, in order
	starving   *Stream                // a list of parked streams whose outboxes may give them more
	used       clock.Time             // when content was framed last, or a stream has ended
	ids        http2.IDs
	peer       http2.PeerSettings
	counts     http2.Counts
	sendWindow http2.SendWindow
	recv       http2.ReceiveWindow
	bodies     *atomic.Int64 // the size of the client's buffers: of the connection, or if MaxConnsPerIP is set, of its address; nil before a body
	grown      int32         // by how much the receive windows of open streams have grown together
	awaiting   int32         // streams that await more of their request: see Stream.awaits
	earned     http2.Earned
	flushDue   bool // a goroutine is about to flush: see FlushSoon
	buffered   bool // a stream has an unsentBuffer
	output     output
	wakeEmpty  bool // the owner must know when the last stream ends
	// updateDue says that the next field block, of any stream, must begin with an update of HPACK's table. Until that block is in
	// the queue, encoder is guarded by mu. Set by the owner.
	updateDue bool
	// wakeAwaiting says that the owner waits, and must know when a stream that has been answered awaits its client.
	wakeAwaiting bool

	Shed       bool   // the connection must end if it has no streams, since other connections need its place; the owner's
	lastServed uint32 // the number of a stream in the last GOAWAY; set from lifeLast on. The owner's

	requests atomic.Int32 // how many have begun, at most math.MaxInt32; the owner counts
}

// pending holds the requests and priorities that wait for more frames. It belongs to the connection's owner.
type pending struct {
	block       *fieldBlock       // a field block of several frames that has begun, nil for none
	prioritized http2.Prioritized // of streams that the client hasn't opened yet
	undecided   []uint32          // streams that wait for their body, and whose handler runs when the input is used up
}

// fieldBlock is a field block of several frames.
type fieldBlock struct {
	http2.Block
	stream uint32      // of its first frame
	fault  http2.Fault // of its first frame
}

// silence says how long the client has sent nothing. It belongs to the connection's owner.
type silence struct {
	heard clock.Time // when something came last, or the connection began
	asked clock.Time // when a PING was sent since; 0: none was
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

// Turn holds the buffers that a worker lends to a connection of HTTP/2, from BeginTurn to EndTurn, and then keeps for the next connection.
type Turn struct {
	In      *http1.Input // the worker's
	Lender  any          // the worker, for the drivers
	head    http2.Head
	frame   http2.Frame
	spare   *Stream     // for the next request; nil if the last one kept it
	Stream  *Stream     // whose handler must run, or that must be refused: see Step
	Refused http1.Fault // why, in the second case
	owned   *Conn       // the connection that the worker owns, nil once another worker has it
	toWake  uint32      // the stream whose reader must be woken once the input is used up: see wakeLaterLocked; 0 for none
	out     []byte      // rendered in this turn, and not in the connection's queue yet
}

const (
	// MaxControl is how many bytes may wait for the client before nothing is read from it any more. Content of answers is framed only as
	// long as no more than maxFilled waits. So it doesn't stop the reading: a client must be able to reset a large answer that it takes
	// slowly.
	MaxControl = 192 << 10
	maxFilled  = 64 << 10
	// fillSize is how many bytes of DATA are framed at a time, so that a more urgent answer doesn't wait behind more than that.
	fillSize = 64 << 10
	// maxStreamUnsent is how much of an answer may wait for the client before a writing handler waits, until lowStreamUnsent is left.
	maxStreamUnsent = 256 << 10
	lowStreamUnsent = maxStreamUnsent / 2
	// maxQueuedUnsent is how much of each further answer may wait while so much of another answer waits on the connection. With more, the
	// connection wouldn't be faster, since it carries one frame after the other.
	maxQueuedUnsent = 16 << 10
	// maxShutUnsent is how much of an answer may wait while the client's windows are closed: less memory than a waiting handler takes.
	maxShutUnsent = 4 << 10
	// firstWindow is how much a client may send on a stream at first: the SETTINGS that the server sends name no other size.
	firstWindow = http2.DefaultWindow
	// settingsTimeout is how long a client may take to acknowledge SETTINGS.
	settingsTimeout = 10 * time.Second
)

// New returns a connection that is about to send the server's preface: its SETTINGS. state is nil without TLS. unread holds the bytes that
// have arrived so far; if there are any, the connection counts as active, as if Driver.Active had been told. The caller opens Out.
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

// suites are the suites of TLS 1.2 that package crypto/tls has and RFC 9113, section 9.2.2, permits.
var suites = []uint16{
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Next takes a frame, or a part of one, and says what comes next. Before a handler runs here, or the connection ends, it wakes the reader
// that wakeLaterLocked has put off.
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

// takeNext takes a frame, or a part of one, from the input.
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

// needInput is the step when the input is used up. A connection that must end tells its client so, and ends when its streams have.
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

// trailerSection is a request's trailer section, until its handler has read the body.
type trailerSection struct {
	head   http1.RequestHead
	fields field.List
}

// Alone calls f when no other call of Alone runs: handlers of several streams may need the same parts of their connection.
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

// LastUse returns when the connection was used last, and whether it has never had a request.
func (h *Conn) LastUse() (used clock.Time, silent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.used, h.ids.Last() == 0
}

// Requests returns how many requests have begun. Any goroutine may call it.
func (h *Conn) Requests() int32 { return h.requests.Load() }

// Stop makes the connection take no frame any more: it ends when its output has been sent. The owner calls it.
func (h *Conn) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	race.Enter(&h.life, lifeEnding)
}

// IsStopped reports to the owner whether the connection takes no frame any more.
func (h *Conn) IsStopped() bool { return h.life == lifeEnding }

// IsLookAsked reports whether a stream's reader asks the owner to look once more, and then to call HasLooked.
func (h *Conn) IsLookAsked() bool { return h.asksLook.Load() }

// KeepsInput reports to the owner whether input waits for the next turn.
func (h *Conn) KeepsInput() bool { return h.in != nil }

// IsOwnedBy reports whether the turn, which is the caller's, has the connection.
func (h *Conn) IsOwnedBy(t *Turn) bool { return t.owned == h }

// IsHead reports whether the request that was decoded last is a HEAD.
func (t *Turn) IsHead() bool { return string(t.head.Method()) == "HEAD" }

// Rendered returns how many bytes the turn has rendered for its connection, and not given to it yet.
func (t *Turn) Rendered() int { return len(t.out) }
