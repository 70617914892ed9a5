package abuse

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo/internal/http2"
)

// manner is how the client treats its connection, apart from the frames that the attack sends. The zero value is a well-behaved client.
type manner struct {
	settings []setting // the client's first SETTINGS, apart from ENABLE_PUSH
	unread   bool      // the client never reads
	unacked  bool      // the client never acknowledges the server's SETTINGS
	stingy   bool      // the client never opens the connection's window again after reading
}

// setting is an entry of SETTINGS.
type setting struct {
	id    uint16
	value uint32
}

// Attacks use these settings (RFC 9113, section 6.5.2).
const (
	headerTableSize      = 0x1
	enablePush           = 0x2
	maxConcurrentStreams = 0x3
	initialWindowSize    = 0x4
)

func appendSettings(b []byte, settings ...setting) []byte {
	b = http2.AppendFrameHeader(b, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, s.id), s.value)
	}
	return b
}

const (
	// unsentMax is about how many queued bytes make send block. A small limit keeps the count of frames close to the number of frames that
	// were actually written.
	unsentMax = 16 << 10
	// refill is how many bytes a client reads before it opens the connection's window again.
	refill = 32 << 10
	// blockMax bounds the field block of an answer.
	blockMax = 1 << 20
)

// errOver is the error of a connection that the client itself has closed.
var errOver = errors.New("closed by the client")

// conn is a client's connection. It can send any frames. Its manner says which rules of the protocol it breaks by itself.
//
// One goroutine reads and never writes, so it can't deadlock with a server that doesn't read until its own writes are done. Another goroutine
// writes the bytes that the method send and the reading goroutine have queued.
type conn struct {
	manner
	nc      net.Conn
	scheme  string
	host    string
	began   time.Time
	stopped func() bool // cancels the function that ends the connection when the context ends
	done    chan struct{}
	running sync.WaitGroup

	// Only the reading goroutine uses the fields up to mu.
	frames http2.Reader
	block  http2.Block
	fields *hpack.Decoder
	status int
	taken  uint32

	mu      sync.Mutex
	changed sync.Cond // signals that the field out has changed, that the window has grown, or that a stream or the connection has ended
	out     []byte
	err     error // the reason why the connection has ended
	unsent  error // the error that makes further writes impossible
	window  int   // the connection's window for DATA to the server
	streams map[uint32]struct{}
	lastID  uint32
	// allEnded says that the server has ended all streams that the method request has opened.
	allEnded bool
	greeted  bool // the server's SETTINGS have arrived
	muted    bool // see mute
	tables   tableCheck
	tally    tally
}

// tally counts frames and bytes of a connection.
type tally struct {
	frames, opened int // sent
	answers        int // received
	notOK          int // answers whose status wasn't 200
	lastStatus     int
	resets         map[http2.ErrCode]int // received
	lastReset      http2.ErrCode
	pings          int // received with ACK
	maxStreams     int // the server's limit, 0 for none
	goAway         *goAway
	wrong          error // the server's first violation
}

// goAway is the first GOAWAY with an error code. Until such a GOAWAY arrives, it is the latest one.
type goAway struct {
	code   http2.ErrCode
	after  time.Duration
	frames int // sent before
}

// newConn begins a connection, which is closed when ctx ends, if not earlier. The caller must call close.
func newConn(ctx context.Context, nc net.Conn, m manner) *conn {
	c := &conn{
		manner: m, nc: nc, scheme: "http", host: nc.RemoteAddr().String(), began: time.Now(), done: make(chan struct{}),
		window: http2.DefaultWindow, streams: map[uint32]struct{}{},
	}
	if secured, ok := nc.(*tls.Conn); ok {
		c.scheme = "https"
		if name := secured.ConnectionState().ServerName; name != "" {
			c.host = name
		}
	}
	c.changed.L = &c.mu
	c.tally.resets = map[http2.ErrCode]int{}
	c.tables.size = http2.DefaultHeaderTableSize
	c.fields = hpack.NewDecoder(http2.DefaultHeaderTableSize, c.field)
	c.stopped = context.AfterFunc(ctx, func() { c.end(errOver) })
	c.out = []byte(http2.Preface)
	c.send(appendSettings(nil, append([]setting{{enablePush, 0}}, m.settings...)...))
	c.running.Go(c.write)
	if !m.unread {
		c.running.Go(c.read)
	}
	return c
}

// close ends the connection, and waits for its goroutines.
func (c *conn) close() {
	c.stopped()
	c.end(errOver)
	c.running.Wait()
}

func (c *conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.nc.Close()
	close(c.done)
	c.changed.Broadcast()
}

// send queues whole frames for writing. It first waits until most of the queue has been written and the connection's window has room for the
// DATA. It returns false once sending is impossible.
func (c *conn) send(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendLocked(b)
}

func (c *conn) sendLocked(b []byte) bool {
	frames, opened, data := c.measure(b)
	for c.sendable() && (len(c.out) > unsentMax || data > 0 && c.window < data) {
		c.changed.Wait()
	}
	c.window -= data
	c.tally.frames += frames
	c.tally.opened += opened
	return c.leave(b)
}

