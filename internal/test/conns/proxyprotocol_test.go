package conns

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// tellProxied is a handler that answers with the connection's addresses and the contents of the PROXY header.
func tellProxied(c *filo.Ctx) error {
	h, ok := c.ProxyHeader()
	if !ok {
		return c.Text(200, fmt.Sprintf("%v %v", c.RemoteAddr(), c.LocalAddr()))
	}
	told, secure := h.TLS()
	if c.RemoteAddrPort().String() != c.RemoteAddr().String() {
		return fmt.Errorf("the address is %v or %v", c.RemoteAddrPort(), c.RemoteAddr())
	}
	return c.Text(200, fmt.Sprintf("%v %v local=%v authority=%s alpn=%s id=%s tls=%v %v", c.RemoteAddr(), c.LocalAddr(), h.IsLocal(), h.Authority(), h.ALPN(),
		h.UniqueID(), secure, told))
}

var loopback = filo.ProxyProtocol{TrustedPeers: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

// proxiedHeader returns a header of version 2 for IPv4 with these TLVs.
func proxiedHeader(tlvs ...string) string {
	block := "\xc0\x00\x02\x01\xc6\x33\x64\x02\xdc\x04\x01\xbb" + strings.Join(tlvs, "")
	return "\r\n\r\n\x00\r\nQUIT\n\x21\x11" + string(binary.BigEndian.AppendUint16(nil, uint16(len(block)))) + block
}

const (
	proxied1    = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"
	proxiedTold = "192.0.2.1:56324 198.51.100.2:443 local=false authority= alpn= id= tls=false {false   }"
)

// eachProxied runs a test with both drivers.
func eachProxied(t *testing.T, headerTime time.Duration, test func(t *testing.T, s *filotest.Server, log *filotest.Log)) {
	for name, driver := range map[string]filo.Driver{"auto": filo.DriverAuto, "blocking": filo.DriverBlocking} {
		t.Run(name, func(t *testing.T) {
			log := new(filotest.Log)
			test(t, filotest.Serve(t, &filo.Server{
				Driver: driver, Handler: tellProxied, ProxyProtocol: loopback, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
				ReadHeaderTimeout: headerTime, HTTP2: filo.HTTP2Options{Unencrypted: true},
			}), log)
		})
	}
}

// "RemoteAddr, LocalAddr … go by the addresses that the proxy tells, and Ctx.ProxyHeader has the rest." The header and the request may be
// split anywhere.
func TestProxyProtocol(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	ipv6 := "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"
	all := proxiedHeader("\x02\x00\x0bexample.com", "\x01\x00\x02h2", "\x05\x00\x02id", "\x20\x00\x0f\x05\x00\x00\x00\x00\x21\x00\x07TLSv1.3")
	eachProxied(t, filotest.Bound, func(t *testing.T, s *filotest.Server, log *filotest.Log) {
		for name, test := range map[string]struct{ header, want string }{
			"version 1": {proxied1, proxiedTold},
			"version 2": {proxiedHeader(), proxiedTold},
			"IPv6":      {ipv6, "[2001:db8::1]:56324 [2001:db8::2]:443 local=false authority= alpn= id= tls=false {false   }"},
			"TLVs":      {all, "192.0.2.1:56324 198.51.100.2:443 local=false authority=example.com alpn=h2 id=id tls=true {true TLSv1.3  }"},
			"unknown":   {"PROXY UNKNOWN\r\n", "PEER SERVER local=false authority= alpn= id= tls=false {false   }"},
			"local":     {"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "PEER SERVER local=true authority= alpn= id= tls=false {false   }"},
		} {
			for _, cut := range []int{0, 1, len(test.header) / 2, len(test.header) - 1, len(test.header), len(test.header) + 3} {
				c := s.Dial(t)
				want := strings.NewReplacer("PEER", c.Conn.LocalAddr().String(), "SERVER", s.Addr).Replace(test.want)
				whole := test.header + request + request
				if cut > 0 {
					c.Send(whole[:cut])
					filotest.Await(t, "the first piece to be looked at", func() bool { return s.Stats().ConnsOpen > 0 })
				}
				c.Send(whole[cut:])
				for range 2 {
					response, got := c.Answer()
					if response.StatusCode != 200 || got != want {
						t.Errorf("%s, cut at %d: %d %q, want %q", name, cut, response.StatusCode, got, want)
					}
				}
				c.Close()
			}
		}
		if log.String() != "" {
			t.Errorf("logged %s", log)
		}
	})
}

// "ProxyHeader returns what a proxy has told about the connection", including TLVs of the types that are reserved for applications.
func TestProxyHeader(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{ProxyProtocol: loopback, Handler: func(c *filo.Ctx) error {
		h, ok := c.ProxyHeader()
		own, has := h.TLV(0xe0)
		_, other := h.TLV(0xe1)
		return c.Text(200, fmt.Sprintln(ok, h.Source(), h.Destination(), own, has, other))
	}})
	c := s.Dial(t)
	c.Send(proxiedHeader("\xe0\x00\x03own") + "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	c.Want(200, "true 192.0.2.1:56324 198.51.100.2:443 own true false\n", false)
}

// The header precedes TLS, and also HTTP/1.1 and HTTP/2.
func TestProxyProtocolBelow(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"auto": filo.DriverAuto, "blocking": filo.DriverBlocking} {
		for _, secure := range []bool{false, true} {
			for _, second := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, TLS %v, HTTP/2 %v", name, secure, second), func(t *testing.T) {
					s := filotest.New(&filo.Server{
						Driver: driver, Handler: tellProxied, ProxyProtocol: loopback, HTTP2: filo.HTTP2Options{Unencrypted: true},
						TLSConfig: &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}},
					}, 1)
					listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
					s.Go(func() {
						if secure {
							s.Served <- s.ServeTLS(listener, "", "")
						} else {
							s.Served <- s.Serve(listener)
						}
					})
					s.CloseAtEnd(t, 1)
					protocols := new(http.Protocols)
					protocols.SetHTTP1(!second)
					protocols.SetHTTP2(second)
					protocols.SetUnencryptedHTTP2(second)
					transport := &http.Transport{Protocols: protocols, TLSClientConfig: filotest.ClientTLS(), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						conn, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
						if err == nil {
							_, err = io.WriteString(conn, proxied1)
						}
						return conn, err
					}}
					defer transport.CloseIdleConnections()
					url := "http://filo.test/"
					if secure {
						url = "https://filo.test/"
					}
					for range 2 {
						response, err := (&http.Client{Transport: transport, Timeout: filotest.Bound}).Get(url)
						if err != nil {
							t.Fatal(err)
						}
						body, _ := io.ReadAll(response.Body)
						response.Body.Close()
						if string(body) != proxiedTold || (response.ProtoMajor == 2) != second {
							t.Errorf("got %q by %s", body, response.Proto)
						}
					}
				})
			}
		}
	}
}

