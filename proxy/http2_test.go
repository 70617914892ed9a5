package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/proxy"
)

// protocol is the protocol that a client or an upstream speaks.
type protocol string

const (
	http1 protocol = "HTTP/1.1"
	h2c   protocol = "h2c"
	h2TLS protocol = "h2 over TLS"
)

// version returns the HTTP version of a request with this protocol.
func (p protocol) version() string {
	if p == http1 {
		return "HTTP/1.1"
	}
	return "HTTP/2.0"
}

// certificate is the upstreams' certificate, and pool contains it as an authority.
var certificate, pool = func() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.TLS.Certificates[0], pool
}()

// start starts an upstream of net/http.
func (p protocol) start(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	switch p {
	case h2c:
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	case h2TLS:
		s.EnableHTTP2 = true
		s.Config.Protocols.SetHTTP2(true)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.StartTLS()
	default:
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.URL
}

// h2Front is a proxy between a client and an upstream that speak the given protocols.
type h2Front struct {
	t      testing.TB
	client *http.Client
	url    string
}

func newH2Front(t testing.TB, client, upstream protocol, options proxy.Options, h http.HandlerFunc) *h2Front {
	t.Helper()
	options.Upstreams, options.HTTP2, options.Logger = []string{upstream.start(t, h)}, upstream != http1, quiet
	p := proxy.New(options)
	t.Cleanup(func() { p.Close() })
	p.TrustRoots(pool)
	s := &filo.Server{Handler: p.Serve, Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}}
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	f := &h2Front{t: t, client: &http.Client{Transport: transport}}
	switch client {
	case http1:
		transport.Protocols.SetHTTP1(true)
		f.url = "http://" + tcptest.Serve(t, s)
	case h2c:
		transport.Protocols.SetUnencryptedHTTP2(true)
		f.url = "http://" + tcptest.Serve(t, s)
	case h2TLS:
		transport.Protocols.SetHTTP2(true)
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		f.url = "https://" + tcptest.Serve(t, s)
	}
	return f
}

// request makes a request whose context ends after the duration patience, so that no test hangs.
func (f *h2Front) request(method, path string, body io.Reader) *http.Request {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *h2Front) do(r *http.Request) *http.Response {
	f.t.Helper()
	response, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { response.Body.Close() })
	return response
}

// eachPair runs a test with each protocol of the client and of the upstream.
func eachPair(t *testing.T, clients, upstreams []protocol, test func(t *testing.T, client, upstream protocol)) {
	for _, client := range clients {
		for _, upstream := range upstreams {
			t.Run(fmt.Sprintf("%s to %s", client, upstream), func(t *testing.T) { test(t, client, upstream) })
		}
	}
}

var (
	every   = []protocol{http1, h2c, h2TLS}
	version = []protocol{h2c, h2TLS} // the protocols of HTTP/2
)

