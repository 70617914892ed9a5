package websocket

import (
	"errors"
	"io"
)

// fragmentSize is how many bytes of a Writer's message are sent in one frame. It doesn't exceed the maximum distance of the compressor's
// references.
const fragmentSize = 16 << 10

var errWriter = errors.New("websocket: Writer works only on connections of Accept")

// Writer returns a writer that sends a message in pieces. Other messages wait until the writer is closed, so the caller must close it.
// Writer is for connections opened by Accept only.
func (c *Conn) Writer(kind MessageType) (io.WriteCloser, error) {
	switch {
	case c.stream == nil:
		return nil, errWriter
	case kind != Text && kind != Binary:
		return nil, errType
	}
	c.stream.writing.Lock()
	if err := c.closedError(); err != nil {
		c.stream.writing.Unlock()
		return nil, err
	}
	w := &messageWriter{conn: c, first: byte(kind), text: kind == Text, buffer: getBuffer()}
	if w.deflate = c.deflate.on && c.deflate.longest() > maxWindow; w.deflate {
		w.first |= bitRSV1
		if c.deflate.sendContext {
			w.dictionary = append(w.dictionary, c.contexts.sent...)
		}
	}
	return w, nil
}

// messageWriter writes a message in fragments.
type messageWriter struct {
	conn       *Conn
	first      byte // the first byte of the next frame, without FIN
	text       bool
	check      utf8Check
	deflate    bool
	dictionary []byte // the last bytes sent so far, to which the next bytes may refer
	buffer     *buffer
	err        error // why nothing more can be written
}

var errWriterClosed = errors.New("websocket: the message's writer was closed")

// Write implements io.Writer.
func (w *messageWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.text && !w.check.valid(p) {
		return 0, w.abort(errText)
	}
	for sent := 0; ; {
		n := min(len(p)-sent, fragmentSize-len(w.buffer.b))
		w.buffer.b = append(w.buffer.b, p[sent:sent+n]...)
		if sent += n; sent == len(p) {
			return sent, nil
		}
		if w.err = w.send(0); w.err != nil {
			return sent, w.err
		}
	}
}

// Close sends the rest of the message.
func (w *messageWriter) Close() error {
	if w.buffer == nil {
		return errWriterClosed
	}
	defer w.release()
	switch {
	case w.err != nil:
		return w.err
	case w.text && !w.check.complete():
		return w.abort(errText)
	}
	err := w.send(bitFin)
	if w.err = errWriterClosed; err == nil && w.deflate && w.conn.deflate.sendContext {
		w.conn.contexts.sent = w.dictionary
	}
	return err
}

// abort ends the connection: a part of the message may have been sent, and there is no other way to withdraw it.
func (w *messageWriter) abort(err error) error {
	w.err = err
	frame := failure(StatusInternalError, "")
	w.conn.sendClose(frame, err, stateClosing)
	return err
}

func (w *messageWriter) release() {
	putBuffer(w.buffer)
	w.buffer = nil
	w.conn.stream.writing.Unlock()
}

// send sends the gathered bytes as a frame.
func (w *messageWriter) send(fin byte) error {
	c, payload := w.conn, w.buffer.b
	if w.deflate {
		b := getBuffer()
		defer putBuffer(b)
		appendDeflated(b, payload, w.dictionary)
		if fin == 0 {
			b.b = append(b.b, syncTail...)
		}
		w.dictionary = remember(w.dictionary, payload, deflateDictionary)
		payload = b.b
	}
	frame := getBuffer()
	defer putBuffer(frame)
	frame.b = append(appendHeader(frame.b, w.first|fin, len(payload)), payload...)
	w.first, w.buffer.b = 0, w.buffer.b[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedError(); err != nil {
		return err
	}
	return c.sendLocked(frame.b)
}
