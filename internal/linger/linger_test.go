package linger

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stubConn is a connection that reports the calls of its methods.
type stubConn struct {
	net.Conn
	write      func()
	closeWrite func() error
}

func (c *stubConn) Write(p []byte) (int, error) {
	if c.write != nil {
		c.write()
	}
	return c.Conn.Write(p)
}

func (c *stubConn) CloseWrite() error { return c.closeWrite() }

// socketPair returns the two ends of a TCP connection.
func socketPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// A reset could destroy the answer before the client has read it. So a client that continues to send gets the answer, and then the end of the stream.
// The connection ends when the client has closed its side.
func TestAnswerArrives(t *testing.T) {
	client, server := socketPair(t)
	sent := bytes.Repeat([]byte("x"), 3<<20)
	if _, err := client.Write(sent[:10]); err != nil {
		t.Fatal(err)
	}
	var g Group
	if !g.TakeOver(server, []byte("the answer")) {
		t.Fatal("nothing lingers")
	}
	if _, err := client.Write(sent); err != nil {
		t.Errorf("the client can't go on sending: %v", err)
	}
	if answer, err := io.ReadAll(client); string(answer) != "the answer" || err != nil {
		t.Errorf("got %q, %v", answer, err)
	}
	client.Close()
	g.running.Wait()
	if _, err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// A refusal waits for the first byte of a request: a client treats an earlier answer as an error, and fails the request that it is about to send. A
// client that sends nothing gets no answer, only the end of the connection.
func TestRefusalAwaitsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, request := range []string{"", "G"} {
			client, server := net.Pipe()
			var g Group
			if !g.Refuse(server, []byte("the answer"), nil) {
				t.Fatal("nothing lingers")
			}
			client.SetReadDeadline(time.Now().Add(Longest / 2))
			if n, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("before a request: %d bytes, %v", n, err)
			}
			client.SetReadDeadline(time.Time{})
			want := ""
			if request != "" {
				want = "the answer"
				client.Write([]byte(request))
			}
			if answer, err := io.ReadAll(client); string(answer) != want || err != nil {
				t.Errorf("after %q: %q, %v; want %q", request, answer, err, want)
			}
			client.Close()
			g.running.Wait()
		}
	})
}

// A connection lingers for at most Longest, or for at most longestSending while its client continues to send.
func TestLongest(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration // between two bytes of the client's; 0: it sends none
		most  time.Duration
	}{"silent": {0, Longest}, "sending": {Longest / 2, longestSending}, "sending seldom": {2 * Longest, Longest}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer client.Close()
				var g Group
				start := time.Now()
				if !g.TakeOver(&stubConn{Conn: server, closeWrite: func() error { return nil }}, nil) {
					t.Fatal("nothing lingers")
				}
				var sender sync.WaitGroup
				if test.pause > 0 {
					sender.Go(func() {
						for {
							time.Sleep(test.pause)
							if _, err := client.Write([]byte("x")); err != nil {
								return
							}
						}
					})
				}
				g.running.Wait()
				if took := time.Since(start); took != test.most {
					t.Errorf("it lingered for %v", took)
				}
				sender.Wait()
			})
		})
	}
}

// Wait returns when the last connection has ended, after Longest even if a client continues to send, or when its context ends. From then on TakeOver
// refuses connections.
func TestWait(t *testing.T) {
	for name, patience := range map[string]time.Duration{"patient": time.Hour, "impatient": Longest / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group
				client, server := net.Pipe()
				defer client.Close()
				if !g.TakeOver(server, []byte("nobody reads this")) {
					t.Fatal("nothing lingers")
				}
				sending, receiving := net.Pipe()
				if !g.TakeOver(&stubConn{Conn: receiving, closeWrite: func() error { return nil }}, nil) {
					t.Fatal("nothing lingers")
				}
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					for {
						if _, err := sending.Write([]byte("x")); err != nil {
							return
						}
						time.Sleep(Longest / 10)
					}
				})
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				g.Wait(ctx)
				if took := time.Since(start); took != min(Longest, patience) {
					t.Errorf("it waited for %v", took)
				}
				if g.TakeOver(server, nil) {
					t.Error("a connection lingers after the end")
				}
			})
		})
	}
}

// A connection whose type isn't comparable lingers like any other.
func TestIncomparable(t *testing.T) {
	_, server := net.Pipe()
	var g Group
	if !g.TakeOver(incomparableConn{server, nil}, []byte("nobody reads this")) {
		t.Fatal("nothing lingers")
	}
	g.Close()
}

type incomparableConn struct {
	net.Conn
	_ []byte
}