// "others are closed, and so are connections without a header. The log says so". A connection that ends before its first byte isn't a
// mistake, so the server doesn't log it.
func TestProxyProtocolRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sent, want string
		ends       bool // the client closes its side after it has sent the text
	}{
		"a request":    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "doesn't begin with a header", false},
		"malformed":    {"PROXY TCP4 192.0.2.1\r\n", "malformed", false},
		"oversized":    {"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", "larger than 4 KB", false},
		"endless":      {"PROXY TCP4 " + strings.Repeat("1", 200), "malformed", false},
		"cut":          {proxied1[:20], "ended within the header", true},
		"cut, version": {proxiedHeader()[:20], "ended within the header", true},
		"slow":         {proxied1[:20], "didn't arrive within ReadHeaderTimeout", false},
		"nothing":      {"", "", true},
		"silent":       {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			headerTime := filotest.Bound
			if name == "slow" || name == "silent" {
				headerTime = time.Second
			}
			eachProxied(t, headerTime, func(t *testing.T, s *filotest.Server, log *filotest.Log) {
				c := s.Dial(t)
				c.Send(test.sent)
				if test.ends {
					c.Conn.(*net.TCPConn).CloseWrite()
				}
				c.WantEnd()
				filotest.Await(t, "the connection's end", func() bool { return s.Stats().ConnsOpen == 0 })
				switch got := log.String(); {
				case test.want == "" && name == "nothing" && got != "":
					t.Errorf("logged %s", got)
				case test.want != "" && (strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) || !strings.Contains(got, "client=127.0.0.1 ")):
					t.Errorf("logged %q, want %q", got, test.want)
				}
				if n := s.Stats().Requests; n != [6]uint64{} {
					t.Errorf("answered %v", n)
				}
			})
		})
	}
}

// Untrusted peers get no answer, and can't fill the log.
func TestProxyProtocolUntrusted(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"auto": filo.DriverAuto, "blocking": filo.DriverBlocking} {
		t.Run(name, func(t *testing.T) {
			log := new(filotest.Log)
			s := filotest.Serve(t, &filo.Server{
				Driver: driver, Handler: tellProxied, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
				ProxyProtocol: filo.ProxyProtocol{TrustedPeers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, TrustUnixSocket: true},
			})
			for range 3 {
				c := s.Dial(t)
				io.WriteString(c, proxied1+"GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the server may have closed the connection by now
				c.WantEnd()
			}
			filotest.Await(t, "the refusals", func() bool { return s.Stats().ConnsRefused == 3 })
			if got := s.Stats().Refusals; got != (filo.Refusals{ProxyProtocol: 3}) {
				t.Errorf("%+v", got)
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "TrustedPeers") {
				t.Errorf("logged %q", got)
			}
		})
	}
}