// sendPart does the same as send with a part of a frame.
func (c *conn) sendPart(b []byte, frames int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.frames += frames
	return c.leave(b)
}

func (c *conn) sendable() bool { return c.err == nil && c.unsent == nil }

// leave queues bytes for the writing goroutine. The caller holds mu.
func (c *conn) leave(b []byte) bool {
	c.out = append(c.out, b...)
	c.changed.Broadcast()
	return c.sendable()
}

// measure counts the frames in b, the streams that they open, and their DATA.
func (c *conn) measure(b []byte) (frames, opened, data int) {
	for ; len(b) >= http2.FrameHeaderLen; frames++ {
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		end := min(http2.FrameHeaderLen+length, len(b))
		switch id := binary.BigEndian.Uint32(b[5:]); http2.FrameType(b[3]) {
		case http2.FrameHeaders:
			if id > c.lastID {
				c.lastID = id
				opened++
			}
		case http2.FrameData:
			data += length
		case http2.FrameSettings:
			c.tables.sent(http2.Flags(b[4]), b[http2.FrameHeaderLen:end])
		}
		b = b[end:]
	}
	return frames, opened, data
}

// write writes the queued bytes until the connection ends. A failed write ends the connection only if no goroutine reads, because the reading
// goroutine may still receive GOAWAY.
func (c *conn) write() {
	var b []byte
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.out) == 0 && c.err == nil {
			c.changed.Wait()
		}
		if c.err != nil {
			return
		}
		b, c.out = c.out, b[:0]
		c.changed.Broadcast()
		c.mu.Unlock()
		_, err := c.nc.Write(b)
		if err != nil && c.unread {
			c.end(err)
		}
		c.mu.Lock()
		if err != nil {
			c.unsent = err
			c.changed.Broadcast()
			return
		}
	}
}

// read reads and handles the server's frames until the connection has ended.
func (c *conn) read() {
	buffer := make([]byte, 64<<10)
	unread := 0
	for {
		n, err := c.nc.Read(buffer[unread:])
		b := buffer[:unread+n]
		for {
			var f http2.Frame
			n, fault := c.frames.Next(&f, b)
			if fault != http2.NoFault {
				c.wrong(fmt.Errorf("a frame of the server: %v", fault))
				c.end(errors.New("the server's frames can't be read"))
				return
			}
			if n == 0 {
				break
			}
			c.take(&f)
			b = b[n:]
		}
		unread = copy(buffer, b)
		if err != nil {
			c.end(err)
			return
		}
	}
}

// wrong records the server's first violation.
func (c *conn) wrong(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tally.wrong == nil {
		c.tally.wrong = err
	}
}

// take handles a frame from the server.
func (c *conn) take(f *http2.Frame) {
	switch f.Type {
	case http2.FrameHeaders, http2.FrameContinuation:
		c.takeBlock(f)
	case http2.FrameData:
		c.takeData(f)
	case http2.FrameReset:
		c.mu.Lock()
		c.tally.resets[http2.ErrCode(f.Value)]++
		c.tally.lastReset = http2.ErrCode(f.Value)
		c.mu.Unlock()
		c.streamEnded(f.Stream)
	case http2.FrameSettings:
		c.takeSettings(f)
	case http2.FramePing:
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.Ack() {
			c.tally.pings++
			break
		}
		c.reply(http2.AppendPing(nil, http2.FlagAck, [8]byte(f.Payload)))
	case http2.FrameGoAway:
		c.mu.Lock()
		defer c.mu.Unlock()
		if g := c.tally.goAway; g == nil || g.code == http2.NoError {
			c.tally.goAway = &goAway{http2.ErrCode(f.Value), time.Since(c.began), c.tally.frames}
		}
		c.changed.Broadcast()
	case http2.FrameWindowUpdate:
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.Stream == 0 {
			c.window += int(f.Value)
			c.changed.Broadcast()
		}
	}
}

func (c *conn) takeSettings(f *http2.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Ack() {
		c.tables.acked()
		return
	}
	for b := f.Payload; len(b) >= 6; b = b[6:] {
		if binary.BigEndian.Uint16(b) == maxConcurrentStreams {
			c.tally.maxStreams = int(binary.BigEndian.Uint32(b[2:]))
		}
	}
	if !c.unacked {
		c.reply(http2.AppendSettingsAck(nil))
	}
	c.greeted = true
	c.changed.Broadcast()
}

// reply queues a frame that the reading goroutine sends, unless the connection is muted. The caller holds mu.
func (c *conn) reply(b []byte) {
	if !c.muted {
		c.leave(b)
	}
}

// mute stops the reading goroutine from sending replies, because a reply in the middle of the attack's frame or field block would break that
// frame or block. It first waits until the server's SETTINGS are acknowledged. It returns false if sending is impossible.
func (c *conn) mute() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.sendable() && !c.greeted {
		c.changed.Wait()
	}
	c.muted = true
	return c.sendable()
}

