package abuse

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// raw is the connection of an attack that sends HTTP/1.1 or TLS records. Only one goroutine uses it.
type raw struct {
	ctx   context.Context
	nc    net.Conn
	began time.Time
	// The counts of the connection.
	sent, answers, notOK, lastStatus int
	// by is how the server has ended the connection; "" if it hasn't.
	by string
}

// runRaw runs the attack over nc until the connection has ended, or ctx is done.
func runRaw(ctx context.Context, nc net.Conn, attack func(*raw)) *raw {
	r := &raw{ctx: ctx, nc: nc, began: time.Now()}
	stopped := context.AfterFunc(ctx, func() { nc.Close() })
	attack(r)
	if stopped() {
		nc.Close()
	}
	return r
}

// send sends bytes, and returns false if the write fails. Even then, the server's answer can be read.
func (r *raw) send(b []byte) bool {
	_, err := r.nc.Write(b)
	r.sent++
	return err == nil
}

// sleep waits for d, and returns false as soon as the attack ends.
func (r *raw) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// await reads answers until the connection has ended.
func (r *raw) await() {
	b := bufio.NewReader(r.nc)
	for {
		answer, err := http.ReadResponse(b, nil)
		if err != nil {
			r.over()
			return
		}
		r.answers++
		if r.lastStatus = answer.StatusCode; r.lastStatus != 200 {
			r.notOK++
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			r.over()
			return
		}
	}
}

// awaitUnread waits until the connection has ended, and reads nothing.
func (r *raw) awaitUnread() {
	if err := sock.AwaitEnd(r.nc, false); errors.Is(err, io.EOF) {
		r.over()
	}
}

// over records how the server has ended the connection. If the attack has ended, over records nothing, since the attacker has closed the
// connection.
func (r *raw) over() {
	switch {
	case r.ctx.Err() != nil:
	case r.lastStatus != 0:
		r.by = fmt.Sprintf("answers of %d", r.lastStatus)
	default:
		r.by = "closed"
	}
}

// addRaw adds the counts of a connection that has ended, and reports whether the server has ended it.
func (s *summing) addRaw(r *raw) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Conns++
	s.Frames += r.sent
	s.Answers += r.answers
	s.NotOK += r.notOK
	return s.endedLocked(r.by, time.Since(r.began), r.sent)
}

// body returns an attack that begins a POST whose Content-Length is length, and sends the first part of the body, whose size is the argument
// now, at once. Then it sends one byte at each interval (every), or nothing more if every is 0.
func body(length, now int, every time.Duration) func(*raw) {
	return func(r *raw) {
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", pathBody, r.nc.RemoteAddr(), length)
		if r.send(append([]byte(head), make([]byte, now)...)) && every > 0 {
			go func() {
				for now++; now < length && r.sleep(every); now++ {
					if _, err := r.nc.Write([]byte("a")); err != nil {
						return
					}
				}
			}()
		}
		r.await()
	}
}

// taken returns an attack that reads this many bytes of an endless answer, and then stops reading.
func taken(bytes int64) func(*raw) {
	return func(r *raw) {
		if tcp, ok := r.nc.(*net.TCPConn); ok {
			tcp.SetReadBuffer(64 << 10)
		}
		if !r.send(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", pathStream, r.nc.RemoteAddr())) {
			r.over()
			return
		}
		if _, err := io.CopyN(io.Discard, r.nc, bytes); err != nil {
			r.over()
			return
		}
		r.awaitUnread()
	}
}

// hello returns an attack that sends these bytes of a TLS handshake, and nothing else.
func hello(bytes []byte) func(*raw) {
	return func(r *raw) {
		if r.send(bytes) {
			io.Copy(io.Discard, r.nc)
		}
		r.over()
	}
}

// partialHello is the header of a TLS handshake record that announces 16 KB, and the record's first byte.
var partialHello = []byte{0x16, 0x03, 0x01, 0x40, 0x00, 0x01}

// clientHello returns the first message of a TLS handshake, as Go's client sends it. Without post-quantum keys, it has less than 300 bytes.
func clientHello() []byte {
	var sent firstWrite
	client := tls.Client(&sent, &tls.Config{ServerName: "localhost", CurvePreferences: []tls.CurveID{tls.X25519}})
	client.Handshake()
	return sent.bytes
}

// firstWrite is a connection that stores the bytes of the first Write, and fails that Write.
type firstWrite struct {
	net.Conn
	bytes []byte
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.bytes = append(f.bytes, b...)
	return 0, io.ErrClosedPipe
}

func (*firstWrite) Read([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (*firstWrite) SetDeadline(time.Time) error     { return nil }
func (*firstWrite) SetReadDeadline(time.Time) error { return nil }

// plainAttacks returns the attacks over HTTP/1.1, and those on TLS handshakes.
func plainAttacks() []*Attack {
	whole := clientHello()
	return []*Attack{
		{Name: "body-lacks-a-byte", About: "bodies of 4 MB that lack a byte: memory for bodies", Want: TimesOut, Conns: 33, Client: Posts,
			Growth: 384 * megabytes, plain: body(4<<20, 4<<20-1, 0)},
		{Name: "bodies-of-1-mb", About: "bodies of 1 MB that lack a byte: places", Want: TimesOut, Conns: 60, Client: Posts,
			Growth: 384 * megabytes, plain: body(1<<20, 1<<20-1, 0)},
		{Name: "body-trickles", About: "3 MB at once, then a byte every 9 seconds", Want: TimesOut, Conns: 60, Client: Posts,
			Growth: 384 * megabytes, plain: body(3<<20+1000, 3<<20, 9*time.Second)},
		{Name: "answer-taken", About: "2 MB of an endless answer are taken, then nothing", Want: TimesOut, Conns: 60, Client: Posts,
			plain: taken(2 << 20)},
		{Name: "hello-3000", About: "a ClientHello, then silence", Want: TimesOut, Conns: 3000, Bare: true, Client: Handshakes, plain: hello(whole)},
		{Name: "hello-8000", About: "a ClientHello, then silence, by more clients", Want: TimesOut, Conns: 8000, Bare: true, Client: Handshakes,
			Growth: 512 * megabytes, plain: hello(whole)},
		{Name: "hello-part", About: "a byte of a ClientHello of 16 KB, then silence", Want: TimesOut, Conns: 3000, Bare: true, Client: Handshakes,
			plain: hello(partialHello)},
	}
}

// ByHTTP2 reports whether the attack speaks HTTP/2.
func (a *Attack) ByHTTP2() bool { return a.run != nil }

// filling returns rounds that send size bytes of a body on each stream, n times, and then nothing.
func filling(size, n int) rounds {
	sent := map[uint32]int{}
	return func(b []byte, id uint32) []byte {
		if sent[id]++; sent[id] > n {
			return b
		}
		return frame(b, 0, 0, id, strings.Repeat("a", size))
	}
}
