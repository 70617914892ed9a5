package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/abuse"
	"github.com/filohttp/filo/internal/tcptest"
)

// server is the server that the command starts as a target. Its time-outs are typical of a public service.
type server struct {
	addr, tlsAddr, kind string
	concurrency         int
}

// run serves until the process is killed.
func (s *server) run() error {
	config := tcptest.TLSConfig()
	failed := make(chan error, 2)
	switch s.kind {
	case "net/http":
		netHTTP := func(addr string) *http.Server {
			return &http.Server{
				Addr: addr, Handler: new(abuse.Site), Protocols: protocols(), TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0),
				ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 60 * time.Second,
			}
		}
		go func() { failed <- netHTTP(s.addr).ListenAndServe() }()
		if s.tlsAddr != "" {
			go func() { failed <- netHTTP(s.tlsAddr).ListenAndServeTLS("", "") }()
		}
	case "filo", "blocking":
		file, err := siteFile()
		if err != nil {
			return err
		}
		defer os.RemoveAll(filepath.Dir(file))
		f := &filo.Server{Handler: (&site{file: file}).serve, Concurrency: s.concurrency, TLSConfig: config}
		f.HTTP2.Unencrypted = true
		if s.kind == "blocking" {
			f.Driver = filo.DriverBlocking
		}
		go func() { failed <- f.ListenAndServe(s.addr) }()
		if s.tlsAddr != "" {
			go func() { failed <- f.ListenAndServeTLS(s.tlsAddr, "", "") }()
		}
	default:
		return fmt.Errorf("there is no server %q", s.kind)
	}
	return <-failed
}

// protocols returns HTTP/1 and HTTP/2, both with and without TLS. Without TLS, a client chooses HTTP/2 by prior knowledge, as a reverse proxy
// in front of the server does.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// siteFile creates the file that /file serves.
func siteFile() (string, error) {
	dir, err := os.MkdirTemp("", "abuse")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "file")
	return name, os.WriteFile(name, make([]byte, abuse.FileSize), 0o600)
}

// site is abuse.Site for filo's server.
type site struct {
	abuse.Site
	file string
}

var megabyte = strings.Repeat("0123456789abcdef", 64<<10)

func (s *site) serve(c *filo.Ctx) error {
	path := c.Path()
	switch path {
	case "/":
		return c.Text(200, "Hello, World!")
	case "/calls":
		calls, peak := s.Calls()
		return c.Text(200, fmt.Sprintln(calls, peak))
	}
	defer s.Called()()
	switch path {
	case "/quick":
		return c.Text(200, "Hello, World!")
	case "/large":
		return c.Text(200, megabyte)
	case "/wait5ms":
		time.Sleep(5 * time.Millisecond)
		return c.Text(200, "")
	case "/wait1s":
		time.Sleep(time.Second)
		return c.Text(200, "")
	case "/file":
		return c.File(s.file)
	case "/stream":
		w := c.Stream()
		for {
			if _, err := w.WriteString(megabyte); err != nil {
				return err
			}
		}
	case "/body":
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprintln(len(body)))
	}
	return filo.Error(404, "")
}
