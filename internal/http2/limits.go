package http2

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// GlitchLimits says how many glitches (see Glitches) a client may cause.
type GlitchLimits struct {
	Burst  int // how many at once; negative: no limit
	Second int // how many a second in the long run; over 0
}

// DefaultGlitches is enough for a proxy with many users, and limits how much work an attacker can cause.
var DefaultGlitches = GlitchLimits{Burst: 1000, Second: 33}

// Glitches charges a client for frames that well-behaved clients rarely send, since such frames cost the server more than the client, or
// serve no purpose. There is one account for all kinds of such frames, since attacks mix them. The zero value is an account without charges.
//
// Each of these costs 1:
//   - RST_STREAM that the server sends, except with NO_ERROR, since the client may have provoked it.
//   - a frame for which Cost returns 1.
//   - a frame for which StreamCost returns 1, because of the state of its stream.
//   - SETTINGS with ACK while the server has no unacknowledged SETTINGS.
type Glitches struct {
	// paid is the time at which all charges will be paid off at the rate of the limits. As a time, the account is a single number, and is
	// never rounded.
	paid clock.Time
}

// Charge charges the client for the given number of glitches. It returns FaultGlitches if the client has caused too many.
func (g *Glitches) Charge(cost int, now clock.Time, limits GlitchLimits) Fault {
	if cost == 0 || limits.Burst < 0 {
		return NoFault
	}
	each := time.Second / time.Duration(limits.Second)
	g.paid = max(g.paid, now).Add(time.Duration(cost) * each)
	if g.paid > now.Add(time.Duration(limits.Burst)*each) {
		return FaultGlitches
	}
	return NoFault
}

// Earned counts the frames that a client may send without being charged, because of the answers that the server has sent it. With the zero
// value, the client has earned no frames.
type Earned struct {
	// frames is how many frames the client may send for free: PING (gRPC's clients measure the bandwidth with it), small WINDOW_UPDATE, or
	// frames for streams that have ended.
	frames uint16
	// answers is how many whole answers the server has sent. For each of them the client may give up one other answer: users of a proxy or of gRPC
	// cancel requests, and many of them share a connection. An answer counts when its end is sent.
	answers uint16
	// content is how many bytes of whole answers the client hasn't credited by WINDOW_UPDATE. Clients send WINDOW_UPDATE when their program
	// has read bytes, even after the answer has ended; net/http's client sends one for every 4 KB.
	content uint32
}

// maxEarned and maxEarnedContent limit how much a client can accumulate.
const (
	maxEarned        = 1000
	maxEarnedContent = 1 << 30
)

// Data records that n bytes of an answer's content were sent. all says that no more content was waiting. In that case the client earns two
// frames, one for each window, even if n is small, since the handler has written no more. Otherwise the client earns one frame for a
// kilobyte or more. For less it earns none, since then its own small window is the reason for the small frame.
func (e *Earned) Data(n int, all bool) {
	switch {
	case all:
		e.add(2)
	case n >= 1<<10:
		e.add(1)
	}
}

// Answer records that an answer was sent completely. content is how many bytes of it the client hasn't yet credited to the stream's window.
// The client earns another frame.
func (e *Earned) Answer(content int) {
	e.add(1)
	e.answers = min(e.answers+1, maxEarned)
	e.content = uint32(min(int64(e.content)+int64(max(content, 0)), maxEarnedContent))
}

// GiveUp records that the client gives up an answer, and returns how many glitches that costs.
func (e *Earned) GiveUp() int {
	if e.answers == 0 {
		return 1
	}
	e.answers--
	return 0
}

func (e *Earned) add(frames uint16) { e.frames = min(e.frames+frames, maxEarned) }

// pay returns 0 and uses up an earned frame if there is one, and otherwise returns 1.
func (e *Earned) pay() int {
	if e.frames == 0 {
		return 1
	}
	e.frames--
	return 0
}

const (
	// A WINDOW_UPDATE whose increment is below smallUpdate is a glitch: it would divide an answer into many small frames.
	smallUpdate = 256
	// DATA frames that arrive after their stream has ended are glitches if they are smaller than smallData. Those that a well-behaved client
	// has sent before it learned of the end are mostly larger.
	smallData = 256
)

