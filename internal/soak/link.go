package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errInterrupted says that a shutdown has ended a client's connection between two answers, as it may.
var errInterrupted = errors.New("interrupted by a shutdown")

// link is a client's connection.
type link struct {
	*net.TCPConn
	run    *run
	count  *count
	reader *bufio.Reader
	phase  int64         // of the lives, when it was opened
	slow   time.Duration // between two reads of a body
	piece  [8 << 10]byte // of a body
}

// dial opens a connection.
func (c *client) dial() (*link, error) {
	r := c.run
	l := &link{run: r, count: &r.counts[c.kind], phase: r.lives.phase.Load()}
	netConn, err := net.DialTimeout("tcp", r.lives.address, r.patience)
	switch {
	case err == nil:
	case l.excused(), errors.Is(err, syscall.EADDRNOTAVAIL): // the system is out of ports for a moment
		return nil, errInterrupted
	default:
		return nil, err
	}
	l.TCPConn = netConn.(*net.TCPConn)
	l.reader = bufio.NewReader(l)
	return l, l.SetDeadline(time.Now().Add(r.patience))
}

// excused reports whether the connection may end without an answer: the server that it was opened to shuts down.
func (l *link) excused() bool {
	return l.phase%2 == 0 || l.phase != l.run.lives.phase.Load()
}

// reset ends the connection by a reset.
func (l *link) reset() {
	l.SetLinger(0)
	l.Close()
}

// exchange sends requests together and checks their answers.
func (l *link) exchange(requests ...*request) error {
	return l.exchangeAs(encode(requests...), requests...)
}

// exchangeAs is exchange for requests in their bytes. Those that the system may not be ready to take at once are sent
// meanwhile: the server stops reading while nobody reads its answers.
func (l *link) exchangeAs(b []byte, requests ...*request) error {
	const taken = 32 << 10
	sent := make(chan error, 1)
	send := func() {
		_, err := l.Write(b)
		sent <- err
	}
	if len(b) <= taken {
		send()
	} else {
		go send()
	}
	err := l.receive(requests...)
	if err != nil {
		l.SetWriteDeadline(time.Unix(1, 0))
	}
	sendErr := <-sent
	if err == nil || errors.Is(err, errInterrupted) || sendErr == nil {
		return err
	}
	return fmt.Errorf("%w (sending: %w)", err, sendErr)
}

// receive checks the answers to requests.
func (l *link) receive(requests ...*request) error {
	for i, q := range requests {
		closes, err := l.answer(q)
		switch {
		case err != nil:
			return err
		case !closes:
		case q.last:
			return l.end()
		case !l.excused():
			return fmt.Errorf("%s: the answer closes the connection for no reason", q)
		default:
			if err := l.end(); err != nil {
				return err
			}
			if i < len(requests)-1 {
				return errInterrupted
			}
			return nil
		}
	}
	return nil
}

// answer checks the answer to a request. closes says that no other one follows.
func (l *link) answer(q *request) (closes bool, err error) {
	if _, err := l.reader.Peek(1); err != nil {
		return false, l.ended(q, err)
	}
	h, err := l.head()
	if err == nil {
		err = h.check(q)
	}
	if err == nil {
		err = l.body(q, h)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", q, err)
	}
	l.count.done.Add(1)
	return h.close, nil
}

// ended makes an error of a connection's end before an answer.
func (l *link) ended(q *request, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return l.run.hang(fmt.Errorf("%s: no answer after %v", q, l.run.patience))
	case l.excused():
		return errInterrupted
	}
	return fmt.Errorf("%s: the connection has ended without an answer: %w", q, err)
}

// end checks that the connection ends, and that nothing comes before.
func (l *link) end() error {
	b, err := l.reader.ReadByte()
	switch {
	case err == nil:
		return fmt.Errorf("%q behind the last answer", b)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return l.run.hang(errors.New("the connection isn't closed behind the last answer"))
	}
	return nil
}

// finish closes a connection that the server has nothing to send on.
func (l *link) finish() error {
	defer l.Close()
	if n := l.reader.Buffered(); n > 0 {
		b, _ := l.reader.Peek(n)
		return fmt.Errorf("bytes that nobody has asked for: %q", b)
	}
	return nil
}

