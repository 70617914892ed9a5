package conformance

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	okHead  = "HTTP/1.1 200 OK\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n"
	ok      = okHead + "\r\nHello, World!"
	okClose = okHead + "Connection: close\r\n\r\nHello, World!"
	bad     = "HTTP/1.1 400 Bad Request\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\nContent-Length: 0\r\n"
)

// A fake is a server that reads whole heads and sends fixed answers.
type fake struct {
	first   string            // the answer to every request that isn't a probe
	tail    string            // sent after each answer to the probe
	close   bool              // close after first
	perRead func(string) bool // called with the bytes of each Read; if it returns false, the connection is closed
}

func (f fake) serve(c net.Conn) {
	defer c.Close()
	var in string
	for buf := make([]byte, 1000); ; {
		n, err := c.Read(buf)
		if err != nil || f.perRead != nil && !f.perRead(string(buf[:n])) {
			return
		}
		in += string(buf[:n])
		for head, rest, ok := strings.Cut(in, "\r\n\r\n"); ok; head, rest, ok = strings.Cut(in, "\r\n\r\n") {
			in = rest
			if strings.Contains(head, "Host: probe") {
				io.WriteString(c, okClose+f.tail)
				return
			}
			io.WriteString(c, f.first)
			if f.close {
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				return
			}
		}
	}
}

// start serves f on a loopback socket and returns how to dial it.
func (f fake) start(t *testing.T) func() (net.Conn, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			go f.serve(c)
		}
	}()
	return func() (net.Conn, error) { return net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second) }
}

type runnerTest struct {
	name string
	c    Case
	f    fake
	want string // in the error; "": none
}

// timeout returns a short time if the runner has to wait for the time-out.
func (t runnerTest) timeout() time.Duration {
	if t.want == "i/o timeout" {
		return 100 * time.Millisecond
	}
	return timeout
}

// The runner finds the faults of incorrect servers, and none in a correct server.
func TestRunner(t *testing.T) {
	open := accepted("open", "9112 1", "x", hello())
	closed := closing("closed", "9112 1", "x", hello())
	refusedCase := refused(400, "refused", "9112 1", "x")
	half := Case{Name: "half", HalfClose: true, Want: answers(hello()), Then: ClosesSilently}
	tests := []runnerTest{
		{"open", open, fake{first: ok}, ""},
		{"closed", closed, fake{first: okClose, close: true}, ""},
		{"refused", refusedCase, fake{first: bad + "Connection: close\r\n\r\n", close: true}, ""},
		{"half-closed", half, fake{first: ok}, ""},
		{"either, open", Case{Want: answers(hello()), Then: Either}, fake{first: ok}, ""},
		{"either, closed", Case{Want: answers(hello()), Then: Either}, fake{first: okClose, close: true}, ""},

		{"closes instead", open, fake{first: ok, close: true}, "the next request"},
		{"announces a close", open, fake{first: okClose, close: true}, "Connection: close"},
		{"silent close", Case{Want: answers(hello()), Then: Closes}, fake{first: ok, close: true}, "doesn't say Connection: close"},
		{"stays open", closed, fake{first: okClose}, "i/o timeout"},
		{"another status", refusedCase, fake{first: ok}, "status 200, want 400"},
		{"another body", open, fake{first: strings.Replace(ok, "World", "Wurld", 1)}, "body"},
		{"no Content-Type", open, fake{first: strings.Replace(ok, "Content-Type", "X", 1)}, "Content-Type"},
		{"two answers", open, fake{first: ok + ok}, "the next request"},
		{"two answers and a close", closed, fake{first: okClose + ok, close: true}, "more came"},
		{"no answer", open, fake{close: true}, "EOF"},
		{"stray bytes after the body", open, fake{first: ok + "\r\n"}, "malformed"},
		{"bytes after the last answer", open, fake{first: ok, tail: "x"}, "more came"},
		{"body until the end", closed, fake{first: strings.Replace(okClose, "Content-Length", "X", 1), close: true}, "the connection's end"},
		{"short body", closed, fake{first: okClose[:len(okClose)-1], close: true}, "of a body"},
		{"no 100", Case{Raw: get200, After100: "x", Want: answers(hello())}, fake{first: ok}, "want 100"},
		{"a 100 that nobody asked for", open, fake{first: "HTTP/1.1 100 Continue\r\n\r\n" + ok}, "status 100"},
		{"fails when cut", open, fake{first: ok, perRead: func(s string) bool {
			return len(s) == 1 || strings.HasSuffix(s, "\r\n\r\n") && strings.HasPrefix(s, "GET")
		}}, "cut"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.c.Raw == "" {
				test.c.Raw = get200
			}
			err := (&runner{Case: test.c, dial: test.f.start(t), timeout: test.timeout()}).run(false)
			if test.want == "" && err != nil {
				t.Errorf("a right server: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// If a case allows a 100, the runner accepts a server that sends it and a server that doesn't.
func TestRunnerMay100(t *testing.T) {
	c := may100(accepted("may", "9112 1", "x", hello()))
	c.Raw = get200
	for _, first := range []string{ok, "HTTP/1.1 100 Continue\r\n\r\n" + ok} {
		if err := (&runner{Case: c, dial: fake{first: first}.start(t), timeout: timeout}).run(true); err != nil {
			t.Error(err)
		}
	}
}
