package loop

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// FILO_DRIVER overrides Server.Driver in both directions, and the server then logs this. If the variable is empty, the program's choice applies.
func TestDriverVariable(t *testing.T) {
	for _, test := range []struct {
		value   string
		program filo.Driver
		want    filo.Driver // DriverAuto: any driver
		logged  bool
	}{
		{"", filo.DriverAuto, filo.DriverAuto, false},
		{"", filo.DriverBlocking, filo.DriverBlocking, false},
		{"", filo.DriverLoop, filo.DriverLoop, false},
		{"blocking", filo.DriverAuto, filo.DriverBlocking, true},
		{"blocking", filo.DriverBlocking, filo.DriverBlocking, false},
		{"blocking", filo.DriverLoop, filo.DriverBlocking, true},
		{"loop", filo.DriverAuto, filo.DriverLoop, false},
		{"loop", filo.DriverBlocking, filo.DriverLoop, true},
		{"loop", filo.DriverLoop, filo.DriverLoop, false},
	} {
		t.Run(test.value+" over "+test.program.String(), func(t *testing.T) {
			if test.want == filo.DriverLoop && (runtime.GOOS != "linux" || runtime.GOARCH == "386") {
				t.Skip("the loop driver is for Linux, but not on 386")
			}
			t.Setenv(filotest.DriverVariable, test.value)
			var log filotest.Log
			s := filotest.Serve(t, &filo.Server{Driver: test.program, Logger: log.Logger(),
				Handler: func(c *filo.Ctx) error { return c.Text(200, "served") }})
			// A connection that waits for its next request occupies a worker in the blocking driver, and none in the loop driver.
			c := s.Dial(t)
			c.Get("/")
			c.Want(200, "served", false)
			looped := test.want == filo.DriverLoop || test.want == filo.DriverAuto && runtime.GOOS == "linux"
			filotest.Await(t, "the driver to show", func() bool {
				stats := s.Stats()
				return looped == (stats.WorkersLeading > 0) && !looped == (stats.WorkersRunning == 1)
			})
			want := "driver=" + test.value + " program=" + test.program.String() + " address=" + s.Addr + "\n"
			lines := log.Lines("FILO_DRIVER overrides the server's driver")
			switch logged := test.logged && runtime.GOOS == "linux"; {
			case logged && (len(lines) != 1 || !strings.HasSuffix(lines[0], want)), !logged && len(lines) > 0:
				t.Errorf("logged %q", lines)
			}
		})
	}
}

// A server reads the variable once, when it starts to serve. A later change applies only to later servers.
func TestDriverVariableIsReadOnce(t *testing.T) {
	t.Setenv(filotest.DriverVariable, "blocking")
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "served") }})
	c := s.Dial(t)
	c.Get("/")
	c.Want(200, "served", false)
	t.Setenv(filotest.DriverVariable, "wrong")
	second := filotest.Listen(t, "tcp", "127.0.0.1:0")
	served := make(chan error, 1)
	s.Go(func() { served <- s.Serve(second) })
	conn, err := net.Dial("tcp", second.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c = filotest.NewClient(t, conn)
	c.Get("/")
	c.Want(200, "served", false)
	s.Close()
	if err := filotest.Recv(t, served, "Serve to return"); err != filo.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
}

// If the value isn't the name of a driver, the server doesn't serve, and the error lists the names.
func TestDriverVariableThatNamesNoDriver(t *testing.T) {
	t.Setenv(filotest.DriverVariable, "Blocking")
	const want = `filo: the environment variable FILO_DRIVER is "Blocking": set it to "loop" or "blocking", or unset it to leave the choice to the program`
	for name, serve := range map[string]func(*filo.Server, net.Listener) error{
		"Serve":       (*filo.Server).Serve,
		"RunListener": func(s *filo.Server, l net.Listener) error { return s.RunListener(context.Background(), l) },
		"ServeConn": func(s *filo.Server, l net.Listener) error {
			defer l.Close()
			client, conn := servertest.Pipe()
			defer client.Close()
			return s.ServeConn(conn)
		},
	} {
		listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
		s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.NoContent() }}
		if err := serve(s, listener); err == nil || err.Error() != want {
			t.Errorf("%s returned %v", name, err)
		}
		if c, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			c.Close()
			t.Errorf("%s left its listener open", name)
		}
		s.Close()
	}
}

// The loop driver serves only listeners that are system sockets. The error suggests a remedy, which depends on whether the program or the
// variable has chosen the driver.
func TestLoopDriverWithAnotherListener(t *testing.T) {
	for _, test := range []struct {
		value   string
		program filo.Driver
		remedy  string
	}{
		{"loop", filo.DriverAuto, "unset FILO_DRIVER"},
		{"", filo.DriverLoop, "DriverAuto serves it"},
	} {
		t.Setenv(filotest.DriverVariable, test.value)
		s := &filo.Server{Driver: test.program, Handler: func(c *filo.Ctx) error { return c.NoContent() }, Logger: slog.New(slog.DiscardHandler)}
		err := s.Serve(struct{ net.Listener }{filotest.Listen(t, "tcp", "127.0.0.1:0")})
		if err == nil || !strings.HasSuffix(err.Error(), " on "+runtime.GOOS+"/"+runtime.GOARCH+": "+test.remedy) {
			t.Errorf("with FILO_DRIVER=%s and %v Serve returned %v", test.value, test.program, err)
		}
		s.Close()
	}
}
