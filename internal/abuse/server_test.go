package abuse

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo/internal/http2"
)

// frameNames are the names of frame types in a transcript.
var frameNames = map[http2.FrameType]string{
	http2.FrameData: "DATA", http2.FrameHeaders: "HEADERS", http2.FramePriority: "PRIORITY", http2.FrameReset: "RST_STREAM",
	http2.FrameSettings: "SETTINGS", http2.FramePing: "PING", http2.FrameGoAway: "GOAWAY", http2.FrameWindowUpdate: "WINDOW_UPDATE",
	http2.FrameContinuation: "CONTINUATION", http2.FramePriorityUpdate: "PRIORITY_UPDATE",
}

// transcript writes a line for each frame that a server has read from a connection: the frame's type, its stream, and the parts of the rest
// that matter. The stream is "new" if HEADERS open it, "same" if the previous frame was on it, "none" if it is 0, "idle", or otherwise "old".
type transcript struct {
	reader   http2.Reader
	unread   []byte
	begun    bool
	keepAcks bool
	failed   bool
	last     uint32 // stream
	highest  uint32
	fields   *hpack.Decoder
	head     struct {
		fields, bytes int
		length        string
		upper         bool
	}
	text strings.Builder
}

// enough is the maximum size of a transcript in bytes. Later frames only repeat earlier ones.
const enough = 64 << 10

func newTranscript(keepAcks bool) *transcript {
	r := &transcript{keepAcks: keepAcks}
	r.fields = hpack.NewDecoder(http2.DefaultHeaderTableSize, func(f hpack.HeaderField) {
		r.head.fields++
		r.head.bytes += len(f.Name) + len(f.Value)
		r.head.upper = r.head.upper || f.Name != strings.ToLower(f.Name)
		if f.Name == "content-length" {
			r.head.length = f.Value
		}
	})
	return r
}

// read records bytes that the server has read.
func (r *transcript) read(b []byte) {
	if r.text.Len() > enough || r.failed {
		return
	}
	r.unread = append(r.unread, b...)
	if !r.begun {
		if len(r.unread) < len(http2.Preface) {
			return
		}
		r.unread, r.begun = r.unread[len(http2.Preface):], true
	}
	for {
		var f http2.Frame
		n, fault := r.reader.Next(&f, r.unread)
		if n == 0 && fault == http2.NoFault {
			return
		}
		if n == 0 {
			fmt.Fprintf(&r.text, "FAULT %v\n", fault)
			r.failed = true
			return
		}
		r.unread = r.unread[n:]
		r.line(&f, fault)
	}
}

func (r *transcript) line(f *http2.Frame, fault http2.Fault) {
	if f.Type == http2.FrameSettings && f.Ack() && !r.keepAcks {
		return
	}
	stream := "old"
	switch {
	case f.Stream == 0:
		stream = "none"
	case f.Type == http2.FrameHeaders && f.Stream > r.highest:
		stream, r.highest = "new", f.Stream
	case f.Stream == r.last:
		stream = "same"
	case f.Stream > r.highest:
		stream = "idle"
	}
	r.last = f.Stream
	name := frameNames[f.Type]
	if name == "" {
		name = "UNKNOWN"
	}
	fmt.Fprintf(&r.text, "%s %s", name, stream)
	switch f.Type {
	case http2.FrameHeaders:
		if f.Flags.Has(http2.FlagEndHeaders) {
			r.block(f.Payload)
		} else {
			r.text.WriteString(" open")
		}
		if f.EndStream() {
			r.text.WriteString(" END")
		}
	case http2.FrameData, http2.FramePriority, http2.FrameContinuation:
		fmt.Fprintf(&r.text, " %d", f.Length)
		if f.Type == http2.FrameData && f.Flags.Has(http2.FlagPadded) {
			r.text.WriteString(" padded")
		}
	case http2.FrameReset, http2.FrameWindowUpdate, http2.FrameGoAway:
		fmt.Fprintf(&r.text, " %d", f.Value)
	case http2.FramePriorityUpdate:
		stream := "old"
		if f.Value > r.highest {
			stream = "idle"
		}
		fmt.Fprintf(&r.text, " %s %s", stream, f.Payload)
	case http2.FramePing, http2.FrameSettings:
		if f.Ack() {
			r.text.WriteString(" ACK")
		}
		if n := len(f.Payload) / 6; f.Type == http2.FrameSettings && n > 10 {
			fmt.Fprintf(&r.text, " %d entries", n)
		} else if f.Type == http2.FrameSettings {
			for b := f.Payload; len(b) >= 6; b = b[6:] {
				fmt.Fprintf(&r.text, " %d=%d", binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:]))
			}
		}
	}
	if fault != http2.NoFault {
		fmt.Fprintf(&r.text, " (%v)", fault)
	}
	r.text.WriteByte('\n')
}