// Bodies, fields, trailers and interim answers arrive whatever protocols the two sides speak. Hop-by-hop fields aren't passed on.
func TestHTTP2PassesOn(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 40<<10)
	eachPair(t, every, every, func(t *testing.T, client, upstream protocol) {
		f := newH2Front(t, client, upstream, proxy.Options{Forwarded: true}, func(w http.ResponseWriter, r *http.Request) {
			if r.Proto != upstream.version() {
				t.Errorf("the upstream was asked by %s", r.Proto)
			}
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			body, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(body, large) {
				t.Errorf("the upstream has read %d bytes, %v", len(body), err)
			}
			for _, name := range []string{"Connection", "X-Hop", "Keep-Alive", "Via", "Te", "X-Sum", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"} {
				w.Header().Set("Got-"+name, strings.Join(r.Header[name], ","))
			}
			w.Header().Set("Got-Host", r.Host)
			w.Header().Set("Got-Trailer", fmt.Sprint(r.Trailer))
			w.Header().Set("Trailer", "X-Announced")
			if upstream == http1 {
				w.Header().Set("Connection", "X-Hop")
			}
			w.Header().Set("Keep-Alive", "timeout=5")
			w.Header().Set("X-Hop", "hop")
			w.WriteHeader(201)
			w.Write(body)
			w.Header().Set("X-Announced", "7")
			w.Header().Set(http.TrailerPrefix+"X-Late", "8")
		})
		r := f.request("POST", "/a%2Cb?x=1", io.MultiReader(bytes.NewReader(large))) // the body's length isn't known
		r.Host = "front.example"
		r.Trailer = http.Header{"X-Sum": {"9"}, "X-Real-Ip": {"192.0.2.1"}} // the latter is a false claim
		r.Header.Set("Via", "1.0 fred")
		r.Header.Set("Te", "trailers")
		if client == http1 {
			r.Header.Set("Connection", "X-Hop, TE")
			r.Header.Set("X-Hop", "hop")
			r.Header.Set("Keep-Alive", "timeout=5")
		}
		var early []string
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				early = append(early, fmt.Sprint(code, " ", header.Get("Link")))
				return nil
			},
		}))
		response := f.do(r)
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != 201 || !bytes.Equal(body, large) || response.Proto != client.version() {
			t.Errorf("answered %s %d with %d bytes, %v", response.Proto, response.StatusCode, len(body), err)
		}
		if !slices.Equal(early, []string{"103 </a.css>; rel=preload"}) {
			t.Errorf("interim answers %q", early)
		}
		upstreamHost, scheme := response.Request.URL.Host, "http"
		if client == h2TLS {
			scheme = "https"
		}
		if got := response.Header.Get("Got-Host"); got == upstreamHost || !strings.HasPrefix(got, "127.0.0.1:") {
			t.Errorf("the upstream's Host was %q", got)
		}
		for name, want := range map[string]string{
			"Got-Connection": "", "Got-X-Hop": "", "Got-Keep-Alive": "", "Got-Via": "1.0 fred," + map[protocol]string{http1: "1.1", h2TLS: "2.0", h2c: "2.0"}[client] + " filo", "Got-Te": "trailers", "Got-Trailer": "map[X-Sum:[9]]", "Got-X-Sum": "",
			"Got-X-Forwarded-Proto": scheme, "Got-X-Forwarded-Host": "front.example",
			"Got-Forwarded": "for=127.0.0.1;host=front.example;proto=" + scheme, "Keep-Alive": "", "Link": "",
		} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if hop := response.Header.Get("X-Hop"); upstream == http1 && hop != "" {
			t.Errorf("a field of the upstream's connection was passed on")
		}
		if a, b := response.Trailer.Get("X-Announced"), response.Trailer.Get("X-Late"); a != "7" || b != "8" {
			t.Errorf("the trailer is %v", response.Trailer)
		}
	})
}

// PreserveHost sends the client's :authority.
func TestHTTP2PreserveHost(t *testing.T) {
	eachPair(t, version, version, func(t *testing.T, client, upstream protocol) {
		f := newH2Front(t, client, upstream, proxy.Options{PreserveHost: true}, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Host)
		})
		r := f.request("GET", "/", nil)
		r.Host = "front.example"
		if body, err := io.ReadAll(f.do(r).Body); string(body) != "front.example" {
			t.Errorf("the upstream's Host was %q, %v", body, err)
		}
	})
}

// As in gRPC, a stream flows in both directions: each message is answered before the next one is sent, and a trailer ends the answer.
func TestHTTP2BothWays(t *testing.T) {
	eachPair(t, version, version, func(t *testing.T, client, upstream protocol) {
		f := newH2Front(t, client, upstream, proxy.Options{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.(http.Flusher).Flush() // before the handler has written anything
			for lines := bufio.NewScanner(r.Body); lines.Scan(); {
				fmt.Fprintln(w, strings.ToUpper(lines.Text()))
				w.(http.Flusher).Flush()
			}
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})
		var all sync.WaitGroup
		for stream := range 8 { // all streams use one connection
			all.Go(func() {
				body, send := io.Pipe()
				r := f.request("POST", "/chat.Chat/Talk", body)
				r.Header.Set("Te", "trailers")
				response, err := f.client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer response.Body.Close()
				lines := bufio.NewReader(response.Body)
				for i := range 20 {
					fmt.Fprintf(send, "message %d of %d\n", i, stream)
					want := fmt.Sprintf("MESSAGE %d OF %d\n", i, stream)
					if line, err := lines.ReadString('\n'); line != want {
						t.Errorf("got %q, %v, want %q", line, err, want)
						return
					}
				}
				send.Close()
				if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
					t.Errorf("at the end %q, %v", rest, err)
				}
				if response.Trailer.Get("Grpc-Status") != "0" {
					t.Errorf("the trailer is %v", response.Trailer)
				}
			})
		}
		all.Wait()
	})
}