// Close ends lingering connections at once, including those that have just begun to linger or are about to.
func TestCloseWhileLingeringBegins(t *testing.T) {
	for name, hasBegun := range map[string]bool{"about to begin": false, "has just begun": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer client.Close()
				var g Group
				begun := make(chan struct{})
				stub := &stubConn{Conn: server, write: func() { close(begun) }}
				go client.Write([]byte("x"))
				if !g.TakeOver(stub, []byte("nobody reads this")) {
					t.Fatal("nothing lingers")
				}
				if hasBegun {
					<-begun
				}
				start := time.Now()
				g.Close()
				if took := time.Since(start); took > 0 {
					t.Errorf("close waited %v for the lingering to end by itself", took)
				}
			})
		})
	}
}

// At most maxConns connections linger at once, and at most maxHandshakes of them need a TLS handshake. Further connections are left to the caller.
// When lingering connections end, there is room for others.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		var clients []net.Conn
		linger := func(secure bool) bool {
			client, server := net.Pipe()
			clients = append(clients, client)
			if secure {
				server = tls.Server(server, &tls.Config{})
			}
			if g.TakeOver(server, []byte("nobody reads this")) {
				return true
			}
			return server.Close() != nil // TakeOver left it open
		}
		for round := range 2 {
			for i := range maxHandshakes {
				if !linger(true) {
					t.Fatalf("round %d: TLS connection %d doesn't linger", round, i)
				}
			}
			if linger(true) {
				t.Errorf("round %d: too many TLS connections linger", round)
			}
			for i := range maxConns - maxHandshakes {
				if !linger(false) {
					t.Fatalf("round %d: connection %d doesn't linger", round, i)
				}
			}
			if linger(false) {
				t.Errorf("round %d: too many connections linger", round)
			}
			time.Sleep(Longest)
			synctest.Wait()
		}
		g.Close()
		if linger(false) {
			t.Error("a connection lingers after the end")
		}
		for _, client := range clients {
			if n, err := client.Read(make([]byte, 1)); n > 0 || err != io.EOF {
				t.Fatalf("a connection is still open: %v", err)
			}
		}
	})
}

// Clients that continue to send don't keep other connections from lingering: when maxConns connections linger, a further one replaces the one that
// has lingered for the longest, if that has lingered for a second.
func TestOldestGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		ended := make([]chan struct{}, maxConns)
		for i := range ended {
			client, server := net.Pipe()
			ended[i] = make(chan struct{})
			if !g.TakeOver(&stubConn{Conn: server, closeWrite: func() error { return nil }}, nil) {
				t.Fatalf("connection %d doesn't linger", i)
			}
			go func() {
				defer close(ended[i])
				for {
					if _, err := client.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(Longest / 2)
				}
			}()
		}
		honest := func() bool {
			client, server := net.Pipe()
			go func() {
				io.Copy(io.Discard, client)
				client.Close()
			}()
			if g.TakeOver(server, []byte("the answer")) {
				return true
			}
			return server.Close() != nil // TakeOver left it open
		}
		if honest() {
			t.Error("a connection gives way before it has had its second")
		}
		for range 3 {
			time.Sleep(Longest)
			if !honest() {
				t.Error("no connection gives way")
			}
			synctest.Wait()
		}
		for i, over := range ended {
			select {
			case <-over:
				if i > 2 {
					t.Errorf("connection %d gave way", i)
				}
			default:
				if i == 0 {
					t.Error("the oldest connection didn't give way")
				}
			}
		}
		g.Close()
		for _, over := range ended {
			<-over
		}
	})
}

// A connection without deadlines is closed when its time to linger has passed.
func TestWithoutDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		var g Group
		start := time.Now()
		if !g.TakeOver(timelessConn{&stubConn{Conn: server, closeWrite: func() error { return nil }}}, nil) {
			t.Fatal("nothing lingers")
		}
		g.running.Wait()
		if took := time.Since(start); took != Longest {
			t.Errorf("it lingered for %v", took)
		}
	})
}

// timelessConn is a connection without deadlines.
type timelessConn struct{ *stubConn }

func (timelessConn) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetLimit lowers the number of connections that linger. EndOldest makes room for the descriptors of others.
func TestSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		g.SetLimit(2)
		var peers []net.Conn
		for i := range 3 {
			client, server := net.Pipe()
			peers = append(peers, client)
			if lingers := g.TakeOver(&stubConn{Conn: server, closeWrite: func() error { return nil }}, nil); lingers != (i < 2) {
				t.Errorf("connection %d of 2 lingers: %v", i, lingers)
			}
		}
		synctest.Wait()
		if !g.EndOldest() {
			t.Error("nothing lingers")
		}
		synctest.Wait()
		for i, peer := range peers[:2] {
			peer.SetWriteDeadline(time.Now().Add(Longest / 2))
			if _, err := peer.Write([]byte("x")); (err == nil) != (i == 1) {
				t.Errorf("connection %d: %v", i, err)
			}
		}
		g.Close()
		if g.EndOldest() {
			t.Error("a connection lingers after the end")
		}
	})
}