// takeBlock decodes a field block once it is complete.
func (c *conn) takeBlock(f *http2.Frame) {
	block := f.Payload
	if f.Type == http2.FrameHeaders {
		if !c.block.Begin(f) {
			return
		}
	} else {
		whole, fault := c.block.Continue(f, blockMax)
		if fault != http2.NoFault {
			c.wrong(errors.New("an endless field block"))
			c.end(errors.New("the server's frames can't be read"))
		}
		if !whole {
			return
		}
		var endStream bool
		if block, endStream = c.block.Bytes(); endStream {
			f.Flags |= http2.FlagEndStream // as if HEADERS had arrived whole
		}
	}
	c.status = 0
	_, err := c.fields.Write(block)
	if err = errors.Join(err, c.fields.Close()); err != nil {
		c.wrong(fmt.Errorf("a field block of the server: %w", err))
	}
	c.mu.Lock()
	if err := c.tables.block(block); err != nil && c.tally.wrong == nil {
		c.tally.wrong = err
	}
	if c.status >= 200 {
		c.tally.answers++
		c.tally.lastStatus = c.status
		if c.status != 200 {
			c.tally.notOK++
		}
	}
	c.mu.Unlock()
	if f.EndStream() {
		c.streamEnded(f.Stream)
	}
}

// field handles a field of an answer.
func (c *conn) field(f hpack.HeaderField) {
	if f.Name == ":status" && len(f.Value) == 3 {
		for _, digit := range f.Value {
			c.status = c.status*10 + int(digit-'0')
		}
	}
}

func (c *conn) takeData(f *http2.Frame) {
	c.taken += uint32(f.Size)
	if !c.stingy && c.taken >= refill {
		c.mu.Lock()
		c.reply(http2.AppendWindowUpdate(nil, 0, c.taken))
		c.mu.Unlock()
		c.taken = 0
	}
	if f.EndStream() {
		c.streamEnded(f.Stream)
	}
}

// streamEnded removes a stream that the server has ended.
func (c *conn) streamEnded(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, id)
	c.changed.Broadcast()
}

// request waits until fewer than max streams are open, and opens the next one with the field block. It returns the stream's number. ok is
// false if sending is impossible.
func (c *conn) request(max int, block []byte, endStream bool) (id uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.sendable() && len(c.streams) >= max {
		c.changed.Wait()
	}
	id = 1
	if c.lastID > 0 {
		id = c.lastID + 2
	}
	c.streams[id] = struct{}{}
	return id, c.sendLocked(appendHeaders(nil, id, block, endStream))
}

// open returns the streams that the method request has opened and the server hasn't ended.
func (c *conn) open() (ids []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.streams {
		ids = append(ids, id)
	}
	return ids
}

// forget counts the open streams as ended.
func (c *conn) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.streams)
}

// finished reports whether the connection has ended, or the server has ended all streams.
func (c *conn) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.allEnded
}

// shrinkReadBuffer makes the kernel's buffer for received bytes small.
func shrinkReadBuffer(nc net.Conn) {
	if secured, ok := nc.(*tls.Conn); ok {
		nc = secured.NetConn()
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetReadBuffer(4 << 10)
	}
}

// sleep waits for d, and returns false as soon as the connection ends.
func (c *conn) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return false
	case <-timer.C:
		return true
	}
}

// hold keeps all streams of the method request open until the server has ended all of them or the connection. At each interval (every), it
// sends the frames that the function next appends for each stream. If the interval is 0, it sends without a pause.
func (c *conn) hold(every time.Duration, next rounds) {
	for {
		ids := c.open()
		if len(ids) == 0 {
			c.mu.Lock()
			c.allEnded = true
			c.mu.Unlock()
			return
		}
		var b []byte
		for _, id := range ids {
			b = next(b, id)
		}
		if !c.send(b) || every > 0 && !c.sleep(every) {
			return
		}
	}
}

// wait waits until the connection has ended.
func (c *conn) wait() { <-c.done }

// ending returns how the server has ended the connection, or all streams that the attack had opened there; "" if it has ended neither.
func (c *conn) ending() (by string, after time.Duration, frames int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after, frames = time.Since(c.began), c.tally.frames
	if g := c.tally.goAway; g != nil && (g.code != http2.NoError || c.err != errOver) {
		if by = "GOAWAY " + g.code.String(); c.err == errOver && after-g.after > 2*time.Second {
			by += ", not closed"
		}
		return by, g.after, g.frames
	}
	switch {
	case c.allEnded && c.tally.lastReset != http2.NoError:
		return "RST_STREAM " + c.tally.lastReset.String(), after, frames
	case c.allEnded:
		return fmt.Sprintf("answers of %d", c.tally.lastStatus), after, frames
	case c.err == nil || c.err == errOver:
		return "", after, frames
	case errors.Is(c.err, io.EOF), errors.Is(c.err, syscall.ECONNRESET), errors.Is(c.err, syscall.EPIPE):
		return "closed", after, frames // the kernel reports a reset to either the reader or the writer, so the reader may get EOF instead
	}
	return c.err.Error(), after, frames
}
