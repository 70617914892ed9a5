package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync/atomic"
	"testing"
)

// sentPlainly has, for each attack over HTTP/1.1 or on handshakes, a regular expression for the beginning of the sent bytes, and their
// minimum number.
var sentPlainly = map[string]struct {
	begins string
	bytes  int
}{
	"body-lacks-a-byte": {`^POST /body HTTP/1.1\r\nHost: \S+\r\nContent-Length: 4194304\r\n\r\n`, 4<<20 - 1},
	"bodies-of-1-mb":    {`^POST /body HTTP/1.1\r\nHost: \S+\r\nContent-Length: 1048576\r\n\r\n`, 1<<20 - 1},
	"body-trickles":     {`^POST /body HTTP/1.1\r\nHost: \S+\r\nContent-Length: 3146728\r\n\r\n`, 3 << 20},
	"answer-taken":      {`^GET /stream HTTP/1.1\r\nHost: \S+\r\n\r\n$`, 0},
	"hello-3000":        {`^\x16\x03\x01.*localhost`, 200},
	"hello-8000":        {`^\x16\x03\x01.*localhost`, 200},
	"hello-part":        {`^\x16\x03\x01\x40\x00\x01$`, 6},
}

// Each attack sends the bytes that its name suggests, and nothing more. It records that the server has ended the connection.
func TestPlainAttacksSend(t *testing.T) {
	for _, a := range Attacks() {
		if a.ByHTTP2() {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			want, known := sentPlainly[a.Name]
			if !known {
				t.Fatal("there is no expression for what the attack sends")
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			received := make(chan []byte, 1)
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				defer nc.Close()
				var got []byte
				b := make([]byte, 1<<20)
				for !regexp.MustCompile("(?s)"+want.begins).Match(got) || len(got) < want.bytes {
					n, err := nc.Read(b)
					if got = append(got, b[:n]...); err != nil {
						break
					}
				}
				if a.Name == "answer-taken" {
					io.WriteString(nc, "HTTP/1.1 200 OK\r\n\r\n")
					nc.Write(make([]byte, 2<<20))
				}
				received <- got
			}()
			a.Conns, a.Once = 1, true
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			f := a.Run(ctx, func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) })
			select {
			case got := <-received:
				if !regexp.MustCompile("(?s)" + want.begins).Match(got) {
					t.Errorf("%d bytes: %.300q", len(got), got)
				}
			default:
				t.Error("the attack has ended before the server")
			}
			if f.Ended["closed"] != 1 || f.Endless != 0 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// The Figure of an attack names the status with which the server has ended the attack.
func TestPlainAnswers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			io.CopyN(io.Discard, nc, 4<<20)
			io.WriteString(nc, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
			io.CopyN(io.Discard, nc, 70) // read the rest, because closing with unread bytes would reset the connection
			nc.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, nc)
			nc.Close()
		}
	}()
	a, err := Find("body-lacks-a-byte")
	if err != nil {
		t.Fatal(err)
	}
	a.Conns, a.Once = 1, true
	f := a.Run(t.Context(), func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) })
	if f.Ended["answers of 408"] != 1 || f.NotOK != 1 {
		t.Errorf("%+v", f)
	}
}

// The polite clients of HTTP/1.1 distinguish answers, refusals with Retry-After, and errors.
func TestPlainPolite(t *testing.T) {
	for _, kind := range []Client{Posts, Handshakes} {
		t.Run(kind.String(), func(t *testing.T) {
			var asked atomic.Int64
			done := make(chan struct{})
			l := newListening(t)
			site := new(Site)
			serveSite(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := asked.Add(1)
				if n == 200 {
					close(done)
				}
				switch {
				case n%10 == 1:
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(503)
				case n%10 == 2:
					w.WriteHeader(503)
				default:
					site.ServeHTTP(w, r)
				}
			}))
			p, err := StartClient(kind, l.dial, 2000)
			if err != nil {
				t.Fatal(err)
			}
			f := phaseUntil(t, p, done).Figure()
			p.Stop()
			if f.Answers < 100 || f.Busy < 15 || f.Errors < 15 || f.Answers < 4*f.Busy || fmt.Sprint(f.First) != `the answer is 503 ""` {
				t.Errorf("%+v", f)
			}
		})
	}
}
