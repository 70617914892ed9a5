package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/proxy"
)

// The proxy asks an upstream for an upgrade to only one protocol, which must be one of Upgrades.
func TestUpgrades(t *testing.T) {
	show := backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q %q", r.Header["Upgrade"], r.Header["Connection"], r.Header["Http2-Settings"])
	})
	const none = `[] [] []`
	for _, test := range []struct {
		name     string
		upgrades []string
		fields   string
		want     string
	}{
		{"websocket", nil, "Connection: Upgrade\r\nUpgrade: WebSocket\r\n", `["WebSocket"] ["Upgrade"] []`},
		{"h2c would pass by all routes", nil, "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", none},
		{"h2c with all of its fields listed", nil, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", none},
		{"one of a list", nil, "Connection: upgrade\r\nUpgrade: h2c, websocket\r\n", `["websocket"] ["Upgrade"] []`},
		{"one of several fields", nil, "Connection: upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n", `["websocket"] ["Upgrade"] []`},
		{"one that Connection doesn't list", nil, "Upgrade: websocket\r\n", none},
		{"another one", nil, "Connection: Upgrade\r\nUpgrade: lines\r\n", none},
		{"no token", nil, "Connection: Upgrade\r\nUpgrade: \x80\r\n", none},
		{"one that begins like it", nil, "Connection: Upgrade\r\nUpgrade: websocket2\r\n", none},
		{"the client's preference", []string{"lines", "words/2"}, "Connection: Upgrade\r\nUpgrade: words/2, lines\r\n", `["words/2"] ["Upgrade"] []`},
		{"not the default besides others", []string{"lines"}, "Connection: Upgrade\r\nUpgrade: websocket\r\n", none},
		{"none", []string{}, "Connection: Upgrade\r\nUpgrade: websocket\r\n", none},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFront(t, proxy.Options{Upstreams: []string{show}, Upgrades: test.upgrades})
			got := f.raw("GET / HTTP/1.1\r\nHost: a\r\n" + test.fields + "\r\n")
			if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "\r\n\r\n"+test.want) {
				t.Errorf("got %q, want %s", got, test.want)
			}
		})
	}
}

// The Upgrade field of an HTTP/1.0 request is ignored.
func TestUpgradeHTTP10(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q %q", r.Header["Upgrade"], r.Header["Connection"], r.Header["Via"])
	})}})
	got := f.raw("GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if !strings.Contains(got, " 200 ") || !strings.HasSuffix(got, `[] [] ["1.0 filo"]`) {
		t.Errorf("got %q", got)
	}
}

// An upstream that switches protocols without being asked to gets no tunnel.
func TestUpgradeUnasked(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\ntunnel"))
	})}})
	for _, protocol := range []string{"h2c", "websocket"} {
		got := f.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
		if err != nil || response.StatusCode != 502 || strings.Contains(got, "tunnel") {
			t.Errorf("asked for %s: %q", protocol, got)
		}
	}
}

// An answer that isn't passed on leaves no connection to the upstream behind, and no request that counts as active.
func TestRefusedAnswerEnds(t *testing.T) {
	const asks, switches = "Connection: Upgrade\r\nUpgrade: websocket\r\n", "HTTP/1.1 101 Switching Protocols\r\n"
	for _, test := range []struct {
		name, fields, answer string
		modify               func(*http.Response) error
		status               int
	}{
		{"an upgrade that nobody asked for", "", switches + asks + "\r\n", nil, 502},
		{"a 101 without Upgrade", "", switches + "\r\n", nil, 502},
		{"a 101 without Upgrade, though asked for", asks, switches + "\r\n", nil, 502},
		{"another protocol", asks, switches + "Connection: Upgrade\r\nUpgrade: lines\r\n\r\n", nil, 502},
		{"a panic", "", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nso far", func(*http.Response) error { panic("in ModifyResponse") }, 500},
	} {
		t.Run(test.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			ended := make(chan error, 1)
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					ended <- err
					return
				}
				defer conn.Close()
				r := bufio.NewReader(conn)
				if _, err := http.ReadRequest(r); err != nil {
					ended <- err
					return
				}
				io.WriteString(conn, test.answer)
				conn.SetReadDeadline(time.Now().Add(patience))
				_, err = io.Copy(io.Discard, r)
				ended <- err
			}()
			f := newFront(t, proxy.Options{Upstreams: []string{"http://" + ln.Addr().String()}, ModifyResponse: test.modify})
			got := f.raw("GET / HTTP/1.1\r\nHost: a\r\n" + test.fields + "\r\n")
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", test.status)) {
				t.Errorf("the client got %q, want %d", got, test.status)
			}
			if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the upstream's connection stays open")
			}
			if n := f.proxy.Active(); n != 0 {
				t.Errorf("%d requests count as active", n)
			}
		})
	}
}

// A request that asks for an upgrade, as the clients of several languages do in each request without TLS, is answered like any other
// when the server shuts down or the proxy is closed.
func TestUnusedUpgradeIsAnswered(t *testing.T) {
	for name, end := range map[string]func(f *front){
		"the server ends": func(f *front) {
			begun := make(chan struct{})
			f.server.RegisterOnShutdown(func() { close(begun) })
			go f.server.Shutdown(context.Background())
			<-begun
		},
		"the proxy ends": func(f *front) { f.proxy.Close() },
	} {
		for _, fields := range []string{
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				arrived, release := make(chan struct{}), make(chan struct{})
				f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
					close(arrived)
					<-release
					io.WriteString(w, "answered")
				})}})
				got := f.rawConn("GET / HTTP/1.1\r\nHost: a\r\n"+fields+"Content-Length: 0\r\n\r\n", func(conn *net.TCPConn) {
					<-arrived
					end(f)
					close(release)
					conn.CloseWrite()
				})
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "answered") {
					t.Errorf("%q: got %q", fields, got)
				}
			})
		}
	}
}
