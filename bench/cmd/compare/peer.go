package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// peer is one of those who are compared.
type peer struct {
	name    string
	program string // the built server: takes -addr, prints "listening on http://..."
}

// buildPeers builds the programs that the options name, into dir.
func buildPeers(ctx context.Context, o *options, dir string) ([]*peer, error) {
	var peers []*peer
	for _, name := range o.peers {
		p := &peer{name: name, program: filepath.Join(dir, name)}
		module, pkg := ".", "./servers/"+name
		switch name {
		case "filo":
			module, pkg = o.examples, "./hello"
		case "fasthttp", "nethttp":
		case "limit":
			build := exec.CommandContext(ctx, "cc", "-O2", "-Wall", "-o", p.program, "limit/epoll.c")
			if out, err := build.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("build %s: %w\n%s", name, err, out)
			}
			peers = append(peers, p)
			continue
		default:
			var given bool
			if p.name, p.program, given = strings.Cut(name, "="); !given {
				return nil, fmt.Errorf("-peers: %q is none of filo, fasthttp, nethttp, limit and NAME=FILE", name)
			}
			peers = append(peers, p)
			continue
		}
		build := exec.CommandContext(ctx, "go", "build", "-C", module, "-o", p.program, pkg)
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// server is a running peer.
type server struct {
	cmd  *exec.Cmd
	base string // "http://127.0.0.1:port"
	gone chan struct{}
}

// start runs the peer's program on a free port and waits until it listens.
func (p *peer) start(ctx context.Context) (*server, error) {
	cmd := exec.CommandContext(ctx, p.program, "-addr", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, gone: make(chan struct{})}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err == nil {
		var listens bool
		s.base, listens = strings.CutPrefix(strings.TrimSpace(line), "listening on ")
		if !listens {
			err = fmt.Errorf("its first line is %q", line)
		}
	}
	go func() {
		io.Copy(io.Discard, lines)
		cmd.Wait()
		close(s.gone)
	}()
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%s doesn't say where it listens: %w", p.name, errors.Join(err, ctx.Err()))
	}
	return s, nil
}

func (s *server) proc() string { return filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid)) }

// stop asks the server to end, and doesn't ask twice.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.gone:
	case <-time.After(3 * time.Second):
		s.cmd.Process.Kill()
		<-s.gone
	}
}