// If the upstream ends a request early, with a complete answer, an error or an invalid answer, the request also ends for the client,
// although the client continues to send.
func TestHTTP2EndsEarly(t *testing.T) {
	eachPair(t, version, every, func(t *testing.T, client, upstream protocol) {
		f := newH2Front(t, client, upstream, proxy.Options{ModifyResponse: func(r *http.Response) error {
			if r.Header.Get("Refuse") != "" {
				return errors.New("refused")
			}
			return nil
		}}, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			io.ReadFull(r.Body, make([]byte, len("a part")))
			switch r.URL.Path {
			case "/reset":
				panic(http.ErrAbortHandler)
			case "/refused":
				w.Header().Set("Refuse", "it")
			}
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "16")
			w.(http.Flusher).Flush()
		})
		for path, want := range map[string]int{"/answer": 200, "/refused": 502, "/reset": 502} {
			if path == "/reset" && upstream == http1 {
				continue // net/http's transport waits for the rest of the request in any case
			}
			body, send := io.Pipe()
			go io.WriteString(send, "a part")
			response := f.do(f.request("POST", path, body))
			if _, err := io.ReadAll(response.Body); response.StatusCode != want || err != nil {
				t.Errorf("%s: answered %d, %v", path, response.StatusCode, err)
			}
			if status := response.Trailer.Get("Grpc-Status"); want == 200 && status != "16" {
				t.Errorf("%s: the trailer is %v", path, response.Trailer)
			}
			send.Close() // only after the answer has ended
		}
	})
}

// An answer may consist of a trailer alone, like gRPC's errors: its fields are in the head.
func TestHTTP2TrailersOnly(t *testing.T) {
	eachPair(t, version, version, func(t *testing.T, client, upstream protocol) {
		f := newH2Front(t, client, upstream, proxy.Options{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "12")
		})
		response := f.do(f.request("POST", "/", strings.NewReader("message")))
		if body, err := io.ReadAll(response.Body); len(body) > 0 || err != nil || response.Header.Get("Grpc-Status") != "12" {
			t.Errorf("answered %v %q, %v", response.Header, body, err)
		}
	})
}

// When the client cancels a request, before or after the answer's head, the proxy cancels its request to the upstream. Other requests
// continue.
func TestHTTP2Cancel(t *testing.T) {
	eachPair(t, version, every, func(t *testing.T, client, upstream protocol) {
		asked, ended := make(chan bool, 1), make(chan error, 1)
		f := newH2Front(t, client, upstream, proxy.Options{}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/quick" {
				return
			}
			if r.URL.Path == "/head" {
				http.NewResponseController(w).EnableFullDuplex() // otherwise net/http reads the body first over HTTP/1.1
				w.(http.Flusher).Flush()
			}
			asked <- true
			_, err := io.ReadAll(r.Body)
			if err == nil { // there was no body
				<-r.Context().Done()
				err = r.Context().Err()
			}
			ended <- err
		})
		for _, test := range []struct {
			path string
			body bool // the client continues to send a body
		}{{"/", false}, {"/head", false}, {"/head", true}, {"/", true}} {
			ctx, cancel := context.WithCancel(context.Background())
			r := f.request("GET", test.path, nil)
			if test.body {
				body, send := io.Pipe()
				defer context.AfterFunc(ctx, func() { // net/http's client ignores ctx while it reads a request's body after the answer's head
					send.CloseWithError(ctx.Err())
				})()
				go io.WriteString(send, "a part")
				r = f.request("POST", test.path, body)
			}
			failed := make(chan error, 1)
			go func() {
				response, err := f.client.Do(r.WithContext(ctx))
				if err == nil {
					_, err = io.ReadAll(response.Body)
				}
				failed <- err
			}()
			<-asked
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v: the client got %v", test, err)
			}
			if err := <-ended; err == nil {
				t.Errorf("%v: the upstream's request wasn't given up", test)
			}
			if response := f.do(f.request("GET", "/quick", nil)); response.StatusCode != 200 {
				t.Errorf("%v: the next request was answered %d", test, response.StatusCode)
			}
		}
	})
}

// If an upstream aborts its answer, only the client's stream for that request is reset, and no other stream.
func TestHTTP2BreaksOff(t *testing.T) {
	eachPair(t, version, every, func(t *testing.T, client, upstream protocol) {
		goOn := make(chan bool)
		f := newH2Front(t, client, upstream, proxy.Options{}, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "part")
			w.(http.Flusher).Flush()
			if r.URL.Path == "/broken" {
				panic(http.ErrAbortHandler)
			}
			<-goOn
			io.WriteString(w, " and the rest")
		})
		sibling := f.do(f.request("GET", "/", nil))
		broken := f.do(f.request("GET", "/broken", nil))
		if body, err := io.ReadAll(broken.Body); err == nil {
			t.Errorf("the broken answer is %q, as if it were whole", body)
		}
		close(goOn)
		if body, err := io.ReadAll(sibling.Body); string(body) != "part and the rest" || err != nil {
			t.Errorf("the sibling got %q, %v", body, err)
		}
	})
}