// Pays reports whether the cost of the frame depends on what the client has earned. If it doesn't, Cost doesn't access its receiver, which
// other goroutines may then use at the same time.
func Pays(f *Frame) bool { return f.Type == FramePing || f.Type == FrameWindowUpdate }

// Cost returns how many glitches a frame costs whatever the state of its stream is.
func (e *Earned) Cost(f *Frame) int {
	switch f.Type {
	case FrameData:
		if len(f.Payload) == 0 && !f.Follows && !f.EndStream() {
			return 1
		}
	case FrameHeaders, FrameContinuation, FrameReset:
		// Their cost depends on how the server handles them. Block limits the frames of a field block.
	case FramePriority, FramePriorityUpdate:
		return 1
	case FrameSettings:
		if !f.Ack() {
			return 1 + len(f.Payload)/settingLen
		}
	case FramePing:
		if f.Ack() {
			return 1 // the server itself rarely sends PING
		}
		return e.pay()
	case FrameWindowUpdate:
		if f.Value < smallUpdate {
			return e.pay()
		}
	case FrameGoAway:
		return 1
	default:
		if !f.Follows {
			return 1
		}
	}
	return 0
}

// StreamCost returns how many glitches a frame costs because of the state of its stream. v is the result of State.Step for the frame.
func (e *Earned) StreamCost(f *Frame, v Verdict) int {
	switch {
	case v.GivesUp:
		e.add(1) // net/http's client sends a PING with RST_STREAM
		return e.GiveUp()
	case !v.Late:
		return 0
	}
	switch f.Type {
	case FrameHeaders:
		return 1
	case FrameData:
		if f.Length < smallData && !f.Follows {
			return 1
		}
	case FrameReset:
		return e.pay()
	case FrameWindowUpdate:
		switch {
		case f.Value < smallUpdate: // Cost has charged it
		case f.Value <= e.content:
			e.content -= f.Value
		default:
			return e.pay()
		}
	}
	return 0
}

// Counts counts the streams of a connection. A stream counts from HEADERS on until it has ended and its handler has returned. A handler goes
// on when its client resets the stream. So if only open streams counted, a client could start any number of handlers.
type Counts struct {
	streams int32
}

// Enter counts a new stream, or returns FaultRefused if there are max streams already.
func (c *Counts) Enter(max int) Fault {
	if int(c.streams) >= max {
		return FaultRefused
	}
	c.streams++
	return NoFault
}

// Leave records that a stream doesn't count any more.
func (c *Counts) Leave() {
	if c.streams--; c.streams < 0 {
		panic("http2: a stream has left twice")
	}
}

// Streams returns how many streams count at present.
func (c *Counts) Streams() int { return int(c.streams) }

const (
	// MaxContinuations is how many CONTINUATION frames a field block may have, if the limit of a head is at most 16 KB. Clients need none up to
	// that size.
	MaxContinuations = 8
	// If the limit is larger, a field block may have one CONTINUATION frame for each continuationSize bytes of the limit. Clients send 16 KB
	// in each frame.
	continuationSize = 2 << 10
)

// Block collects a field block that is divided into several frames. The zero value is empty, and has no memory.
type Block struct {
	b         []byte
	frames    int
	endStream bool
}

// Begin begins a block with HEADERS, and reports whether the frame has the whole block. In that case the payload is the block, and Begin
// doesn't copy it.
func (k *Block) Begin(f *Frame) (whole bool) {
	k.b, k.frames, k.endStream = k.b[:0], 0, f.EndStream()
	if f.Flags.Has(FlagEndHeaders) {
		return true
	}
	k.b = append(k.b, f.Payload...)
	return false
}

// Continue appends CONTINUATION to the block, and reports whether the block is complete. limit bounds a request's head, in bytes. A somewhat
// larger block is collected too, since it must be decoded in any case; its request is then refused. Continue returns FaultBlock, which ends
// the connection, if the block has more than twice the limit or too many frames.
func (k *Block) Continue(f *Frame, limit int) (whole bool, fault Fault) {
	if k.frames++; k.frames > max(MaxContinuations, limit/continuationSize) || len(k.b)+len(f.Payload)-limit > limit {
		return false, FaultBlock
	}
	k.b = append(k.b, f.Payload...)
	return f.Flags.Has(FlagEndHeaders), NoFault
}

// Bytes returns the block, and whether its HEADERS had END_STREAM.
func (k *Block) Bytes() (b []byte, endStream bool) { return k.b, k.endStream }
