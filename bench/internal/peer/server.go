package peer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/site"
)

// Options say how a server is started.
type Options struct {
	Args  []string // flags of package site that the row needs
	HTTP2 bool
	TLS   bool
	Files string // the folder of the files to serve
	CPUs  []int  // the processors to which the server is bound; empty: all
	Procs int    // GOMAXPROCS, or the number of workers; 0: as many as the server has processors
}

func (o *Options) threads() int { return cmp.Or(o.Procs, len(o.CPUs), runtime.NumCPU()) }

// Server is a running peer.
type Server struct {
	// Base is the URL at which it listens, as in "http://127.0.0.1:8080".
	Base string

	peer   *Peer
	cmd    *exec.Cmd
	folder string        // a temporary folder, removed at the end
	lines  chan string   // the lines that the server prints
	gone   chan struct{} // closed when the server has ended
}

// Start runs the peer's program on a free port and waits until it listens.
func (p *Peer) Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{peer: p, lines: make(chan string, 16), gone: make(chan struct{})}
	var err error
	if s.folder, err = os.MkdirTemp("", "filo-"+p.Name); err != nil {
		return nil, err
	}
	if err := s.start(ctx, &o); err != nil {
		os.RemoveAll(s.folder)
		return nil, fmt.Errorf("%s doesn't start: %w", p.Name, err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o *Options) error {
	p := s.peer
	address := "127.0.0.1:0"
	args := []string{"-addr", address}
	switch p.Kind {
	case Go:
		args = slices.Concat(args, p.args, o.Args, []string{"-files", o.Files})
	case Installed:
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		address = listener.Addr().String() // the port is free after Close
		listener.Close()
		if args, err = p.installedArgs(s.folder, address, o); err != nil {
			return err
		}
	}
	s.cmd = exec.CommandContext(ctx, p.Program, args...)
	s.cmd.Stderr = os.Stderr
	// On SIGTERM nginx ends its own workers. A killed nginx would leave them running.
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 3 * time.Second
	if o.Procs > 0 {
		s.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", o.Procs))
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := proc.Start(s.cmd, o.CPUs); err != nil {
		return err
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			select {
			case s.lines <- lines.Text():
			default: // the channel is full, since nobody reads it: drop the line
			}
		}
		s.cmd.Wait()
		close(s.gone)
	}()
	line := "listening on http://" + address
	if o.TLS {
		line = "listening on https://" + address
	}
	if p.Kind == Installed {
		err = waitForPort(address, s.gone)
	} else {
		line, err = s.line(10 * time.Second)
	}
	var listens bool
	if s.Base, listens = strings.CutPrefix(line, "listening on "); err == nil && !listens {
		err = fmt.Errorf("its first line is %q", line)
	}
	if err != nil {
		s.end()
	}
	return err
}

func (s *Server) line(patience time.Duration) (string, error) {
	select {
	case line := <-s.lines:
		return line, nil
	case <-s.gone:
		return "", errors.New("it has ended")
	case <-time.After(patience):
		return "", errors.New("it says nothing")
	}
}

// Processes returns the IDs of the server's processes.
func (s *Server) Processes() []int {
	return proc.Tree(s.cmd.Process.Pid)
}

// Allocated counts a Go program's allocations since its start.
type Allocated struct{ Objects, Bytes int64 }

// Allocated asks a Go program for its allocations. It returns zeros for other programs.
func (s *Server) Allocated() (a Allocated, err error) {
	if s.peer.Kind != Go {
		return a, nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return a, err
	}
	line, err := s.line(5 * time.Second)
	if err != nil {
		return a, err
	}
	if _, err = fmt.Sscanf(line, "allocated %d objects %d bytes", &a.Objects, &a.Bytes); err != nil {
		err = fmt.Errorf("what it has allocated: %q: %w", line, err)
	}
	return a, err
}

// Stop ends the server.
func (s *Server) Stop() {
	s.end()
	os.RemoveAll(s.folder)
}

// end ends the process. An installed program gets SIGTERM, since it must end its own workers. Other programs are killed, since each may handle
// SIGTERM differently.
func (s *Server) end() {
	pids := s.Processes()
	if s.peer.Kind == Installed {
		s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.gone:
			return
		case <-time.After(3 * time.Second):
		}
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.gone
}

// configurations of the installed programs are templates. With these, the programs answer every request with the greeting, except that nginx serves
// /files.
//
//go:embed nginx.conf haproxy.conf h2o.conf
var configurations embed.FS

func (p *Peer) configuration() string {
	text, _ := configurations.ReadFile(p.Name + ".conf") // programs without a configuration have no file
	return string(text)
}

// installedArgs writes the configuration to the folder, and returns the arguments with which the program is started.
func (p *Peer) installedArgs(folder, address string, o *Options) ([]string, error) {
	parsed, err := template.New(p.Name).Parse(p.configuration())
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	host, port, _ := net.SplitHostPort(address)
	err = parsed.Execute(&text, map[string]any{
		"Threads": o.threads(), "Root": os.Geteuid() == 0, "Folder": folder, "Address": address, "Host": host, "Port": port,
		"Files": o.Files, "HTTP2": o.HTTP2, "TLS": o.TLS,
	})
	if err := errors.Join(err, site.WriteFiles(folder)); err != nil {
		return nil, err
	}
	if p.Name == "nghttpd" {
		args := []string{"-n", fmt.Sprint(o.threads()), "-a", host, "-d", folder}
		if o.TLS {
			return append(args, port, filepath.Join(folder, site.KeyFile), filepath.Join(folder, site.CertificateFile)), nil
		}
		return append(args, "--no-tls", port), nil
	}
	file := filepath.Join(folder, p.Name+".conf")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		return nil, err
	}
	switch p.Name {
	case "haproxy":
		return []string{"-db", "-f", file}, nil
	case "h2o":
		return []string{"-c", file}, nil
	}
	return []string{"-p", folder, "-c", file}, nil
}

// waitForPort waits until a connection to the address succeeds, for at most five seconds, or until gone is closed.
func waitForPort(address string, gone <-chan struct{}) error {
	for range 500 {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case <-gone:
			return errors.New("it has ended")
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("it doesn't listen")
}