// An upgrade uses HTTP/1.1, which the upstream speaks on the same port.
func TestHTTP2Upgrade(t *testing.T) {
	f := newFront(t, proxy.Options{HTTP2: true, Upgrades: []string{"lines"}, Upstreams: []string{h2c.start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, r.Proto)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nby %s", r.Proto)
	})}})
	if _, body := f.do("GET", "/", ""); body != "HTTP/2.0" {
		t.Errorf("the upstream was asked by %s", body)
	}
	open := func(*net.TCPConn) {} // a tunnel may end when either side ends
	got := f.rawConn("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n", open)
	if !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.HasSuffix(got, "by HTTP/1.1") {
		t.Errorf("got %q", got)
	}
}

// If the upstream doesn't speak HTTP/2, the client gets 502.
func TestHTTP2Refused(t *testing.T) {
	f := newFront(t, proxy.Options{HTTP2: true, Upstreams: []string{http1.start(t, echo)}})
	if response, body := f.do("POST", "/", "hello"); response.StatusCode != 502 {
		t.Errorf("answered %d %q", response.StatusCode, body)
	}
}

// A request for an upstream that can't be reached goes to another one, with its body.
func TestHTTP2Retries(t *testing.T) {
	f := newFront(t, proxy.Options{HTTP2: true, Upstreams: []string{dead, h2c.start(t, echo)}})
	for range 4 {
		if response, body := f.do("POST", "/", "hello"); response.StatusCode != 200 || body != `POST / "hello" 5 <nil>`+"\n" {
			t.Errorf("answered %d %q", response.StatusCode, body)
		}
	}
}

// A filo server is the upstream of a filo proxy, with HTTP/2 on both sides.
func TestHTTP2FiloBehind(t *testing.T) {
	s := &filo.Server{Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		stream := c.Stream()
		c.Response.Trailer.Set("X-Sum", "7")
		fmt.Fprintf(stream, "%s %s %s", c.Request.Proto(), c.Host(), body)
		return stream.Flush() // without Flush the answer would have a length, so an HTTP/1.1 client could get no trailer
	}}
	address := tcptest.Serve(t, s)
	f := newFront(t, proxy.Options{HTTP2: true, Upstreams: []string{"http://" + address}})
	response, body := f.do("POST", "/", "hello")
	if response.StatusCode != 200 || body != "HTTP/2.0 "+address+" hello" || response.Trailer.Get("X-Sum") != "7" {
		t.Errorf("answered %d %q %v", response.StatusCode, body, response.Trailer)
	}
}

// When the proxy is closed, all of its connections to upstreams end.
func TestHTTP2Close(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	closed := make(chan net.Conn, 8)
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- conn
		}
	}
	s.Start()
	defer s.Close()
	f := newFront(t, proxy.Options{HTTP2: true, Upstreams: []string{s.URL}})
	f.do("GET", "/", "")
	f.proxy.Close()
	<-closed
}

// An upstream may send 128 KB of an answer before its client has read any of it.
func TestHTTP2Window(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	window := make(chan uint32, 1)
	go func() {
		defer close(window)
		conn, err := ln.Accept()
		ln.Close() // so that the proxy's next attempt fails at once
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		head := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")+9)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Error(err)
			return
		}
		settings := make([]byte, int(head[25])<<8|int(head[26]))
		if _, err := io.ReadFull(conn, settings); err != nil {
			t.Error(err)
		}
		for ; len(settings) >= 6; settings = settings[6:] {
			if binary.BigEndian.Uint16(settings) == 4 { // SETTINGS_INITIAL_WINDOW_SIZE
				window <- binary.BigEndian.Uint32(settings[2:])
			}
		}
	}()
	f := newFront(t, proxy.Options{HTTP2: true, Upstreams: []string{"http://" + ln.Addr().String()}})
	f.do("GET", "/", "") // 502
	if got := <-window; got != 128<<10 {
		t.Errorf("the window of a stream is %d bytes", got)
	}
}

// A client that holds back its body, and doesn't read, keeps an interim answer waiting. The other answers of the upstream's connection go on.
func TestInterimAnswerOfSilentClient(t *testing.T) {
	early := make(chan struct{})
	upstream := &filo.Server{Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/early" {
			c.Response.Header.Set("Link", "</a.css>")
			if err := c.EarlyHints(); err != nil {
				return err
			}
			close(early)
			_, err := c.Request.Body()
			return err
		}
		return c.Text(200, "quick")
	}}
	front := newOwnFront(t, http1, proxy.Options{Upstreams: []string{"http://" + tcptest.Serve(t, upstream)}, HTTP2: true})
	conn, err := net.Dial("tcp", strings.TrimPrefix(front.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
	<-early
	began := time.Now()
	for range 3 {
		response := front.do(front.request("GET", "/quick", nil))
		if body, err := io.ReadAll(response.Body); response.StatusCode != 200 || string(body) != "quick" || err != nil {
			t.Fatalf("%d %q %v", response.StatusCode, body, err)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the other answers took %v", took)
	}
}
