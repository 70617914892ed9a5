package http2

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// GlitchLimits says how many glitches a client may cause.
type GlitchLimits struct {
	Burst  int // at once; negative: no limit
	Second int // in each second in the long run, over 0
}

// DefaultGlitches is enough for a proxy with many users, and bounds what an attacker gets for its frames.
var DefaultGlitches = GlitchLimits{Burst: 1000, Second: 33}

// Glitches charges a client for frames that well-behaved clients rarely send, because they cost the server more than the client, or serve
// no purpose. There is one account for all such frames, since attacks mix them. The zero value owes nothing.
//
// Each of these costs 1:
//   - RST_STREAM that the server sends, except with NO_ERROR: the client may have provoked it.
//   - a frame for which Cost returns 1.
//   - a frame for which StreamCost returns 1 because of its stream.
//   - SETTINGS with ACK where there was nothing to acknowledge.
type Glitches struct {
	// paid is when everything will be paid off at the rate of the limits. So the account is one number, and loses no fraction.
	paid clock.Time
}

// Charge charges cost glitches. FaultGlitches means that they are too many.
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

// Earned counts the frames that a client may send without a glitch, because of the answers that it was sent. The zero value is nothing.
type Earned struct {
	// frames is how many reasons for frames the client has. For each of them it may send one PING (those of gRPC measure the bandwidth),
	// one small WINDOW_UPDATE, or one frame for a stream that is over.
	frames uint16
	// answers is how many whole answers the client was sent. For each of them it may give another one up: users of a proxy or of gRPC
	// cancel requests, and they all share a connection. An answer doesn't count before its end was sent.
	answers uint16
	// content is how many bytes of whole answers the client hasn't given back. Clients send WINDOW_UPDATE for the bytes that their program
	// has read, even after the answer has ended; net/http's sends one for every 4 KB.
	content uint32
}

// maxEarned and maxEarnedContent bound what a client can save up.
const (
	maxEarned        = 1000
	maxEarnedContent = 1 << 30
)

// Data records that n bytes of an answer's content were sent. all says that nothing else of the answer waited. Then they give two reasons,
// one for each window, however few they are, since the handler wrote no more. Otherwise a kilobyte or more gives one reason, and less gives
// none, since the client's window is small.
func (e *Earned) Data(n int, all bool) {
	switch {
	case all:
		e.add(2)
	case n >= 1<<10:
		e.add(1)
	}
}

// Answer records that an answer was sent as a whole, and for how many bytes of its content the client hasn't opened its stream's window
// again. That gives a reason, too.
func (e *Earned) Answer(content int) {
	e.add(1)
	e.answers = min(e.answers+1, maxEarned)
	e.content = uint32(min(int64(e.content)+int64(max(content, 0)), maxEarnedContent))
}

// GiveUp returns how many glitches it costs to give an answer up.
func (e *Earned) GiveUp() int {
	if e.answers == 0 {
		return 1
	}
	e.answers--
	return 0
}

func (e *Earned) add(frames uint16) { e.frames = min(e.frames+frames, maxEarned) }

// pay returns 0 if the client has a reason for a frame, else 1.
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
	// DATA frames that come late cost something if they are smaller than smallData. Frames that were on their way when the stream ended are
	// mostly larger.
	smallData = 256
)

// Pays reports whether the cost of the frame depends on what the client has earned. If not, Cost doesn't touch e, and other goroutines may
// use e at the same time.
func Pays(f *Frame) bool { return f.Type == FramePing || f.Type == FrameWindowUpdate }

// Cost returns how many glitches a frame costs by itself.
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
			return 1 // the server rarely asks
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

// StreamCost returns how many glitches a frame costs because of its stream. v is the stream's verdict on the frame.
func (e *Earned) StreamCost(f *Frame, v Verdict) int {
	switch {
	case v.GivesUp:
		e.add(1) // net/http's client sends a PING with it
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
		case f.Value < smallUpdate: // by Cost
		case f.Value <= e.content:
			e.content -= f.Value
		default:
			return e.pay()
		}
	}
	return 0
}

// Counts counts the streams that take up a place: from HEADERS on, until the stream is over and its handler has returned. A handler goes on
// when its client resets the stream, so a count of open streams alone would let a client start any number of them.
type Counts struct {
	streams int32
}

// Enter takes one of max places, or returns FaultRefused.
func (c *Counts) Enter(max int) Fault {
	if int(c.streams) >= max {
		return FaultRefused
	}
	c.streams++
	return NoFault
}

// Leave gives a place back.
func (c *Counts) Leave() {
	if c.streams--; c.streams < 0 {
		panic("http2: a stream has left twice")
	}
}

// Streams returns how many places are taken.
func (c *Counts) Streams() int { return int(c.streams) }

const (
	// MaxContinuations is how many CONTINUATION frames a field block may have, if the limit of a head is at most 16 KB. Clients need none up to
	// that size.
	MaxContinuations = 8
	// If the limit is larger, there may be a frame for each continuationSize bytes of it. Clients send 16 KB in each.
	continuationSize = 2 << 10
)

// Block collects a field block that comes in several frames. The zero value is empty, and has no memory.
type Block struct {
	b         []byte
	frames    int
	endStream bool
}

// Begin begins with HEADERS, and reports whether they have the whole block: then the block is their payload, which isn't copied.
func (k *Block) Begin(f *Frame) (whole bool) {
	k.b, k.frames, k.endStream = k.b[:0], 0, f.EndStream()
	if f.Flags.Has(FlagEndHeaders) {
		return true
	}
	k.b = append(k.b, f.Payload...)
	return false
}

// Continue goes on with CONTINUATION, and reports whether the block is whole. The limit is for a request's head, in bytes. A head over the
// limit is answered on its stream, since the block must be decoded in any case. FaultBlock, at twice the limit or after too many frames,
// ends the connection.
func (k *Block) Continue(f *Frame, limit int) (whole bool, fault Fault) {
	if k.frames++; k.frames > max(MaxContinuations, limit/continuationSize) || len(k.b)+len(f.Payload)-limit > limit {
		return false, FaultBlock
	}
	k.b = append(k.b, f.Payload...)
	return f.Flags.Has(FlagEndHeaders), NoFault
}

// Bytes returns the block, and whether the client's side of the stream ends with it.
func (k *Block) Bytes() (b []byte, endStream bool) { return k.b, k.endStream }
