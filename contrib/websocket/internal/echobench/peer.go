package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// load is what a server has to carry.
type load struct{ conns, size, batch int }

// peer is a server in a process of its own, and the connections to it.
type peer struct {
	name    string
	command *exec.Cmd
	address string
	load    load
	conns   []net.Conn
	results []result
}

// result is what a round has shown.
type result struct{ perMessage, rate float64 }

// startPeer starts a server and connects to it.
func startPeer(name string, l load) (*peer, error) {
	command := exec.Command(os.Args[0], "-serve", name, "-cpuprofile", os.Getenv("ECHOBENCH_PROFILE_"+strings.ReplaceAll(name, "-", "_")))
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &peer{name: name, command: command, load: l}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, err
	}
	p.address = strings.TrimSpace(address)
	for range l.conns {
		conn, err := p.connect()
		if err != nil {
			p.stop()
			return nil, err
		}
		p.conns = append(p.conns, conn)
	}
	return p, nil
}

func (p *peer) stop() {
	for _, conn := range p.conns {
		conn.Close()
	}
	p.command.Process.Signal(syscall.SIGTERM)
	p.command.Wait()
}

// connect opens a WebSocket.
func (p *peer) connect() (net.Conn, error) {
	for try := 0; ; try++ { // the server may be about to listen
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			return conn, openWebSocket(conn)
		}
		if try == 100 {
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func openWebSocket(conn net.Conn) error {
	const request = "GET / HTTP/1.1\r\nHost: filo.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		return fmt.Errorf("the handshake got %q", head)
	}
	return nil
}

// cpu returns the processor time that the server has used.
func (p *peer) cpu() (float64, error) {
	response, err := http.Get("http://" + p.address + "/cpu")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(body), 64)
}

// measure loads the server for a while.
func (p *peer) measure(d time.Duration) (result, error) {
	before, err := p.cpu()
	if err != nil {
		return result{}, err
	}
	var messages atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, len(p.conns))
	start := time.Now()
	for _, conn := range p.conns {
		group.Go(func() {
			n, err := p.load.echo(conn, start.Add(d))
			if err != nil {
				failed <- err
			}
			messages.Add(n)
		})
	}
	group.Wait()
	took := time.Since(start)
	after, err := p.cpu()
	if err != nil {
		return result{}, err
	}
	select {
	case err := <-failed:
		return result{}, err
	default:
	}
	n := float64(messages.Load())
	return result{perMessage: (after - before) / n, rate: n / took.Seconds()}, nil
}

// echo sends messages and reads their echoes.
func (l load) echo(conn net.Conn, until time.Time) (messages int64, err error) {
	var request []byte
	for range l.batch {
		request = appendFrame(request, l.size)
	}
	answer := make([]byte, l.batch*(l.size+answerHeader(l.size)))
	for time.Now().Before(until) {
		if _, err := conn.Write(request); err != nil {
			return messages, err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return messages, err
		}
		if answer[0] != 0x82 || answer[len(answer)-1] != 'x' {
			return messages, errors.New("an answer isn't an echo")
		}
		messages += int64(l.batch)
	}
	return messages, nil
}

// appendFrame appends a masked binary frame of so many bytes.
func appendFrame(b []byte, size int) []byte {
	mask := [4]byte{0x3a, 0x51, 0x0c, 0xe7}
	switch {
	case size <= 125:
		b = append(b, 0x82, 0x80|byte(size))
	case size <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x82, 0x80|126), uint16(size))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x82, 0x80|127), uint64(size))
	}
	b = append(b, mask[:]...)
	for i := range size {
		b = append(b, 'x'^mask[i%4])
	}
	return b
}

// answerHeader returns the size of the header of a frame that isn't masked.
func answerHeader(size int) int {
	switch {
	case size <= 125:
		return 2
	case size <= 0xffff:
		return 4
	}
	return 10
}
