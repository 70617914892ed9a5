package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A request that has begun is answered after the signal, with Connection: close.
func TestShutdownLetsARunningRequestFinish(t *testing.T) {
	r := start(t)
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	io.WriteString(conn, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
	// The 100 shows that the handler runs and waits for the body.
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 100 {
		t.Fatalf("%v, %v; want a 100", resp, err)
	}
	r.stop()
	waitRefused(t, r.addr)
	select {
	case err := <-r.done:
		t.Fatalf("run returned %v while a request was running", err)
	default:
	}

	io.WriteString(conn, "0123456789")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if string(body) != "0123456789" || err != nil || !resp.Close {
		t.Errorf("got %q, error %v, close %v; want the echo, and Connection: close", body, err, resp.Close)
	}
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("run returned %v after a complete shutdown", err)
		}
	case <-time.After(patience):
		t.Error("run doesn't return after the last request")
	}
}

// waitRefused waits until no process listens on addr.
func waitRefused(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("it still accepts connections")
		}
		time.Sleep(time.Millisecond)
	}
}

// program is the example in a separate process.
type program struct {
	*exec.Cmd
	addr string
	done chan error
}

func startProgram(t *testing.T) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], "-addr", "127.0.0.1:0"), done: make(chan error, 1)}
	// A build with the race detector sleeps for a second before it exits, unless told otherwise.
	p.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	p.Stderr = os.Stderr
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the program ended before it listened: %v", err)
	}
	p.addr = strings.TrimSpace(strings.TrimPrefix(line, "listening on http://"))
	go func() {
		io.Copy(io.Discard, lines)
		p.done <- p.Wait()
	}()
	return p
}

// Under load, no request that was begun is lost after SIGTERM, and the process exits with code 0 within a second. On a busy machine an attempt may
// take longer, but all attempts take more than 15 seconds only if the process waits needlessly.
func TestSIGTERMUnderLoad(t *testing.T) {
	const tries, most = 5, 15 * time.Second
	var took []time.Duration
	for range tries {
		took = append(took, terminateUnderLoad(t))
		if took[len(took)-1] <= time.Second {
			return
		}
	}
	if t.Logf("it took %v, and takes a second at most on a machine with nothing else to do", took); slices.Min(took) > most {
		t.Errorf("it took %v", took)
	}
}

// terminateUnderLoad returns how long the process lived after the signal.
func terminateUnderLoad(t *testing.T) (took time.Duration) {
	t.Helper()
	p := startProgram(t)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	lost := make(chan error, 16)
	for range 16 {
		clients.Go(func() {
			if err := callUntilClosed(p.addr, stop); err != nil {
				lost <- err
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // how long the load lasts before the signal; it doesn't wait for an event

	signalled := time.Now()
	p.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("the process ended with %v, want code 0", err)
		}
		took = time.Since(signalled)
	case <-time.After(patience):
		t.Error("the process doesn't end")
	}
	close(stop)
	clients.Wait()
	close(lost)
	for err := range lost {
		t.Error(err)
	}
	return took
}

// callUntilClosed sends one request after the other on a connection until an answer has Connection: close, or stop is closed. It returns an error if
// it gets only a part of an answer. It isn't an error if the connection ends before the first byte of an answer, since the client may then repeat the
// request: RFC 9112, 9.5.
func callUntilClosed(addr string, stop <-chan struct{}) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return nil
		}
		if _, err := in.Peek(1); err != nil {
			return nil
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("the answer's head was cut: %w", err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "Hello, World!" || err != nil {
			return fmt.Errorf("the answer was %q, %v", body, err)
		}
		if resp.Close {
			return nil
		}
	}
}

// While the first signal waits for a request, a second one ends the process at once.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := startProgram(t)
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 100 {
		t.Fatalf("%v, %v; want a 100", resp, err)
	}
	p.Process.Signal(syscall.SIGTERM)
	waitRefused(t, p.addr)
	select {
	case err := <-p.done:
		t.Fatalf("the process ended (%v) while a request was running", err)
	default:
	}
	// Shortly after the first signal, the default handling of signals is restored, and a further signal ends the process. Until then it has no
	// effect.
	for deadline := time.Now().Add(patience); ; {
		p.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the process doesn't end at the second signal")
		}
	}
}
