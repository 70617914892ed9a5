package servertest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestListenerConnects(t *testing.T) {
	ln := NewListener()
	defer ln.Close()
	client, err := ln.Dial()
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, client.(*Conn), "hello")
	wantRead(t, server.(*Conn), "hello", nil)
	if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
		t.Errorf("server sees the client at %s, which is at %s", got, want)
	}
	if got, want := server.LocalAddr(), ln.Addr(); got != want {
		t.Errorf("server is at %s, its listener at %s", got, want)
	}
}

func TestListenerClientsHaveTheirAddresses(t *testing.T) {
	ln := NewListener()
	defer ln.Close()
	first, _ := ln.Dial()
	second, _ := ln.Dial()
	if first.LocalAddr() == second.LocalAddr() {
		t.Errorf("two clients at %v", first.LocalAddr())
	}
	from := &net.TCPAddr{IP: net.IPv6loopback, Port: 7}
	if _, err := ln.DialFrom(from); err != nil {
		t.Fatal(err)
	}
	ln.Accept()
	ln.Accept()
	third, err := ln.Accept()
	if err != nil || third.RemoteAddr() != from {
		t.Errorf("client at %v, %v, want %v", third.RemoteAddr(), err, from)
	}
}

func TestListenerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := NewListener()
		accepted := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := ln.Accept()
				accepted <- err
			}()
		}
		synctest.Wait()
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		wantIs(t, <-accepted, net.ErrClosed)
		wantIs(t, <-accepted, net.ErrClosed)
		_, err := ln.Accept()
		wantIs(t, err, net.ErrClosed)
		_, err = ln.Dial()
		wantIs(t, err, syscall.ECONNREFUSED)
		wantIs(t, ln.Close(), net.ErrClosed)
	})
}

// Close resets the connections that were not yet accepted, since no server will ever serve them.
func TestListenerCloseResetsTheQueue(t *testing.T) {
	ln := NewListener()
	client, err := ln.Dial()
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	wantRead(t, client.(*Conn), "", syscall.ECONNRESET)
}

func TestListenerCloseAmongDials(t *testing.T) {
	for range 200 {
		ln := NewListener()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				c, err := ln.Dial()
				if err != nil {
					return
				}
				// The copy ends when a queued connection is reset, or an accepted one is closed.
				io.Copy(io.Discard, c)
			})
		}
		all.Go(func() {
			for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
				c.Close()
			}
		})
		ln.Close()
		all.Wait()
	}
}

func TestListenerDialWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := NewListener()
		for range backlog {
			if _, err := ln.Dial(); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ln.DialContext(ctx, "tcp", "anything:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("dial past the backlog: %v, want the context's error", err)
		}
		dialed := make(chan error, 1)
		go func() {
			_, err := ln.Dial()
			dialed <- err
		}()
		synctest.Wait()
		ln.Accept()
		if err := <-dialed; err != nil {
			t.Fatal(err)
		}
		ln.Close()
	})
}