// "MaxConnsPerIP go by the addresses that the proxy tells", also over TLS.
func TestProxyProtocolConnsPerIP(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"auto": filo.DriverAuto, "blocking": filo.DriverBlocking} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Driver: driver, Handler: tellProxied, ProxyProtocol: loopback, MaxConnsPerIP: 2})
			open := func(client string) *filotest.Client {
				c := s.Dial(t)
				c.Send("PROXY TCP4 " + client + " 198.51.100.2 56324 443\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
				return c
			}
			want := func(c *filotest.Client, status int) {
				t.Helper()
				if response, body := c.Answer(); response.StatusCode != status {
					t.Errorf("got %d %q, want %d", response.StatusCode, body, status)
				}
			}
			first := open("192.0.2.1")
			want(first, 200)
			want(open("192.0.2.1"), 200)
			want(open("192.0.2.1"), 429)
			want(open("192.0.2.2"), 200)
			first.Close()
			filotest.Await(t, "a place", func() bool { return s.Stats().ConnsOpen == 2 })
			want(open("192.0.2.1"), 200)
			want(open("192.0.2.1"), 429)
		})
	}
}

// The connection that a handler takes over has the client's address.
func TestProxyProtocolHijack(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"auto": filo.DriverAuto, "blocking": filo.DriverBlocking} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Driver: driver, ProxyProtocol: loopback, Handler: func(c *filo.Ctx) error {
				conn, _, err := c.Hijack()
				if err != nil {
					return err
				}
				defer conn.Close()
				_, err = fmt.Fprintf(conn, "%v %v", conn.RemoteAddr(), conn.LocalAddr())
				return err
			}})
			c := s.Dial(t)
			c.Send(proxied1 + "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if got, err := io.ReadAll(c.Reader); err != nil || string(got) != "192.0.2.1:56324 198.51.100.2:443" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A shutdown doesn't wait for PROXY headers that haven't arrived.
func TestProxyProtocolShutdown(t *testing.T) {
	t.Parallel()
	eachProxied(t, filotest.Bound, func(t *testing.T, s *filotest.Server, _ *filotest.Log) {
		silent, half := s.Dial(t), s.Dial(t)
		half.Send(proxied1[:20])
		filotest.Await(t, "the connections", func() bool { return s.Stats().ConnsOpen == 2 })
		if err := s.ShutdownInTime(); err != nil {
			t.Error(err)
		}
		silent.WantEnd()
		half.WantEnd()
	})
}

// In the loop driver, a connection that waits for its header occupies no worker. After the header, it needs hardly more memory than a plain
// connection.
func TestProxyProtocolIdle(t *testing.T) {
	filotest.NeedLoops(t)
	const n = 400
	heap := func() int64 {
		var stats runtime.MemStats
		for range 2 { // the second collection frees objects whose finalizers ran after the first one
			runtime.GC()
		}
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	perConn := func(header string, config filo.ProxyProtocol) int64 {
		s := filotest.Serve(t, &filo.Server{Handler: filo.Inline(func(c *filo.Ctx) error { return c.NoContent() }), ProxyProtocol: config})
		clients := make([]*filotest.Client, n)
		for i := range clients {
			clients[i] = s.Dial(t)
			clients[i].Send(header[:min(20, len(header))])
		}
		filotest.Await(t, "all connections to wait", func() bool { stats := s.Stats(); return stats.ConnsOpen == n && stats.WorkersRunning == 0 })
		silent := heap()
		for _, c := range clients {
			c.Send(header[min(20, len(header)):])
			c.Get("/")
			c.Answer()
		}
		filotest.Await(t, "all connections to be idle", func() bool { return s.Stats().WorkersRunning == 0 })
		idle := heap()
		runtime.KeepAlive(clients)
		s.Close()
		return (idle - silent) / n
	}
	perConn("", filo.ProxyProtocol{}) // the first server also allocates memory that later servers reuse
	plain := perConn("", filo.ProxyProtocol{})
	told := perConn(proxiedHeader(), loopback)
	t.Logf("%d bytes more for each connection", told-plain)
	if told-plain > 100 {
		t.Errorf("%d and %d bytes for each connection", plain, told)
	}
}
