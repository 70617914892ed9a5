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

// Glitches charges a client for what well-behaved ones do rarely: frames that cost the server more than the client, or serve no purpose.
// It is one account for all of them, since attacks mix their frames. The zero value owes nothing.
//
// Each costs 1:
//   - RST_STREAM that has come, and every one that was sent but for NO_ERROR. Whatever made the server reset a stream, a client may have
//     provoked it for that.
//   - what Cost says of a frame.
//   - a frame that is Late: see LateCost.
//   - SETTINGS with ACK where there was nothing to acknowledge.
type Glitches struct {
	// paid is when everything will be paid off at the rate of the limits. So the account is one number, and loses no fraction.
	paid clock.Time
	// earned is for how many frames of those that answers give rise to the client has reason.
	earned uint16
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

// maxEarned bounds what a client can put by.
const maxEarned = 1000

// Earn takes note of n reasons that the server has given: for each of them a client may send one PING (those of gRPC measure the bandwidth)
// or one small WINDOW_UPDATE. A whole answer is a reason, and so is DATA of at least a kilobyte. DATA that is small because little was
// written is two, for both windows; DATA that is small because the client's window is gives none.
func (g *Glitches) Earn(n int) { g.earned = uint16(min(int(g.earned)+n, maxEarned)) }

const (
	// smallUpdate is below what increment WINDOW_UPDATE is a glitch: it would make many small frames of an answer.
	smallUpdate = 256
	// smallData is below what size DATA that come late cost something. What a client had under way is mostly larger.
	smallData = 256
)

// Cost returns how many glitches a frame costs by itself.
func (g *Glitches) Cost(f *Frame) int {
	switch f.Type {
	case FrameData:
		if len(f.Payload) == 0 && !f.Follows && !f.EndStream() {
			return 1
		}
	case FrameHeaders, FrameContinuation:
		// They cost what is done about them; a block of many frames is bounded by Block.
	case FrameReset, FramePriority, FramePriorityUpdate:
		return 1
	case FrameSettings:
		if !f.Ack() {
			return 1 + len(f.Payload)/settingLen
		}
	case FramePing:
		if f.Ack() {
			return 1 // the server rarely asks
		}
		return g.unearned()
	case FrameWindowUpdate:
		if f.Value < smallUpdate {
			return g.unearned()
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

// unearned returns 0 if the client has reason for a frame, else 1.
func (g *Glitches) unearned() int {
	if g.earned == 0 {
		return 1
	}
	g.earned--
	return 0
}

// LateCost returns how many glitches a frame costs because it has come on a stream that is over. RST_STREAM and small WINDOW_UPDATEs have
// been charged by Cost. Clients send a WINDOW_UPDATE for what they read of an answer, also when that has ended.
func (g *Glitches) LateCost(f *Frame) int {
	switch f.Type {
	case FrameHeaders:
		return 1
	case FrameData:
		if f.Length < smallData && !f.Follows {
			return 1
		}
	case FrameWindowUpdate:
		if f.Value >= smallUpdate {
			return g.unearned()
		}
	}
	return 0
}

// Counts counts the streams that take up a place: from HEADERS on, until the stream is over and its handler has returned. A handler goes on
// when its client resets the stream, so a count of open streams alone would let a client start any number of them.
type Counts struct {
	streams int32
}

// Enter takes a place of max, or returns FaultRefused.
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

// MaxContinuations is how many CONTINUATION frames a field block may have. Clients need none up to 16 KB.
const MaxContinuations = 8

// Block collects a field block that comes in several frames. The zero value is empty, and has no memory.
type Block struct {
	b         []byte
	frames    int
	endStream bool
}

// Begin begins with HEADERS, and reports whether they are the whole block: then their payload is, and isn't copied.
func (k *Block) Begin(f *Frame) (whole bool) {
	k.b, k.frames, k.endStream = k.b[:0], 0, f.EndStream()
	if f.Flags.Has(FlagEndHeaders) {
		return true
	}
	k.b = append(k.b, f.Payload...)
	return false
}

// Continue goes on with CONTINUATION, and reports whether the block is whole. The limit is that of a request's head, in bytes. The answer to
// a head over the limit is for its stream, since the block must be decoded in any case. FaultBlock, at twice the limit or after too many
// frames, is the end of the connection.
func (k *Block) Continue(f *Frame, limit int) (whole bool, fault Fault) {
	if k.frames++; k.frames > MaxContinuations || len(k.b)+len(f.Payload) > 2*limit {
		return false, FaultBlock
	}
	k.b = append(k.b, f.Payload...)
	return f.Flags.Has(FlagEndHeaders), NoFault
}

// Bytes returns the block, and whether the client's side of the stream ends with it.
func (k *Block) Bytes() (b []byte, endStream bool) { return k.b, k.endStream }
