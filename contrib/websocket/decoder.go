package websocket

import (
	"math"

	"github.com/gobwas/ws"
)

// maxFrames is the maximum number of frames in a message. A message of more frames can only be an attempt to waste processor time.
const maxFrames = 1 << 16

// event is what a decoder has found in its input.
type event uint8

const (
	eventNone event = iota // all of the input was used, and more is needed
	eventData              // a piece of a message
	eventEnd               // the last piece of a message, which may be empty
	eventPing              // this and the next two are control frames, with their payload
	eventPong
	eventClose
)

var (
	errNotStarted    = violation("a continuation without a message")
	errInterleaved   = violation("a message within another one")
	errTooManyFrames = failure(StatusPolicyViolation, "a message has too many frames")
	errTooBig        = failure(StatusMessageTooBig, "a message is too big")
)

// decoder parses the frames of a client as they arrive. It does no IO: its caller passes bytes, and it returns events. Payloads are unmasked
// in place.
type decoder struct {
	deflate bool  // permessage-deflate was negotiated
	limit   int64 // the maximum payload of a message; negative for no limit

	head   [maxHeader]byte // an incomplete header
	have   int             // how many bytes of the header have arrived
	frame  header          // the current frame
	within bool            // the current frame's payload is incomplete
	done   int64           // how many bytes of the payload have arrived

	kind       MessageType // of the current message; 0 if there is none
	compressed bool        // the current message is compressed
	frames     int         // the number of the current message's frames so far
	size       int64       // the size of the current message's payload, as announced by its frames so far

	control [maxControl]byte // the incomplete payload of a control frame
}

// atRest reports whether the decoder is between two messages and two frames.
func (d *decoder) atRest() bool { return d.kind == 0 && !d.within && d.have == 0 }

// reset makes the decoder ready for another connection.
func (d *decoder) reset(deflate bool, limit int64) {
	d.deflate, d.limit = deflate, limit
	d.have, d.within, d.kind = 0, false, 0
}

// next looks for the next event in b, and returns how many bytes it has used. The payload is a part of b or of the decoder, and valid until
// the next call. Until then, the fields kind and compressed describe the event's message. After an error the decoder must not be used again.
func (d *decoder) next(b []byte) (used int, e event, payload []byte, err error) {
	for {
		if !d.within {
			n, err := d.begin(b[used:])
			if used += n; err != nil || !d.within {
				return used, eventNone, nil, err
			}
		}
		n := int(min(d.frame.length-d.done, int64(len(b)-used)))
		piece := b[used : used+n : used+n]
		ws.Cipher(piece, d.frame.mask, int(d.done&3))
		used += n
		d.done += int64(n)
		complete := d.done == d.frame.length
		if complete {
			d.within = false
		}
		if d.frame.opcode.IsControl() {
			if payload, ok := d.controlPayload(piece, complete); ok {
				return used, controlEvent(d.frame.opcode), payload, nil
			}
			return used, eventNone, nil, nil
		}
		switch {
		case complete && d.frame.fin:
			return used, eventEnd, piece, nil
		case n > 0:
			return used, eventData, piece, nil
		case !complete:
			return used, eventNone, nil, nil
		}
	}
}

// begin parses the header of the next frame, as far as it has arrived.
func (d *decoder) begin(b []byte) (used int, err error) {
	var n int
	if d.have == 0 {
		if d.frame, n, err = parseHeader(b, d.deflate); err != nil {
			return 0, err
		}
		used = n
	}
	for n == 0 {
		if used == len(b) {
			return used, nil
		}
		d.head[d.have] = b[used]
		d.have++
		used++
		if d.frame, n, err = parseHeader(d.head[:d.have], d.deflate); err != nil {
			return used, err
		}
	}
	d.have, d.done, d.within = 0, 0, true
	if d.frame.opcode.IsControl() {
		return used, nil
	}
	return used, d.beginData()
}

// beginData checks that a data frame is allowed at this point (section 5.4), and that it is within the limits.
func (d *decoder) beginData() error {
	if d.frame.opcode == ws.OpContinuation {
		if d.kind == 0 {
			return errNotStarted
		}
		d.frames++
	} else {
		if d.kind != 0 {
			return errInterleaved
		}
		d.kind, d.compressed, d.frames, d.size = MessageType(d.frame.opcode), d.frame.rsv1, 1, 0
	}
	if d.frames > maxFrames {
		return errTooManyFrames
	}
	if d.frame.length > math.MaxInt64-d.size {
		return errTooBig
	}
	d.size += d.frame.length
	if limit := d.payloadLimit(); limit >= 0 && d.size > limit {
		return errTooBig
	}
	return nil
}

// payloadLimit returns the maximum length of a message's payload. It is higher for a compressed message: compression makes incompressible
// data a little longer.
func (d *decoder) payloadLimit() int64 {
	if d.compressed && d.limit >= 0 {
		return d.limit + d.limit>>3 + 64
	}
	return d.limit
}

// endMessage is called when an eventEnd has been handled.
func (d *decoder) endMessage() { d.kind = 0 }

// controlPayload collects the payload of a control frame. It reports whether the payload is complete.
func (d *decoder) controlPayload(piece []byte, complete bool) (payload []byte, ok bool) {
	if complete && len(piece) == int(d.frame.length) {
		return piece, true
	}
	copy(d.control[int(d.done)-len(piece):], piece)
	return d.control[:d.done], complete
}

func controlEvent(opcode ws.OpCode) event {
	switch opcode {
	case ws.OpPing:
		return eventPing
	case ws.OpPong:
		return eventPong
	}
	return eventClose
}