// head is the head of an answer.
type head struct {
	status         int
	length         int // -1 if there is none
	chunked, close bool
	number         string
}

// head reads an answer's head.
func (l *link) head() (h head, err error) {
	line, err := l.line()
	if err != nil {
		return h, err
	}
	h.length = -1
	if len(line) < 13 || !strings.HasPrefix(line, "HTTP/1.1 ") {
		return h, fmt.Errorf("status line %q", line)
	}
	if h.status, err = strconv.Atoi(line[9:12]); err != nil {
		return h, fmt.Errorf("status line %q", line)
	}
	for {
		line, err := l.line()
		if err != nil || line == "" {
			return h, err
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
}

func (h *head) field(line string) (err error) {
	name, value, ok := strings.Cut(line, ": ")
	if !ok {
		return fmt.Errorf("field line %q", line)
	}
	switch strings.ToLower(name) {
	case "content-length":
		h.length, err = strconv.Atoi(value)
	case "transfer-encoding":
		h.chunked = value == "chunked"
	case "connection":
		h.close = h.close || strings.EqualFold(value, "close")
	case "number":
		h.number = value
	}
	return err
}

// line reads a line of a head.
func (l *link) line() (string, error) {
	line, err := l.reader.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("the answer breaks off at %q: %w", line, err)
	}
	if !bytes.HasSuffix(line, []byte("\r\n")) {
		return "", fmt.Errorf("line %q of the answer", line)
	}
	return string(line[:len(line)-2]), nil
}

func (h *head) check(q *request) error {
	switch {
	case h.status != q.status:
		return fmt.Errorf("status %d instead of %d (of number %q)", h.status, q.status, h.number)
	case h.number != strconv.FormatUint(q.number, 10):
		return fmt.Errorf("the answer is that to number %q", h.number)
	case q.last && !h.close:
		return errors.New("the answer to the last request doesn't say that the connection closes")
	case h.length >= 0 && h.chunked:
		return errors.New("both Content-Length and Transfer-Encoding")
	case h.length >= 0 && !q.anyBody && h.length != len(q.want):
		return fmt.Errorf("Content-Length %d instead of %d", h.length, len(q.want))
	case h.length < 0 && !h.chunked && !h.close:
		return errors.New("nothing tells where the answer ends")
	}
	return nil
}

// body checks an answer's body.
func (l *link) body(q *request, h head) error {
	var body io.Reader = l.reader
	switch {
	case q.method == "HEAD":
		return nil
	case h.chunked:
		body = &chunkReader{link: l}
	case h.length >= 0:
		body = io.LimitReader(l.reader, int64(h.length))
	}
	if q.anyBody {
		n, err := io.Copy(io.Discard, body)
		if err == nil && h.length >= 0 && n < int64(h.length) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	for at := 0; ; time.Sleep(l.slow) {
		n, err := body.Read(l.piece[:])
		if at+n > len(q.want) || !bytes.Equal(l.piece[:n], q.want[at:at+n]) {
			return fmt.Errorf("wrong body in the bytes %d to %d of %d", at, at+n, len(q.want))
		}
		at += n
		switch {
		case err == io.EOF && at == len(q.want):
			return nil
		case err != nil:
			return fmt.Errorf("the body ends at %d of %d bytes: %w", at, len(q.want), err)
		}
	}
}

// chunkReader reads a body in chunks.
type chunkReader struct {
	link *link
	left int // of the chunk
	over bool
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.over {
		return 0, io.EOF
	}
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.link.reader.Read(p[:min(len(p), c.left)])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if c.left -= n; c.left == 0 && err == nil {
		err = c.empty()
	}
	return n, err
}

// next reads the size of the next chunk. That of the last one is io.EOF.
func (c *chunkReader) next() error {
	line, err := c.link.line()
	if err != nil {
		return err
	}
	size, err := strconv.ParseUint(line, 16, 31)
	if err != nil {
		return fmt.Errorf("chunk size %q", line)
	}
	if c.left = int(size); c.left > 0 {
		return nil
	}
	c.over = true
	if err := c.empty(); err != nil {
		return err
	}
	return io.EOF
}

// empty reads an empty line.
func (c *chunkReader) empty() error {
	line, err := c.link.line()
	if err == nil && line != "" {
		err = fmt.Errorf("%q where a chunk ends", line)
	}
	return err
}
