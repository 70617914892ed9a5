package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// timeout bounds one connection. It is far longer than needed, since a server can compute every answer in the table at once.
	timeout = time.Minute

	// atOnce is how many connections a case uses concurrently.
	atOnce = 16
)

// probe is sent after a case. Its answer shows that the server continues to read, and that it parses the next request from the right byte on.
const probe = "GET /hello HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"

func probeAnswer() Answer { return saying(hello(), "Connection", "close") }

// Run runs the whole table against the server to which dial connects. It sends each request whole, then followed by another request in the
// same write, and then cut in two at every byte. If a connection has a method WaitRead() error, which returns when the server has read
// everything that was sent, cuts are exact, and the requests are also sent byte by byte. With -short, requests aren't cut.
func Run(t *testing.T, dial func() (net.Conn, error)) {
	t.Helper()
	for _, c := range Table() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(dial, Options{Timeout: timeout, Cut: !testing.Short()}); err != nil {
				t.Errorf("RFC %s: %s\n%v", c.RFC, c.Sentence, err)
			}
		})
	}
}

// Options say how a case is run.
type Options struct {
	Timeout time.Duration // of each connection
	Cut     bool          // also cut in two at every byte
	// Abrupt says that the server may end a connection with a TCP reset after its answer. A kernel sends a reset if the server closes a
	// connection before it has read everything that the client has sent.
	Abrupt bool
	// Undated allows answers of HTTP/1.1 without Date.
	Undated bool
}

// Run runs the case against the server to which dial connects. The error describes how the answers differ from the expected ones.
func (c *Case) Run(dial func() (net.Conn, error), o Options) error {
	return (&runner{Case: *c, dial: dial, timeout: o.Timeout, abrupt: o.Abrupt, undated: o.Undated}).run(!o.Cut)
}

// A runner runs one case.
type runner struct {
	Case
	dial    func() (net.Conn, error)
	timeout time.Duration
	abrupt  bool // see Options.Abrupt
	undated bool // see Options.Undated
}

func (r *runner) run(short bool) error {
	if err := r.once("whole", r.Raw); err != nil {
		return err
	}
	if !r.HalfClose && r.After100 == "" {
		if err := r.pipelined(); err != nil {
			return err
		}
	}
	if short {
		return nil
	}
	if err := r.byteByByte(); err != nil {
		return err
	}
	return r.cut()
}

// byteByByte plays the case so that the server gets every byte in a separate Read. It does nothing if the connection can't do that.
func (r *runner) byteByByte() error {
	return r.on("byte by byte", func(s *session) error {
		if !Exact(s.conn) || len(r.Raw) > CutAll {
			return nil
		}
		parts := make([]string, len(r.Raw))
		for i := range parts {
			parts[i] = r.Raw[i : i+1]
		}
		return s.playAndFinish(parts)
	})
}

// once plays the case on a separate connection, and sends its bytes in these parts.
func (r *runner) once(how string, parts ...string) error {
	return r.on(how, func(s *session) error { return s.playAndFinish(parts) })
}

// pipelined plays the case with the probe in the same write.
func (r *runner) pipelined() error {
	return r.on("with another request behind it", func(s *session) error {
		if err := s.play([]string{r.Raw + probe}); err != nil {
			return err
		}
		s.probed = true
		return s.finish()
	})
}

// cut plays the case once for every offset at which it is cut, and returns the first error.
func (r *runner) cut() error {
	places := Cuts(len(r.Raw))
	share := max(1, (len(places)+atOnce-1)/atOnce)
	errs := make([]error, 0, atOnce)
	var group sync.WaitGroup
	for part := range slices.Chunk(places, share) {
		errs = append(errs, nil)
		err := &errs[len(errs)-1]
		group.Go(func() { *err = r.cutAt(part) })
	}
	group.Wait()
	return cmp.Or(errs...)
}

// cutAt plays the case once for each of these offsets, up to the first failure. A case that leaves its connection open is played again on the
// same connection.
func (r *runner) cutAt(places []int) error {
	if r.Then != Open || r.HalfClose {
		for _, at := range places {
			if err := r.once(fmt.Sprintf("cut at %d", at), r.Raw[:at], r.Raw[at:]); err != nil {
				return err
			}
		}
		return nil
	}
	return r.on("cut", func(s *session) error {
		for _, at := range places {
			s.received.Reset()
			if err := s.play([]string{r.Raw[:at], r.Raw[at:]}); err != nil {
				return fmt.Errorf("at %d: %w", at, err)
			}
		}
		return s.finish()
	})
}

