package http2conf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/conformance"
)

const (
	// timeout bounds one connection. It is far longer than needed, since the server can compute every answer in the table at once.
	timeout = time.Minute

	// A case is cut in two at only 1/7 of the possible offsets, since each cut takes a separate connection. The first offset differs from case
	// to case.
	sparse = 7

	// atOnce is how many cases run concurrently. Some cases wait for a second.
	atOnce = 16
)

// Run runs the whole table against the server to which dial connects, over TCP, or over TLS whose ALPN has chosen h2. Each case is sent whole,
// and cut in two at some offsets. If a connection has a method WaitRead() error, which returns when the server has read everything that was
// sent, the cuts are exact, and the cases are also sent byte by byte. With -short, cases aren't cut.
func Run(t *testing.T, dial func() (net.Conn, error)) {
	t.Helper()
	run(t, dial, testing.Short())
}

// RunWhole does the same as Run, but without cuts.
func RunWhole(t *testing.T, dial func() (net.Conn, error)) {
	t.Helper()
	run(t, dial, true)
}

func run(t *testing.T, dial func() (net.Conn, error), short bool) {
	t.Helper()
	o := conformance.Options{Timeout: timeout, Cut: !short}
	lacks, err := Lacking(dial, o)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	places := make(chan struct{}, atOnce)
	for _, c := range Table() {
		if c.Holds && lacks[postHold] != nil {
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if err := c.Run(dial, o); err != nil {
				t.Errorf("%s: RFC %s: %s\n%v", c.Name, c.RFC, c.Sentence, err)
			}
		})
	}
}

// Run runs the case against the server to which dial connects. The error describes how the outcome differs from the expected one.
func (c *Case) Run(dial func() (net.Conn, error), o conformance.Options) error {
	return (&runner{Case: *c, dial: dial, timeout: o.Timeout, abrupt: o.Abrupt}).run(!o.Cut)
}

const postHold = "POST /hold"

// Needs returns the routes that the case needs.
func (c *Case) Needs() []string {
	needs := []string{conformance.GetHello}
	for _, step := range c.Steps {
		if strings.Contains(string(bytesOf(step.frames(usualSettings))), "/echo") {
			needs = append(needs, conformance.PostEcho)
			break
		}
	}
	if c.Holds {
		needs = append(needs, postHold)
	}
	return needs
}

// Lacking returns the routes that a server doesn't have, each with the error that its request got. err is set if the server can't be reached,
// or doesn't speak HTTP/2.
func Lacking(dial func() (net.Conn, error), o conformance.Options) (lacks map[string]error, err error) {
	r := &runner{dial: dial, timeout: o.Timeout}
	look := func(list frames, want Want) error {
		return r.on("a look at the server", func(s *session) error {
			if err := s.begin(); err != nil {
				return err
			}
			s.write(list)
			return s.waitFor([]Want{want})
		})
	}
	if err := r.on("a look at the server", (*session).begin); err != nil {
		return nil, err
	}
	lacks = make(map[string]error)
	for route, err := range map[string]error{
		conformance.GetHello: look(frames{get(1)}, hello(1)),
		conformance.PostEcho: look(frames{post(1), data(1, endStream, "hello")}, echo(1, "hello")),
		// POST /hold doesn't answer before its stream ends, so this asks for a 405 to GET instead.
		postHold: look(frames{headers(1, whole, block(":method: GET", ":scheme: https", ":path: /hold", ":authority: a"))}, answered(1, 405)),
	} {
		if err != nil {
			lacks[route] = err
		}
	}
	return lacks, nil
}

// A runner runs one case.
type runner struct {
	Case
	dial    func() (net.Conn, error)
	timeout time.Duration
	abrupt  bool // see conformance.Options.Abrupt
}

func (r *runner) run(short bool) error {
	exact := false
	err := r.on("whole", func(s *session) error {
		exact = conformance.Exact(s.conn)
		return s.play(nil)
	})
	if err != nil || short {
		return err
	}
	places := conformance.Cuts(r.length())
	if exact && r.length() <= conformance.CutAll {
		if err := r.on("byte by byte", func(s *session) error { return s.play(places) }); err != nil {
			return err
		}
	}
	for i := len(r.Name) % sparse; i < len(places); i += sparse {
		at := places[i]
		if err := r.on(fmt.Sprintf("cut at %d", at), func(s *session) error { return s.play([]int{at}) }); err != nil {
			return err
		}
	}
	return nil
}

// length returns how many bytes of the case can be cut. A case with an AnsweredEarly outcome isn't cut: the server sends RST_STREAM a second
// after the answer, so each cut would take a second.
func (r *runner) length() int {
	n := 0
	for _, step := range r.Steps {
		if slices.ContainsFunc(step.Want, func(w Want) bool { return w.What == AnsweredEarly }) {
			return 0
		}
		if step.cuttable() {
			n += len(bytesOf(step.Send))
		}
	}
	return n
}

func (s *Step) cuttable() bool { return !s.Fixed && s.Make == nil }

