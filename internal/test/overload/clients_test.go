package overload

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// With both drivers and both protocols, Clients reports the client's open connection, its requests and its bytes. After the connection has
// ended, Clients still reports the number of ended connections and of requests.
func TestClients(t *testing.T) {
	// Linux counts the bytes. An emulator of another processor doesn't support TCP_INFO. The test detects an emulator by trying to start this
	// program directly, which fails there.
	emulated := errors.Is(exec.Command(os.Args[0], "-test.run=^$").Run(), syscall.ENOEXEC)
	told := runtime.GOOS == "linux" && !emulated
	for _, test := range runningCases()[:4] {
		t.Run(test.name, func(t *testing.T) {
			s, url, client := test.serve(t, &filo.Server{
				Handler: func(c *filo.Ctx) error { return c.Bytes(200, "text/plain", bytes.Repeat([]byte("a"), 1000)) },
				Logger:  slog.New(slog.DiscardHandler),
			})
			for range 5 {
				response, err := client.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			first := func() (c filo.Client) {
				if clients := s.Clients(); len(clients) > 0 {
					c = clients[0]
				}
				return c
			}
			filotest.Await(t, "an open connection", func() bool {
				c := first()
				return c.Address.IsLoopback() && c.Conns == 1 && c.Requests == 5 && (!told || c.BytesReceived > 0 && c.BytesSent >= 5000)
			})
			client.CloseIdleConnections()
			filotest.Await(t, "an ended connection", func() bool {
				c := first()
				return c.Conns == 0 && c.ConnsEnded == 1 && c.Requests == 5 && c.BytesSent == 0
			})
		})
	}
}

// Clients counts connections and requests that a limit has refused.
func TestClientRefusals(t *testing.T) {
	t.Parallel()
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		config := &filo.Server{
			Handler: func(c *filo.Ctx) error { return c.NoContent() }, Driver: driver, MaxConnsPerIP: 1, Logger: slog.New(slog.DiscardHandler),
		}
		s := filotest.Serve(t, config)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		response, err := (&http.Client{Transport: transport}).Get("http://" + s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		for range 3 {
			c, err := net.Dial("tcp", s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, c)
			c.Close()
		}
		if clients := config.Clients(); len(clients) != 1 || clients[0].Refusals != 3 || clients[0].Conns != 1 || clients[0].ConnsEnded != 0 {
			t.Errorf("%v: %+v", driver, clients)
		}
	}
}
