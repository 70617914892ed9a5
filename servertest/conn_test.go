package servertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	_ net.Conn     = (*Conn)(nil)
	_ net.Listener = (*Listener)(nil)
)

// mustWrite writes all of b.
func mustWrite(t *testing.T, c *Conn, b string) {
	t.Helper()
	if n, err := c.Write([]byte(b)); n != len(b) || err != nil {
		t.Fatalf("Write(%d bytes) = %d, %v", len(b), n, err)
	}
}

// wantRead makes one Read and compares its result.
func wantRead(t *testing.T, c *Conn, want string, wantErr error) {
	t.Helper()
	b := make([]byte, 1024)
	n, err := c.Read(b)
	if string(b[:n]) != want || !errors.Is(err, wantErr) {
		t.Fatalf("Read = %q, %v; want %q, %v", b[:n], err, want, wantErr)
	}
}

func TestConnCarriesBytesBothWays(t *testing.T) {
	a, b := Pipe()
	mustWrite(t, a, "ping")
	mustWrite(t, b, "pong")
	wantRead(t, b, "ping", nil)
	wantRead(t, a, "pong", nil)
}

func TestConnReadGivesWhatIsThere(t *testing.T) {
	a, b := Pipe()
	mustWrite(t, a, "one")
	mustWrite(t, a, "two")
	two := make([]byte, 2)
	if n, err := b.Read(two); n != 2 || err != nil || string(two) != "on" {
		t.Fatalf("Read = %d, %v, %q", n, err, two)
	}
	wantRead(t, b, "etwo", nil)
}

// The bytes are read in the order in which they were written, whatever the sizes of the calls and wherever the ring wraps around.
func TestConnKeepsOrderAcrossWraps(t *testing.T) {
	a, b := Pipe()
	const total = 4 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, total)
	for i := range sent {
		sent[i] = byte(rng.Uint32())
	}
	go func() {
		rng := rand.New(rand.NewPCG(3, 4))
		for p := sent; len(p) > 0; {
			n := min(len(p), rng.IntN(100_000))
			if m, err := a.Write(p[:n]); m != n || err != nil {
				t.Errorf("Write = %d, %v, want %d", m, err, n)
				break
			}
			p = p[n:]
		}
		a.CloseWrite()
	}()
	hash, size := sha256.New(), 0
	for buf := make([]byte, 70_000); ; {
		n, err := b.Read(buf[:1+rng.IntN(len(buf)-1)])
		hash.Write(buf[:n])
		size += n
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := sha256.Sum256(sent); size != total || !bytes.Equal(hash.Sum(nil), want[:]) {
		t.Fatalf("read %d bytes, want the %d that were written", size, total)
	}
}

func TestConnHalfClose(t *testing.T) {
	a, b := Pipe()
	mustWrite(t, a, "request")
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantRead(t, b, "request", nil)
	wantRead(t, b, "", io.EOF)
	wantRead(t, b, "", io.EOF)
	mustWrite(t, b, "answer")
	wantRead(t, a, "answer", nil)
	_, err := a.Write([]byte("more"))
	wantIs(t, err, io.ErrClosedPipe, syscall.EPIPE)
}

func TestConnClose(t *testing.T) {
	a, b := Pipe()
	mustWrite(t, a, "last words")
	mustWrite(t, b, "never read")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	wantRead(t, b, "last words", nil)
	wantRead(t, b, "", io.EOF)
	_, err := b.Write([]byte("x"))
	wantIs(t, err, io.ErrClosedPipe, syscall.EPIPE)

	_, err = a.Read(make([]byte, 1))
	wantIs(t, err, net.ErrClosed)
	_, err = a.Read(nil)
	wantIs(t, err, net.ErrClosed)
	_, err = a.Write([]byte("x"))
	wantIs(t, err, net.ErrClosed)
	wantIs(t, a.Close(), net.ErrClosed)
	wantIs(t, a.CloseWrite(), net.ErrClosed)
	wantIs(t, a.SetDeadline(time.Now()), net.ErrClosed)
	wantIs(t, a.SetWriteDeadline(time.Now()), net.ErrClosed)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConnReset(t *testing.T) {
	a, b := Pipe()
	mustWrite(t, a, "lost")
	if err := a.Reset(); err != nil {
		t.Fatal(err)
	}
	wantRead(t, b, "", syscall.ECONNRESET)
	_, err := b.Write([]byte("x"))
	wantIs(t, err, syscall.ECONNRESET)
	_, err = a.Read(make([]byte, 1))
	wantIs(t, err, net.ErrClosed)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConnAddresses(t *testing.T) {
	a, b := Pipe()
	if a.LocalAddr() != b.RemoteAddr() || a.RemoteAddr() != b.LocalAddr() {
		t.Errorf("the ends disagree: %v-%v, %v-%v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
	}
	if got := b.LocalAddr(); got.Network() != "mem" || got.String() != "filo.test:80" {
		t.Errorf("server's address is %s %s", got.Network(), got)
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that is %v", err, target)
		}
	}
	var op *net.OpError
	if !errors.As(err, &op) {
		t.Errorf("error is a %T, want a *net.OpError", err)
	}
}

// A writer blocks when 64 KB are unread, and goes on when some of them are read.
func TestConnWriterBlocksAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		mustWrite(t, a, string(make([]byte, maxBuffered)))
		var wrote bool
		go func() {
			mustWrite(t, a, "x")
			wrote = true
		}()
		synctest.Wait()
		if wrote {
			t.Fatal("a byte more than the bound was written")
		}
		if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatalf("Read = %d, %v", n, err)
		}
		synctest.Wait()
		if !wrote {
			t.Fatal("the writer still blocks though there is room")
		}
	})
}

