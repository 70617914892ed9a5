package answerconn

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
)

// testTransport is an answer whose client reads nothing, so that a write lasts until its deadline.
type testTransport struct {
	hooks.Transport
	ctx  context.Context
	over chan struct{}
}

func (t *testTransport) Context() context.Context        { return t.ctx }
func (t *testTransport) SetReadDeadline(time.Time) error { return nil }
func (t *testTransport) SetWriteDeadline(until time.Time) error {
	if until.Equal(clock.Past) {
		close(t.over)
	}
	return nil
}

func (t *testTransport) Write([]byte) (int, error) {
	<-t.over
	return 0, os.ErrDeadlineExceeded
}

func newConn() (c *Conn, leave context.CancelFunc) {
	ctx, leave := context.WithCancel(context.Background())
	return New(&testTransport{ctx: ctx, over: make(chan struct{})}), leave
}

// A read ends when the client leaves, when the connection is closed, and at its deadline, which may change during the read.
func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			end  func(c *Conn, leave func())
			want error
		}{
			"the client leaves":   {func(c *Conn, leave func()) { leave() }, io.EOF},
			"a deadline":          {func(c *Conn, leave func()) { c.SetReadDeadline(time.Now().Add(time.Second)) }, os.ErrDeadlineExceeded},
			"a deadline that was": {func(c *Conn, leave func()) { c.SetReadDeadline(clock.Past) }, os.ErrDeadlineExceeded},
			"Close":               {func(c *Conn, leave func()) { c.Close() }, net.ErrClosed},
		} {
			c, leave := newConn()
			c.SetReadDeadline(time.Now().Add(time.Hour))
			ended := make(chan error, 1)
			go func() {
				_, err := c.Read(nil)
				ended <- err
			}()
			synctest.Wait()
			test.end(c, leave)
			if err := <-ended; !errors.Is(err, test.want) {
				t.Errorf("%s: %v", name, err)
			}
			leave()
		}
	})
}

// Close ends a write that waits, and Leave returns only when no write is in progress.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leave := newConn()
		defer leave()
		written := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("x"))
			written <- err
		}()
		synctest.Wait()
		c.Leave()
		if err := <-written; err != net.ErrClosed {
			t.Errorf("the write's error is %v", err)
		}
		if _, err := c.Write(nil); err != net.ErrClosed {
			t.Errorf("afterwards: %v", err)
		}
		if err := c.SetWriteDeadline(time.Time{}); err != net.ErrClosed {
			t.Errorf("the transport's deadline can be set afterwards: %v", err)
		}
	})
}