func bytesOf(list []Frame) []byte {
	var b []byte
	for _, f := range list {
		b = f.Append(b)
	}
	return b
}

// on calls do with a new connection. If do fails, on adds to the error how the case was run.
func (r *runner) on(how string, do func(*session) error) error {
	conn, err := r.dial()
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(r.timeout)); err != nil {
		return err
	}
	s := &session{runner: r, peer: newPeer(), conn: conn, wanted: map[uint32]Want{}, events: make(chan event, 4096), stop: make(chan struct{})}
	var reader sync.WaitGroup
	reader.Go(func() { read(conn, s.events, s.stop) })
	defer reader.Wait()
	defer close(s.stop)
	defer conn.Close()
	if err := do(s); err != nil {
		return fmt.Errorf("%s: %w\ncame: %v", how, err, s)
	}
	return nil
}

// An event is a frame that was read, or the error that ended reading.
type event struct {
	serverFrame
	err error
}

// read reads the server's frames until an error, and sends each to events.
func read(conn net.Conn, events chan<- event, stop <-chan struct{}) {
	br := bufio.NewReader(conn)
	for {
		var e event
		e.serverFrame, e.err = readFrame(br)
		select {
		case events <- e:
		case <-stop:
			return
		}
		if e.err != nil {
			return
		}
	}
}

// readFrame reads the next frame. It returns a bare io.EOF if the connection ends between two frames.
func readFrame(br *bufio.Reader) (f serverFrame, err error) {
	var header [9]byte
	if _, err := io.ReadFull(br, header[:]); err != nil {
		return f, err
	}
	length := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
	f.kind, f.flags = Type(header[3]), Flags(header[4])
	f.stream = uint32(header[5])<<24 | uint32(header[6])<<16 | uint32(header[7])<<8 | uint32(header[8])
	if length > maxFrameSize {
		return f, broken("%v has %d bytes: % x", f.kind, length, header)
	}
	f.payload = make([]byte, length)
	if n, err := io.ReadFull(br, f.payload); err != nil {
		return f, fmt.Errorf("after %d of %d bytes of %v: %w", n, length, f.kind, err)
	}
	return f, nil
}

// A session is one connection to the server.
type session struct {
	*runner
	*peer
	conn   net.Conn
	events chan event
	stop   chan struct{}
	wanted map[uint32]Want
	end    error // the error with which reading has ended
	offset int   // of the next byte, counted over the steps that are cut
}

// errEnd is wrapped by the error of a connection that ends before it should.
var errEnd = errors.New("the connection has ended")

// String describes what the server has sent.
func (s *session) String() string {
	if s.end != nil {
		return fmt.Sprintf("%v; the end (%v)", s.peer, s.end)
	}
	return s.peer.String()
}