func TestConnBlockedReadWakes(t *testing.T) {
	wakers := []struct {
		name string
		wake func(reader, peer *Conn)
		want error
	}{
		{"bytes", func(_, peer *Conn) { peer.Write([]byte("x")) }, nil},
		{"half-close", func(_, peer *Conn) { peer.CloseWrite() }, io.EOF},
		{"peer's close", func(_, peer *Conn) { peer.Close() }, io.EOF},
		{"peer's reset", func(_, peer *Conn) { peer.Reset() }, syscall.ECONNRESET},
		{"own close", func(reader, _ *Conn) { reader.Close() }, net.ErrClosed},
		{"deadline now", func(reader, _ *Conn) { reader.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		{"deadline past", func(reader, _ *Conn) { reader.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	}
	for _, w := range wakers {
		t.Run(w.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := Pipe()
				got := make(chan error, 1)
				go func() {
					_, err := a.Read(make([]byte, 1))
					got <- err
				}()
				synctest.Wait()
				w.wake(a, b)
				if err := <-got; !errors.Is(err, w.want) {
					t.Errorf("Read = %v, want %v", err, w.want)
				}
			})
		})
	}
}

func TestConnBlockedWriteWakes(t *testing.T) {
	wakers := []struct {
		name string
		wake func(writer, peer *Conn)
		want error
	}{
		{"own half-close", func(writer, _ *Conn) { writer.CloseWrite() }, io.ErrClosedPipe},
		{"peer's close", func(_, peer *Conn) { peer.Close() }, io.ErrClosedPipe},
		{"peer's reset", func(_, peer *Conn) { peer.Reset() }, syscall.ECONNRESET},
		{"own close", func(writer, _ *Conn) { writer.Close() }, net.ErrClosed},
		{"deadline", func(writer, _ *Conn) { writer.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded},
	}
	for _, w := range wakers {
		t.Run(w.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := Pipe()
				type result struct {
					n   int
					err error
				}
				got := make(chan result, 1)
				go func() {
					n, err := a.Write(make([]byte, maxBuffered+1))
					got <- result{n, err}
				}()
				synctest.Wait()
				w.wake(a, b)
				if r := <-got; r.n != maxBuffered || !errors.Is(r.err, w.want) {
					t.Errorf("Write = %d, %v, want %d, %v", r.n, r.err, maxBuffered, w.want)
				}
			})
		})
	}
}

func TestConnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		start := time.Now()
		readAt := func(want time.Duration, wantErr error) {
			t.Helper()
			_, err := a.Read(make([]byte, 1))
			if got := time.Since(start); got != want || !errors.Is(err, wantErr) {
				t.Fatalf("Read returned %v after %v, want %v after %v", err, got, wantErr, want)
			}
		}
		a.SetReadDeadline(start.Add(time.Second))
		readAt(time.Second, os.ErrDeadlineExceeded)
		readAt(time.Second, os.ErrDeadlineExceeded)

		mustWrite(t, b, "x")
		readAt(time.Second, os.ErrDeadlineExceeded) // even if there are bytes to read
		a.SetReadDeadline(start.Add(2 * time.Second))
		readAt(time.Second, nil)
		readAt(2*time.Second, os.ErrDeadlineExceeded)

		// While a Read is blocked, the deadline is moved later, moved earlier and removed.
		a.SetReadDeadline(start.Add(3 * time.Second))
		time.AfterFunc(500*time.Millisecond, func() { a.SetReadDeadline(start.Add(10 * time.Second)) })
		readAt(10*time.Second, os.ErrDeadlineExceeded)
		a.SetReadDeadline(start.Add(100 * time.Second))
		time.AfterFunc(time.Second, func() { a.SetReadDeadline(start.Add(20 * time.Second)) })
		readAt(20*time.Second, os.ErrDeadlineExceeded)
		a.SetReadDeadline(start.Add(30 * time.Second))
		time.AfterFunc(time.Second, func() { a.SetReadDeadline(time.Time{}) })
		time.AfterFunc(time.Hour, func() { b.Write([]byte("x")) })
		readAt(20*time.Second+time.Hour, nil)

		err := a.SetReadDeadline(time.Now())
		_, err2 := a.Read(make([]byte, 1))
		var timeout net.Error
		if err != nil || !errors.As(err2, &timeout) || !timeout.Timeout() {
			t.Errorf("SetReadDeadline = %v, Read = %v, want a time-out", err, err2)
		}
		mustWrite(t, a, "the other direction has its own deadline")
	})
}

func TestConnWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		start := time.Now()
		a.SetDeadline(start.Add(time.Second))
		n, err := a.Write(make([]byte, 2*maxBuffered))
		if n != maxBuffered || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("Write = %d, %v after %v", n, err, time.Since(start))
		}
		if n, err := a.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write after the deadline = %d, %v", n, err)
		}
		io.CopyN(io.Discard, b, maxBuffered)
		a.SetWriteDeadline(time.Time{})
		mustWrite(t, a, "again")
		wantRead(t, b, "again", nil)
	})
}

func TestConnWaitRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		if err := a.WaitRead(); err != nil {
			t.Fatalf("nothing written: %v", err)
		}
		mustWrite(t, a, "xy")
		var returned bool
		go func() {
			if err := a.WaitRead(); err != nil {
				t.Error(err)
			}
			returned = true
		}()
		b.Read(make([]byte, 1))
		synctest.Wait()
		if returned {
			t.Fatal("WaitRead returned though a byte is unread")
		}
		wantRead(t, b, "y", nil)
		synctest.Wait()
		if !returned {
			t.Fatal("WaitRead still waits")
		}

		mustWrite(t, a, "x")
		a.SetWriteDeadline(time.Now().Add(time.Second))
		wantIs(t, a.WaitRead(), os.ErrDeadlineExceeded)
		a.SetWriteDeadline(time.Time{})
		b.Reset()
		if err := a.WaitRead(); err != nil {
			t.Errorf("after a reset nothing is on its way, but: %v", err)
		}
	})
}

// The bytes of two concurrent Writes don't mix, even if both have to wait.
func TestConnWritesDoNotMix(t *testing.T) {
	a, b := Pipe()
	const size = 3 * maxBuffered
	var writers sync.WaitGroup
	for _, letter := range []string{"a", "b", "c"} {
		writers.Go(func() { mustWrite(t, a, string(bytes.Repeat([]byte(letter), size))) })
	}
	go func() {
		writers.Wait()
		a.CloseWrite()
	}()
	all, err := io.ReadAll(b)
	if err != nil || len(all) != 3*size {
		t.Fatalf("read %d bytes, %v", len(all), err)
	}
	for i := 0; i < len(all); i += size {
		if !bytes.Equal(all[i:i+size], bytes.Repeat(all[i:i+1], size)) {
			t.Fatalf("the bytes of writer %q are mixed with another's", all[i])
		}
	}
}

// Every blocked call returns, whenever a connection is closed.
func TestConnConcurrentClose(t *testing.T) {
	for range 500 {
		a, b := Pipe()
		var calls sync.WaitGroup
		for _, c := range []*Conn{a, b} {
			calls.Go(func() { io.Copy(io.Discard, c) })
			calls.Go(func() {
				for {
					if _, err := c.Write(make([]byte, 9000)); err != nil {
						return
					}
				}
			})
			calls.Go(func() {
				for d := time.Hour; c.SetDeadline(time.Now().Add(d)) == nil; d++ {
				}
			})
			calls.Go(func() { c.Close() })
		}
		calls.Go(func() { a.Reset() })
		calls.Wait()
	}
}

func BenchmarkConnPingPong(b *testing.B) {
	client, server := Pipe()
	defer client.Close()
	go io.Copy(server, server)
	buf := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		client.Write(buf)
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConnThroughput(b *testing.B) {
	client, server := Pipe()
	defer client.Close()
	go io.Copy(io.Discard, server)
	buf := make([]byte, 16<<10)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		client.Write(buf)
	}
}

func BenchmarkConnSetDeadline(b *testing.B) {
	c, _ := Pipe()
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		c.SetReadDeadline(time.Now().Add(time.Minute))
	}
}
