package http3filo

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
)

// Without a GracePeriod, a shutdown waits for connections without a limit, until the server is closed.
func TestAwait(t *testing.T) {
	for _, test := range []struct {
		grace   time.Duration
		closeAt time.Duration
		want    time.Duration
	}{
		{grace: time.Minute, closeAt: time.Hour, want: time.Minute + leaveMost},
		{grace: -1, closeAt: time.Hour, want: time.Hour + leaveMost},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newListener(&filo.Server{GracePeriod: test.grace})
			closing := time.AfterFunc(test.closeAt, func() { l.server.Close() })
			start := time.Now()
			if l.await(make(chan struct{})) {
				t.Error("await reports that there is no connection")
			}
			if took := time.Since(start); took != test.want {
				t.Errorf("GracePeriod %v: await returned after %v, want %v", test.grace, took, test.want)
			}
			if closing.Stop() {
				l.server.Close()
			}
		})
	}
}

// idleConn returns a connection that has entered the listener and is idle.
func idleConn(t *testing.T, l *listener, client string) *conn {
	c := &conn{listener: l, client: netip.MustParseAddr(client), idle: time.Now()}
	if err := l.enter(c); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.establishedLocked(c)
	return c
}

// A client that has all connections that it may have is refused without closing another client's connection.
func TestRefusedClientDisplacesNobody(t *testing.T) {
	l := newListener(&filo.Server{MaxConns: 2, MaxConnsPerIP: 1})
	defer l.server.Close()
	a, b := idleConn(t, l, "192.0.2.1"), idleConn(t, l, "192.0.2.2")
	if l.enter(&conn{listener: l, client: a.client}) == nil {
		t.Error("a second connection was accepted")
	}
	if a.ends || b.ends {
		t.Error("a connection is being closed")
	}
}

// A connection that is being closed to make room takes no request, and can't be chosen again.
func TestClosingConnTakesNoRequest(t *testing.T) {
	l := newListener(&filo.Server{})
	defer l.server.Close()
	c := idleConn(t, l, "192.0.2.1")
	if _, idle := c.idleSince(); !idle {
		t.Error("a new connection isn't idle")
	}
	c.timer, c.ends = time.NewTimer(forever), true
	if _, idle := c.idleSince(); idle || c.begin() {
		t.Errorf("the connection that ends is idle: %v, or has begun a request", idle)
	}
}