// on calls do with a new connection. If do fails, on adds to the error how the case was played.
func (r *runner) on(how string, do func(*session) error) error {
	conn, err := r.dial()
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(r.timeout)); err != nil {
		return err
	}
	s := &session{runner: r, conn: conn}
	s.answers = bufio.NewReader(io.TeeReader(conn, &s.received))
	if err := do(s); err != nil {
		return fmt.Errorf("%s: %w\nsent %s\ncame %s", how, err, abridged(r.Raw+r.After100), abridged(s.received.String()))
	}
	return nil
}

// A session is one connection to the server.
type session struct {
	*runner
	conn     net.Conn
	answers  *bufio.Reader
	received bytes.Buffer // the bytes received so far
	last     *Response    // the latest final answer
	probed   bool         // the probe was sent with the case
}

func (s *session) playAndFinish(parts []string) error {
	if err := s.play(parts); err != nil {
		return err
	}
	return s.finish()
}

// play sends the parts and reads the answers. A server that has refused a request may stop reading, so a failed write is no error: only the
// answer counts.
func (s *session) play(parts []string) error {
	for i, part := range parts {
		if i > 0 {
			Pause(s.conn)
		}
		if _, err := io.WriteString(s.conn, part); err != nil {
			break
		}
	}
	if s.After100 != "" {
		if err := s.read100(); err != nil {
			return err
		}
		io.WriteString(s.conn, s.After100)
	}
	if s.HalfClose {
		closer, ok := s.conn.(interface{ CloseWrite() error })
		if !ok {
			return fmt.Errorf("a %T has no CloseWrite", s.conn)
		}
		closer.CloseWrite()
	}
	for i, want := range s.Want {
		if err := s.readAnswer(want); err != nil {
			return fmt.Errorf("answer %d: %w", i+1, err)
		}
		if last := i == len(s.Want)-1; s.last.Closes() && !last {
			return fmt.Errorf("answer %d of %d says Connection: close", i+1, len(s.Want))
		}
	}
	return s.checkAnnounced()
}

func (s *session) read100() error {
	r, err := ReadResponse(s.answers, false)
	if err != nil {
		return fmt.Errorf("waiting for a 100: %w", err)
	}
	if r.Status != 100 {
		return fmt.Errorf("status %d, want 100", r.Status)
	}
	return nil
}

func (s *session) readAnswer(want Answer) error {
	r, err := ReadResponse(s.answers, want.Head)
	if err == nil && r.Status == 100 && s.May100 {
		r, err = ReadResponse(s.answers, want.Head)
	}
	if err != nil && !(s.undated && errors.Is(err, errUndated)) {
		return err
	}
	s.last = r
	return r.check(want)
}

// checkAnnounced checks the last answer against RFC 9112, 9.6: it has Connection: close if and only if it is the last on its connection.
func (s *session) checkAnnounced() error {
	if s.last == nil {
		return nil
	}
	switch closes := s.last.Closes(); {
	case s.Then == Open && closes:
		return errors.New("the answer says Connection: close, want the connection open")
	case s.Then == Closes && !closes:
		return errors.New("the answer doesn't say Connection: close")
	}
	return nil
}

// finish checks what happens to the connection after the answers.
func (s *session) finish() error {
	if s.HalfClose || s.Then == Closes || s.Then == ClosesSilently || s.last != nil && s.last.Closes() {
		return s.wantEOF()
	}
	if !s.probed {
		if _, err := io.WriteString(s.conn, probe); err != nil && s.Then == Open {
			return fmt.Errorf("the connection doesn't stay open: %w", err)
		}
	}
	if s.Then != Open && s.wantEOF() == nil {
		return nil
	}
	return s.wantProbe()
}

func (s *session) wantProbe() error {
	if err := s.readAnswer(probeAnswer()); err != nil {
		return fmt.Errorf("the next request: %w", err)
	}
	return s.wantEOF()
}

// wantEOF checks that the server closes the connection without sending anything more.
func (s *session) wantEOF() error {
	_, err := s.answers.Peek(1)
	switch {
	case err == nil:
		return errors.New("more came, want the connection closed")
	case (s.Late || s.abrupt) && errors.Is(err, syscall.ECONNRESET):
	case err != io.EOF:
		return fmt.Errorf("want the connection closed: %w", err)
	}
	return nil
}

func abridged(s string) string {
	const most = 800
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q … (%d bytes) … %q", s[:most/2], len(s), s[len(s)-most/2:])
}
