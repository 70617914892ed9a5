package websocket

import (
	"sync"
	"time"
)

var (
	errBadText = failure(StatusInvalidPayload, "a text isn't UTF-8")
	errNoRoom  = failure(StatusTryAgainLater, "too many messages are incomplete")
)

// incoming holds the received part of an incomplete message. A connection opened by Serve has an incoming only while a message is
// incomplete.
type incoming struct {
	decoder
	text     utf8Check
	shared   *shared       // where the memory of data is counted
	held     int           // how many bytes are counted there
	data     *buffer       // the payload; nil while there is none
	inflated *buffer       // the decompressed payload
	since    time.Duration // when the first byte arrived, or later, when this side began to read the message
}

var incomings = sync.Pool{New: func() any { return new(incoming) }}

// reset prepares in for a message of the connection.
func (in *incoming) reset(c *Conn) {
	in.decoder.reset(c.deflate.on, c.options.MaxMessageBytes)
	in.text, in.shared, in.since = utf8Check{}, c.options, now()
}

// gather adds a piece of a message. It returns the message if that was the last piece: the message is lent until release is called.
func (in *incoming) gather(c *Conn, e event, piece []byte) (message []byte, complete bool, err error) {
	complete = e == eventEnd
	if in.kind == Text && !in.compressed {
		if !in.text.valid(piece) || complete && !in.text.complete() {
			return nil, false, errBadText
		}
	}
	if complete && in.data == nil && !in.compressed {
		return piece, true, nil
	}
	if in.data == nil {
		if in.data = new(buffer); complete {
			in.data = getBuffer() // may hold much more memory than the message needs, but not for long
		}
	}
	in.data.b = append(in.data.b, piece...)
	if !complete {
		if !in.count(cap(in.data.b)) {
			return nil, false, errNoRoom
		}
		return nil, false, nil
	}
	in.giveBack()
	if !in.compressed {
		return in.data.b, true, nil
	}
	in.inflated = getBuffer()
	if err := c.inflate(in.inflated, in.data); err != nil {
		return nil, false, err
	}
	if message = in.inflated.b; in.kind == Text && !in.text.valid(message) || !in.text.complete() {
		return nil, false, errBadText
	}
	return message, true, nil
}

// inflate decompresses a client's message.
func (c *Conn) inflate(dst, b *buffer) error {
	if !c.deflate.receiveContext {
		return inflate(dst, b, nil, c.options.MaxMessageBytes)
	}
	if err := inflate(dst, b, c.contexts.received, c.options.MaxMessageBytes); err != nil {
		return err
	}
	c.contexts.received = remember(c.contexts.received, dst.b, maxWindow)
	return nil
}

// count counts the message with size bytes, which is at least what it has counted before. It returns false if there is no room for them.
func (in *incoming) count(size int) bool {
	if !in.shared.hold(size-in.held, in.held) {
		return false
	}
	in.held = size
	return true
}

// giveBack stops counting the message as incomplete.
func (in *incoming) giveBack() {
	if in.held > 0 {
		in.shared.incomplete.Add(-int64(in.held))
		in.held = 0
	}
}

// release frees the buffers of a message.
func (in *incoming) release() {
	for _, b := range [...]**buffer{&in.data, &in.inflated} {
		if *b != nil {
			putBuffer(*b)
			*b = nil
		}
	}
	in.giveBack()
	in.text = utf8Check{}
	in.endMessage()
}
