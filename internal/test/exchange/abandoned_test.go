package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// abandonedErrors maps a path to the error that its handler returns after its client has disconnected. servers says that the error is the
// server's fault.
var abandonedErrors = map[string]struct {
	fail    func(ctx context.Context) error
	servers bool
}{
	"/err":     {func(ctx context.Context) error { return fmt.Errorf("asking the database: %w", ctx.Err()) }, false},
	"/cause":   {func(ctx context.Context) error { return context.Cause(ctx) }, false},
	"/another": {func(ctx context.Context) error { return errors.New("out of order") }, true},
	"/500":     {func(ctx context.Context) error { return filo.Error(500, "out of order") }, true},
}

// If a client disconnects before the server has sent anything, no answer is sent or counted, and the access log has no status for the
// request. The handler's error is logged unless the disconnection has caused it.
func TestClientLeaves(t *testing.T) {
	for _, logged := range []bool{true, false} {
		for path, test := range abandonedErrors {
			run := func(t *testing.T, ask func(t *testing.T, config *filo.Server, asked <-chan struct{}) *filotest.Server) {
				var log filotest.Log
				asked, ended := make(chan struct{}), make(chan error, 1)
				h := filo.Handler(func(c *filo.Ctx) error {
					ctx := c.Context()
					ctx.Done()
					close(asked)
					<-ctx.Done()
					return test.fail(ctx)
				})
				if logged {
					h = middleware.AccessLog()(h)
				}
				s := ask(t, &filo.Server{Logger: slog.New(slog.NewTextHandler(&log, nil)), Handler: func(c *filo.Ctx) error {
					err := h(c)
					ended <- err
					return err
				}}, asked)
				err := filotest.Recv(t, ended, "the handler's end")
				if err := s.ShutdownInTime(); err != nil {
					t.Error(err)
				}
				text := log.String()
				if logged && (!errors.Is(err, filo.ErrAbort) || errors.Is(err, filo.ErrClientGone) == test.servers || !strings.Contains(text, "path="+path+" status=0 ")) {
					t.Errorf("%s: %v, logged: %s", path, err, text)
				}
				if failed := strings.Count(text, `msg="handler failed"`); failed != map[bool]int{true: 1}[test.servers] || test.servers && !strings.Contains(text, `out of order" status=0 `) {
					t.Errorf("%s: %d errors logged: %s", path, failed, text)
				}
				if stats := s.Stats(); stats.Requests != [6]uint64{} {
					t.Errorf("%s: answers by class: %v", path, stats.Requests)
				}
			}
			t.Run(fmt.Sprintf("HTTP1.1%s/%t", path, logged), func(t *testing.T) {
				filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
					run(t, func(t *testing.T, config *filo.Server, asked <-chan struct{}) *filotest.Server {
						s, c := serve(config)
						c.Get(path)
						filotest.Recv(t, asked, "the request")
						resetConn(c.Conn)
						return s
					})
				})
			})
			t.Run(fmt.Sprintf("HTTP2%s/%t", path, logged), func(t *testing.T) {
				filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
					run(t, func(t *testing.T, config *filo.Server, asked <-chan struct{}) *filotest.Server {
						s, c := serve(config)
						ctx, leave := context.WithCancel(t.Context())
						go c.Fetch(ctx, "GET", path, nil)
						filotest.Recv(t, asked, "the request")
						leave()
						return s
					})
				})
			})
		}
	}
}

// resetConn ends a connection with a TCP reset. After a half-close, the server would assume that the client may still wait for its answer.
func resetConn(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	switch c := conn.(type) {
	case *servertest.Conn:
		c.Reset()
	case *net.TCPConn:
		c.SetLinger(0)
		c.Close()
	}
}
