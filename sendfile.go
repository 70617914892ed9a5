package filo

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/filohttp/filo/internal/filepart"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/sock"
)

// sendFile sends size bytes of a file by sendfile, on a plain TCP or Unix socket. It reports false, and has sent no byte of the file, if
// the connection can't use sendfile or the body is wrapped.
func (c *Ctx) sendFile(p filepart.Part, size int64) (bool, error) {
	w := &c.stream
	wire, ok := c.exchange.wire.(fileWire)
	if !ok {
		return false, nil
	}
	sender, stays, err := wire.fileSender(p, size, w.sent)
	if err != nil || sender == nil {
		return err != nil, err
	}
	if err := w.emit(nil, !stays); err != nil || len(w.layers) > 0 {
		return err != nil, err
	}
	var stream io.Reader
	if c.Response.source == bodyStream {
		stream = c.Response.stream
	}
	sent, kept, err := wire.sendFile(sender, p.Offset, size, stream)
	if kept {
		c.Response.stream, sent = nil, size
	}
	w.written += sent
	if sent == 0 && errors.Is(err, sock.ErrNoSendfile) {
		return false, nil
	}
	w.err = err
	return true, err
}

// fileSender implements fileWire.
func (c *conn) fileSender(p filepart.Part, size int64, headSent bool) (sender sock.FileSender, stays bool, err error) {
	sender = sock.NewFileSender(c.netConn, p.File, p.Local, p.Whole)
	if sender == nil || headSent {
		return sender, false, nil
	}
	if ctx := c.scratch.ctx; ctx.Response.source == bodyStream && len(ctx.Response.wraps) == 0 {
		if d, ok := c.driver.(fileDriver); ok && d.hasTimeFor(size) {
			_, stays = sender.(sock.NowSender)
		}
	}
	if !stays {
		err = c.driver.leaveLoop() // before the head, after which no other answer is possible
	}
	return sender, stays, err
}

// filePatience is how long a worker of the loop driver waits for a client to take maxSendfile bytes of a file. After that the loop sends
// the rest, so that a slow client holds no worker. The worker waits at first, since that costs less processor time for a fast client.
const filePatience = time.Second

// sendFile implements fileWire.
func (c *conn) sendFile(sender sock.FileSender, offset, size int64, stream io.Reader) (sent int64, kept bool, err error) {
	if c.failed { // the head hasn't been sent, and nothing else may be: see flush
		return 0, false, net.ErrClosed
	}
	now, _ := sender.(sock.NowSender)
	d, mayKeep := c.driver.(fileDriver)
	mayKeep = mayKeep && now != nil && stream != nil
	if mayKeep && c.scratch.leads() {
		file := unsentFile{now, offset, size, stream}
		if err := d.sendFirst(&file); err != nil {
			if errors.Is(err, sock.ErrNoSendfile) {
				d.leaveLoop() // the caller copies the file; if no place is free, the worker keeps its loop while it copies
			}
			return size - file.left, false, err
		}
		if file.left > 0 && d.leaveLoop() != nil {
			d.keepFile(file)
			return size, true, nil
		}
		sent = size - file.left
	}
	for sent < size {
		start, keeps := c.server.clock.Now(), false
		deadline := c.beginWriting(start)
		if until := start.Add(filePatience); mayKeep && (deadline == 0 || until < deadline) {
			keeps, deadline = true, until
			c.buffered = notFollowed
		}
		c.waitToWrite(deadline)
		c.scratch.ctx.countWrite()
		n, err := sender.SendFile(offset+sent, int(min(size-sent, maxSendfile)))
		sent += int64(n)
		if keeps && errors.Is(err, os.ErrDeadlineExceeded) {
			c.endWait(deadline, true)
			c.scratch.ctx.countWrite()
			c.writePace.Add(c.server.config.writing, n, c.server.clock.Exact().Sub(start))
			d.keepFile(unsentFile{now, offset + sent, size - sent, stream})
			return sent, true, nil
		}
		ended := err == nil && n == 0
		if err = c.afterWrite(n, err, deadline); err == nil && ended {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return sent, false, err
		}
	}
	return sent, false, nil
}

