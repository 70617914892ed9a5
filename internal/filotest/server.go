// Package filotest is the harness of the server's own tests: servers that are checked for leaks, HTTP/1.1 and HTTP/2 clients that check the
// server's answers against the protocol's rules, and functions that wait. The tests in internal/test use it, and so do the tests in package
// filo_test. Tests in package filo can't use it, since filotest imports filo.
package filotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// DriverVariable is the environment variable that chooses the driver.
const DriverVariable = "FILO_DRIVER"

// label is the pprof label that marks the goroutines of a server under test. A goroutine inherits its labels from the goroutine that starts it.
const label = "filo.life"

var labels atomic.Int64

// Server is a server that a test has started, with the results of its Serve calls.
type Server struct {
	*filo.Server
	Addr   string
	label  string
	Served chan error
}

// Serve serves on the listeners, or on a loopback socket if there are none. At the end of the test, it closes the server, and checks that
// each Serve call has returned ErrServerClosed and no goroutine is left.
func Serve(t testing.TB, config *filo.Server, listeners ...net.Listener) *Server {
	t.Helper()
	if len(listeners) == 0 {
		listeners = append(listeners, Listen(t, "tcp", "127.0.0.1:0"))
	}
	s := New(config, len(listeners))
	s.Addr = listeners[0].Addr().String()
	for _, listener := range listeners {
		s.Go(func() { s.Served <- config.Serve(listener) })
	}
	s.CloseAtEnd(t, len(listeners))
	return s
}

// New returns a server under test. The caller then makes the given number of calls to Serve or its variants, and sends their results to Served.
func New(config *filo.Server, calls int) *Server {
	if config.Logger == nil {
		config.Logger = Quiet
	}
	return &Server{
		Server: config,
		label:  fmt.Sprint(labels.Add(1)),
		Served: make(chan error, calls),
	}
}

// CloseAtEnd closes the server at the end of the test. Each call to Serve must have returned ErrServerClosed, no goroutine may be left, and
// the server's internal counts must be zero.
func (s *Server) CloseAtEnd(t testing.TB, calls int) {
	t.Cleanup(func() {
		s.Close()
		for range calls {
			s.WantServed(t, filo.ErrServerClosed)
		}
		s.WantNoGoroutine(t)
		var left string
		if !Try(func() bool { left = inside.Leftover(s.Server); return left == "" }) {
			t.Errorf("these are counted:\n%s", left)
		}
	})
}

// Blocking reports whether a server whose Driver is DriverAuto serves sockets with the blocking driver. The environment variable FILO_DRIVER
// chooses the driver of a test run.
func Blocking() bool {
	return runtime.GOOS != "linux" || os.Getenv(DriverVariable) == filo.DriverBlocking.String()
}

// WorkersOf returns how many workers are occupied by this number of idle connections.
func WorkersOf(idleConns int) int {
	if Blocking() {
		return idleConns
	}
	return 0
}

// Go calls f on a goroutine that counts as one of the server's.
func (s *Server) Go(f func()) {
	go pprof.Do(context.Background(), pprof.Labels(label, s.label), func(context.Context) { f() })
}

// WantServed checks the result of one call to Serve. It puts the result back into Served for the check at the end of the test.
func (s *Server) WantServed(t testing.TB, want error) {
	t.Helper()
	select {
	case err := <-s.Served:
		if !errors.Is(err, want) {
			t.Errorf("Serve returned %v, want %v", err, want)
		}
		s.Served <- err
	case <-time.After(Bound):
		t.Error("Serve didn't return")
	}
}

// WantNoGoroutine waits until no goroutine of the server is left.
func (s *Server) WantNoGoroutine(t testing.TB) {
	t.Helper()
	var left string
	if !Try(func() bool { left = s.Goroutines(); return left == "" }) {
		t.Errorf("goroutines are left:\n%s", left)
	}
}

// Goroutines returns the stacks of the server's goroutines.
func (s *Server) Goroutines() string {
	var profile bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&profile, 1)
	label := fmt.Sprintf("%q:%q", label, s.label)
	var left strings.Builder
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, label) {
			left.WriteString(stack + "\n\n")
		}
	}
	return left.String()
}

// ShutdownInTime shuts the server down, and fails after Bound.
func (s *Server) ShutdownInTime() error {
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	return s.Shutdown(ctx)
}

// BeginShutdown starts a shutdown on another goroutine, and waits for begun. It returns the channel that will receive the result.
func (s *Server) BeginShutdown(t testing.TB, begun <-chan struct{}) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- s.ShutdownInTime() }()
	Recv(t, begun, "the shutdown to begin")
	return result
}

// Listen opens a listener.
func Listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// freeAddresses numbers the addresses that FreeAddress returns.
var freeAddresses atomic.Int32

// FreeAddress returns a TCP address on which nobody listens, for a program that will listen there. On Linux, where all of 127.0.0.0/8 belongs
// to the loopback device, each call returns another IP address. So the system gives the port to no other program in the meantime.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ip := "127.0.0.1"
	if pid := os.Getpid(); runtime.GOOS == "linux" {
		ip = fmt.Sprintf("127.%d.%d.%d", 100+pid>>8&0x7f, pid&0xff, 1+freeAddresses.Add(1)%250)
	}
	listener := Listen(t, "tcp", ip+":0")
	defer listener.Close()
	return listener.Addr().String()
}

// Dial connects to the server's first listener.
func (s *Server) Dial(t testing.TB) *Client {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return NewClient(t, conn)
}

// Listening calls serve with a free address, and returns the address as soon as serve listens there. If another process takes the address
// first, Listening tries again.
func Listening(t testing.TB, serve func(address string) error) string {
	t.Helper()
	for range 10 {
		address := FreeAddress(t)
		failed := make(chan error, 1)
		go func() { failed <- serve(address) }()
		var ended error
		Await(t, "the server to listen", func() bool {
			select {
			case ended = <-failed:
				return true
			default:
			}
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		if ended == nil {
			return address
		}
		if !errors.Is(ended, syscall.EADDRINUSE) {
			t.Fatalf("serving on %s: %v", address, ended)
		}
	}
	t.Fatal("no address is free")
	return ""
}

// NeedLoops skips the test if the blocking driver is under test, because the test needs the loop driver.
func NeedLoops(t testing.TB) {
	t.Helper()
	if Blocking() {
		t.Skip("the blocking driver is under test")
	}
}

// ClassOf returns the server's statistics for the class with this name.
func ClassOf(s *filo.Server, name string) filo.ClassStats {
	for _, class := range s.Stats().Classes {
		if class.Name == name {
			return class
		}
	}
	return filo.ClassStats{}
}

// HeapInUse returns the bytes of heap objects and stacks after a garbage collection.
func HeapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}