// play runs the case on the connection, cut at these offsets.
func (s *session) play(places []int) error {
	if err := s.begin(); err != nil {
		return err
	}
	for i := range s.Steps {
		last := i == len(s.Steps)-1
		if err := s.step(&s.Steps[i], places, last); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return s.finish()
}

// begin sends the preface and exchanges SETTINGS.
func (s *session) begin() error {
	s.conn.Write([]byte(preface))
	s.write(frames{settings()})
	return s.wait("SETTINGS and their acknowledgment", func() bool { return s.began && len(s.unacked) == 0 })
}

// step sends the frames of a step, and waits for its outcomes.
func (s *session) step(step *Step, places []int, last bool) error {
	list := step.frames(s.server)
	for _, w := range step.Want {
		s.wanted[w.Stream] = w
	}
	if !step.cuttable() {
		places = nil
	}
	if err := s.sendPolitely(list, step.Rude, places); err != nil {
		return err
	}
	if step.cuttable() {
		s.offset += len(bytesOf(list))
	}
	if last && s.Then != Open && s.Then != OpenOld {
		return nil
	}
	return s.settle(step.Want)
}

// settle waits for the wanted outcomes, and then for the answer to a PING: by then, all frames have arrived that the server sends because of
// the earlier frames.
func (s *session) settle(want []Want) error {
	if err := s.waitFor(want); err != nil {
		return err
	}
	s.write(frames{ping("settled?")})
	if err := s.wait("the answer to PING", func() bool { return len(s.pings) == 0 && len(s.unacked) == 0 }); err != nil {
		return err
	}
	for id, stream := range s.streams {
		w, ok := s.wanted[id]
		if !ok {
			w = Want{Stream: id, What: Nothing}
		}
		if !w.met(stream) {
			return fmt.Errorf("want %v", w)
		}
	}
	return nil
}

func (s *session) waitFor(want []Want) error {
	words := make([]string, len(want))
	for i, w := range want {
		words[i] = w.String()
	}
	return s.wait(strings.Join(words, "; "), func() bool {
		for _, w := range want {
			if !w.met(s.streams[w.Stream]) {
				return false
			}
		}
		return true
	})
}

// wait handles events until done returns true.
func (s *session) wait(what string, done func() bool) error {
	for !done() {
		if err := s.next(); err != nil {
			return fmt.Errorf("want %s: %w", what, err)
		}
	}
	return nil
}

// next handles the next event, and sends the frames with which the client must reply.
func (s *session) next() error {
	if s.end != nil {
		return fmt.Errorf("%w: %w", errEnd, s.end)
	}
	e := <-s.events
	switch {
	case e.err != nil:
		s.end = e.err
		if errors.Is(e.err, errServer) {
			return e.err
		}
		return fmt.Errorf("%w: %w", errEnd, e.err)
	}
	if err := s.take(e.serverFrame); err != nil {
		return err
	}
	replies := s.replies
	s.replies = nil
	s.write(replies)
	return nil
}

// write sends frames in one write. A server that has ended the connection need not read on, so a failed write is no error: only the
// server's frames count.
func (s *session) write(list []Frame) {
	for _, f := range list {
		s.sent(f)
	}
	if len(list) > 0 {
		s.conn.Write(bytesOf(list))
	}
}

// sendPolitely sends frames in one write. It splits the write at the cuts, and where it must wait for a window.
func (s *session) sendPolitely(list []Frame, rude bool, places []int) error {
	at := 0
	var b []byte
	for _, f := range list {
		if n := int64(len(f.Payload)); f.is(typeData) && !rude && n > 0 && s.streams[f.Stream&maxID] != nil && s.sendable(f.Stream) < n {
			s.writeParts(b, s.offset+at, places)
			at, b = at+len(b), nil
			if err := s.wait(fmt.Sprintf("a window of %d", n), func() bool { return s.sendable(f.Stream) >= n }); err != nil {
				return err
			}
		}
		s.sent(f)
		b = f.Append(b)
	}
	s.writeParts(b, s.offset+at, places)
	return nil
}

// writeParts writes b, cut at places. The argument at is the offset of b's first byte.
func (s *session) writeParts(b []byte, at int, places []int) {
	for _, place := range places {
		if n := place - at; n > 0 && n < len(b) {
			s.conn.Write(b[:n])
			conformance.Pause(s.conn)
			at, b = place, b[n:]
		}
	}
	if len(b) > 0 {
		s.conn.Write(b)
	}
}

// finish checks what happens to the connection after the steps.
func (s *session) finish() error {
	switch s.Then {
	case Open:
		if err := s.probe(); err != nil {
			return fmt.Errorf("the next request: %w", err)
		}
		return s.close()
	case OpenOld:
		return s.close()
	case Either:
		err := s.probe()
		if n := len(s.goneAway); err != nil && errors.Is(err, errEnd) && n > 0 && s.goneAway[n-1].code == s.Code && s.ended() {
			return nil
		}
		return err
	case Fails:
		return s.wantGoAway(s.Code)
	}
	return s.close()
}

// probe sends a request on the connection, which must be answered.
func (s *session) probe() error {
	id := (s.highest+1)/2*2 + 1
	list := frames{get(id)}
	// The case may have used up the windows.
	if s.largest().window < 100 {
		list = append(list, windowUpdate(id, 100))
	}
	if s.receive < 100 {
		list = append(list, windowUpdate(0, 100-uint32(s.receive)))
	}
	s.wanted[id] = hello(id)
	s.write(list)
	return s.settle([]Want{s.wanted[id]})
}

// close closes the client's half of the connection. The server must then end its own half. Before that, it may send frames only on streams
// that haven't ended.
func (s *session) close() error {
	closer, ok := s.conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("a %T has no CloseWrite", s.conn)
	}
	closer.CloseWrite()
	err := s.wait("the end", func() bool { return s.end != nil })
	if s.end == nil {
		return err
	}
	if !s.ended() {
		return fmt.Errorf("the client has closed its half: %w", s.end)
	}
	for id, stream := range s.streams {
		if s.Then == Leaves && stream.status > 0 && stream.status < 400 {
			return fmt.Errorf("stream %d, which the client hasn't ended: %v", id, stream)
		}
	}
	return nil
}

// wantGoAway checks that the connection ends with the code.
func (s *session) wantGoAway(code Code) error {
	err := s.wait(fmt.Sprintf("GOAWAY %v and the end", code), func() bool { return s.end != nil })
	if s.end == nil {
		return err
	}
	n := len(s.goneAway)
	if n == 0 || s.goneAway[n-1].code != code || !s.ended() {
		return fmt.Errorf("want GOAWAY %v and the end", code)
	}
	for id, stream := range s.streams {
		if len(stream.resets) > 0 && s.wanted[id].What != Reset && s.wanted[id].What != AnsweredEarly {
			return fmt.Errorf("RST_STREAM on stream %d, and then GOAWAY", id)
		}
	}
	return nil
}

// ended reports whether the server has ended the connection in an orderly way.
func (s *session) ended() bool {
	return s.end == io.EOF || s.abrupt && errors.Is(s.end, syscall.ECONNRESET)
}