// unsentFile is the part of a file that ends an answer, and that the client hasn't taken yet. The handler has returned.
type unsentFile struct {
	sender sock.NowSender
	offset int64
	left   int64
	stream io.Reader // the response's body, to be closed when nothing is left
}

// ReadFrom adds the content of r to the body, for io.Copy and io.CopyN. If the body's length was announced, a file, an
// io.SectionReader of a file, or an io.LimitedReader of either is sent by sendfile where the connection allows it.
func (w *StreamWriter) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return w.readFile(r, r, 1<<63-1)
	}
	before := limited.N
	n, err := w.readFile(limited.R, r, before)
	limited.N = before - n
	return n, err
}

// copyFrom copies the content of r to the body through a buffer.
func (w *StreamWriter) copyFrom(r io.Reader) (int64, error) {
	if wire, ok := w.ctx.exchange.wire.(windowWire); ok {
		return w.copyByWindow(wire, r)
	}
	buffer := lend.NewCopyBuffer()
	defer buffer.Release()
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buffer[:])
}

// copyByWindow is like copyFrom, for a client with flow control: while the client's windows are closed, it reads nothing and holds no buffer.
func (w *StreamWriter) copyByWindow(wire windowWire, r io.Reader) (sent int64, err error) {
	var small []byte
	for n := 0; err == nil; sent += int64(n) {
		window := 0
		if window, err = w.awaitWindow(wire); err != nil {
			break
		}
		if window < leastPiece && small == nil {
			small = make([]byte, leastPiece)
		}
		n, err = w.copyPiece(r, small, window)
	}
	if err == io.EOF {
		err = nil
	}
	return sent, err
}

// leastPiece is how much copyByWindow reads even if the client's windows are smaller.
const leastPiece = 4 << 10

// awaitWindow waits until the client's windows are open, and returns how many bytes they allow. The head needs no window, so it is sent
// first.
func (w *StreamWriter) awaitWindow(wire windowWire) (n int, err error) {
	if n = wire.window(); n > 0 || w.discard {
		return n, nil
	}
	if !w.sent || len(w.buffer) > 0 {
		if err := w.emitGathered(true); err != nil || w.discard {
			return 0, err
		}
	}
	if n, err = wire.awaitWindow(); err != nil {
		w.err = err
	}
	return n, err
}

// copyPiece calls Read once and writes the result. It reads into small. If the window is large enough, it reads as much as the window
// allows into a larger buffer instead. The error is io.EOF at the end.
func (w *StreamWriter) copyPiece(r io.Reader, small []byte, window int) (n int, err error) {
	piece := small
	if window >= leastPiece {
		buffer := lend.NewCopyBuffer()
		defer buffer.Release()
		piece = buffer[:min(window, len(buffer))]
	}
	n, readErr := r.Read(piece)
	if n > 0 {
		if n, err = w.Write(piece[:n]); err != nil {
			return n, err
		}
	}
	return n, readErr
}

// readFile sends at most size bytes of r: by sendfile if file, which r reads from, is a file or a part of one.
func (w *StreamWriter) readFile(file, r io.Reader, size int64) (int64, error) {
	part, ok := filepart.Of(file)
	if !ok {
		return w.copyFrom(r)
	}
	if err := w.admit(0); err != nil {
		return 0, err
	}
	if w.length < 0 {
		return w.copyFrom(r)
	}
	if err := w.emitGathered(true); err != nil {
		return 0, err
	}
	available, ok := part.RegularSize()
	if !ok || w.discard || len(w.layers) > 0 {
		return w.copyFrom(r)
	}
	size = min(size, available)
	if size > w.length-w.written {
		return 0, ErrContentLength
	}
	if size <= 0 {
		return 0, nil
	}
	before := w.written
	done, err := w.ctx.sendFile(part, size)
	if !done && err == nil {
		return w.copyFrom(r)
	}
	sent := w.written - before
	if _, seekErr := part.Reader.Seek(part.At+sent, io.SeekStart); err == nil {
		err = seekErr
	}
	return sent, err
}
