//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/soak/kit"
)

// orders are the instructions for a process of the trial at its start.
type orders struct {
	Clients  bool   // the process runs the clients; if false, it runs the server
	Address  string // in its network namespace
	Path     path   // of the link to the namespace, if there is one
	Blocking bool
	Listen   bool // the server uses net.Listen, and all loops share the socket
	Seed     uint64
	Timeouts time.Duration // all time-outs of the server; 0 for the defaults
}

// addresses are the addresses at which a server listens.
type addresses struct{ Plain, TLS string }

// state describes the server's resources and its log.
type state struct {
	Footprint kit.Footprint
	Conns     int
	Handlers  int64
	Log       map[string]int
	Err       string // the command's
}

// server is the server of a trial. It runs in a separate process.
type server struct {
	orders
	filo      *filo.Server
	pattern   kit.Pattern
	file      *os.File // contains the pattern
	listeners [2]net.Listener
	served    chan error
	running   atomic.Int64

	mu  sync.Mutex
	log map[string]int // the number of records, by their text; guarded by mu
}

// Write implements io.Writer for the logger. It counts the records in memory, because writes to a file may fail during a trial.
func (s *server) Write(record []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r struct{ Msg, Error string }
	if err := json.Unmarshal(record, &r); err != nil {
		return 0, err
	}
	said := r.Msg
	if r.Error != "" {
		said += ": " + withoutAddress(r.Error)
	}
	if len(s.log) < 100 {
		s.log[said]++
	}
	return len(record), nil
}

var address = regexp.MustCompile(`[0-9.]+:[0-9]+(->[0-9.]+:[0-9]+)?`)

// withoutAddress removes addresses, so that records about different addresses are equal.
func withoutAddress(text string) string { return address.ReplaceAllString(text, "ADDRESS") }

// serveTrial executes the commands on its standard input until the input ends. So this process ends when its parent ends.
func serveTrial(o orders, in *bufio.Reader, out *json.Encoder) error {
	s := &server{orders: o, pattern: kit.NewPattern(o.Seed), log: map[string]int{}, served: make(chan error, 2)}
	if err := s.prepare(); err != nil {
		return err
	}
	defer s.file.Close()
	for {
		command, err := in.ReadString('\n')
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			continue // the trial has made this read fail
		}
		var answer any
		switch verb, rest, _ := strings.Cut(strings.TrimSpace(command), " "); verb {
		case "serve":
			answer = s.serve()
		case "report":
			answer = s.report(nil)
		case "end":
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			err := s.filo.Shutdown(ctx)
			cancel()
			for range s.listeners {
				if err == nil {
					if served := <-s.served; !errors.Is(served, filo.ErrServerClosed) {
						err = served
					}
				}
			}
			answer = s.report(err)
		case "fail":
			var r rule
			err := json.Unmarshal([]byte(rest), &r)
			if err == nil {
				err = r.obey()
			}
			answer = s.report(err)
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// prepare creates the server with its listeners and file. It also opens a connection, since the runtime opens some descriptors of its own
// with a program's first connection.
func (s *server) prepare() error {
	certificate, err := kit.NewCertificate()
	if err != nil {
		return err
	}
	s.filo = &filo.Server{
		Handler: s.handle, MaxBodyBytes: kit.LargeBody, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		HTTP2:             filo.HTTP2Options{Unencrypted: true},
		ReadHeaderTimeout: s.Timeouts, ReadTimeout: s.Timeouts, WriteTimeout: s.Timeouts, IdleTimeout: s.Timeouts,
		MaxIdleWorkerDuration: time.Second, LogAllErrors: true,
		Logger: slog.New(slog.NewJSONHandler(s, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if s.Blocking {
		s.filo.Driver = filo.DriverBlocking
	}
	if s.file, err = os.CreateTemp("", "trial"); err != nil {
		return err
	}
	if err := os.Remove(s.file.Name()); err != nil {
		return err
	}
	if _, err := s.file.Write(s.pattern); err != nil {
		return err
	}
	for i := range s.listeners {
		listen := s.filo.Listen
		if s.Listen {
			listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
		}
		if s.listeners[i], err = listen(net.JoinHostPort(s.Address, "0")); err != nil {
			return err
		}
	}
	return nil
}

// serve starts to serve. It returns the addresses, or a state with an error.
func (s *server) serve() any {
	result := addresses{s.listeners[0].Addr().String(), s.listeners[1].Addr().String()}
	go func() { s.served <- s.filo.Serve(s.listeners[0]) }()
	go func() { s.served <- s.filo.ServeTLS(s.listeners[1], "", "") }()
	for i, address := range []string{result.Plain, result.TLS} {
		if err := hello(address, i == 1); err != nil {
			select {
			case err = <-s.served:
			case <-time.After(time.Second): // Serve hasn't returned, although it doesn't serve
			}
			return s.report(err)
		}
	}
	return result
}

// hello makes a request, and accepts any answer.
func hello(address string, overTLS bool) error {
	netConn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer netConn.Close()
	netConn.SetDeadline(time.Now().Add(time.Minute))
	if overTLS {
		netConn = tls.Client(netConn, &tls.Config{InsecureSkipVerify: true})
	}
	fmt.Fprint(netConn, "HEAD /content?number=0&size=1 HTTP/1.1\r\nHost: trial.test\r\nConnection: close\r\n\r\n")
	_, err = netConn.Read(make([]byte, 1))
	return err
}

func (s *server) report(err error) state {
	footprint, measureErr := kit.Measure()
	s.mu.Lock()
	defer s.mu.Unlock()
	result := state{Footprint: footprint, Conns: s.filo.Stats().ConnsOpen, Handlers: s.running.Load(), Log: maps.Clone(s.log)}
	if err = errors.Join(err, measureErr); err != nil {
		result.Err = err.Error()
	}
	return result
}

// handle answers with a part of the pattern, with the request's body, or with the body's hash.
func (s *server) handle(c *filo.Ctx) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	number, numberErr := c.Request.Query().Int("number")
	size, sizeErr := c.Request.Query().Int("size")
	if numberErr != nil || sizeErr != nil || size < 0 || size > kit.LargeBody {
		return filo.Error(400, "the number or the size")
	}
	c.Response.Header.Set("Number", strconv.Itoa(number))
	content := s.pattern.Cut(uint64(number), size)
	switch c.Path() {
	case "/content":
		return c.Bytes(200, "application/octet-stream", content)
	case "/lent":
		return c.BytesNoCopy(200, "application/octet-stream", content)
	case "/file":
		part := io.NewSectionReader(s.file, int64(s.pattern.At(uint64(number), size)), int64(size))
		return c.Reader(200, "application/octet-stream", part, int64(size))
	case "/echo":
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "application/octet-stream", body)
	case "/hash":
		hash := sha256.New()
		if _, err := io.Copy(hash, c.BodyReader()); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprintf("%x", hash.Sum(nil)))
	case "/stream":
		w := c.Stream()
		for i, piece := 0, 1+size/7; len(content) > 0; i++ {
			n := min(piece, len(content))
			if _, err := w.Write(content[:n]); err != nil {
				return err
			}
			if content = content[n:]; i%2 == 0 {
				if err := w.Flush(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return filo.Error(404, "no such page")
}