// block writes the unusual properties of a head.
func (r *transcript) block(block []byte) {
	r.head.fields, r.head.bytes, r.head.length, r.head.upper = 0, 0, "", false
	if _, err := r.fields.Write(block); err != nil {
		fmt.Fprintf(&r.text, " %v", err)
	}
	if err := r.fields.Close(); err != nil {
		fmt.Fprintf(&r.text, " %v", err)
	}
	if r.head.fields > 10 {
		fmt.Fprintf(&r.text, " %d fields of %d", r.head.fields, r.head.bytes)
	}
	if r.head.length != "" {
		r.text.WriteString(" length=" + r.head.length)
	}
	if r.head.upper {
		r.text.WriteString(" upper")
	}
}

// listening listens on a TCP port, and keeps a transcript of the frames that are read from each connection.
type listening struct {
	net.Listener
	mu    sync.Mutex
	conns []*readConn
	read  chan struct{} // gets a value after each read; capacity 1
	// keepAcks says that acknowledgements of SETTINGS are in the transcripts. It is set before anything is served.
	keepAcks bool
}

func newListening(t *testing.T) *listening {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return &listening{Listener: ln, read: make(chan struct{}, 1)}
}

func (l *listening) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &readConn{Conn: nc, listening: l, transcript: newTranscript(l.keepAcks)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *listening) dial() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }

// seen reports whether the expression matches the transcripts of at least conns connections. It matches after it has released the lock, so
// the server can continue to read.
func (l *listening) seen(expression *regexp.Regexp, conns int) bool {
	for _, text := range l.texts() {
		if expression.MatchString(text) {
			conns--
		}
	}
	return conns <= 0
}

// texts returns the transcripts.
func (l *listening) texts() (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		text := c.transcript.text.String()
		// An incomplete frame is a line, too.
		if n := len(c.transcript.unread); c.transcript.begun && n > http2.FrameHeaderLen {
			text += fmt.Sprintf("part %d of %d\n", n, 9+int(binary.BigEndian.Uint32(c.transcript.unread)>>8))
		}
		texts = append(texts, text)
	}
	return texts
}

// transcripts returns the beginnings of all transcripts.
func (l *listening) transcripts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, c := range l.conns {
		fmt.Fprintf(&b, "%.1000s\n", c.transcript.text.String())
	}
	return b.String()
}

// readConn is a connection whose transcript is kept.
type readConn struct {
	net.Conn
	listening  *listening
	transcript *transcript
}

func (c *readConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listening.mu.Lock()
	defer c.listening.mu.Unlock()
	c.transcript.read(b[:n])
	select {
	case c.listening.read <- struct{}{}:
	default:
	}
	return n, err
}

// serveSite serves handler with net/http's server.
func serveSite(t *testing.T, ln net.Listener, handler http.Handler) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: handler, Protocols: &protocols, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
}

// scripted is a server that handles each frame with a test's function.
type scripted struct {
	listening *listening
	// frame is called with each frame that has arrived on a connection. If it fails, the server closes the connection.
	frame func(nc net.Conn, f *http2.Frame) error
}

func serveScripted(t *testing.T, l *listening, frame func(nc net.Conn, f *http2.Frame) error) {
	t.Helper()
	s := &scripted{l, frame}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := s.listening.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer nc.Close()
				// A client that is stopped while it dials may leave a connection open.
				defer context.AfterFunc(ctx, func() { nc.Close() })()
				s.serve(nc)
			})
		}
	})
	t.Cleanup(func() {
		s.listening.Close()
		end()
		running.Wait()
	})
}

func (s *scripted) serve(nc net.Conn) {
	if _, err := io.ReadFull(nc, make([]byte, len(http2.Preface))); err != nil {
		return
	}
	settings := http2.Settings{MaxStreams: 100}
	nc.Write(settings.Append(nil))
	var reader http2.Reader
	buffer, unread := make([]byte, 64<<10), 0
	for {
		n, err := nc.Read(buffer[unread:])
		if err != nil {
			return
		}
		b := buffer[:unread+n]
		for {
			var f http2.Frame
			n, fault := reader.Next(&f, b)
			if n == 0 || fault != http2.NoFault {
				break
			}
			b = b[n:]
			if s.frame(nc, &f) != nil {
				return
			}
		}
		unread = copy(buffer, b)
	}
}
