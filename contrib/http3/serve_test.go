package http3filo_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/filohttp/filo"
	http3filo "github.com/filohttp/filo/contrib/http3"
	"github.com/filohttp/filo/internal/filotest"
)

// answers is a handler with one path for each kind of answer.
func answers(c *filo.Ctx) error {
	switch c.Path() {
	case "/text":
		return c.Text(200, "hello")
	case "/echo":
		b, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "application/octet-stream", b)
	case "/length":
		return c.Text(200, fmt.Sprint(c.Request.ContentLength()))
	case "/stream":
		w := c.Stream()
		for range 3 {
			w.WriteString("part ")
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	case "/large":
		return c.Bytes(200, "application/octet-stream", bytes.Repeat([]byte("0123456789"), 100_000))
	case "/empty":
		return c.NoContent()
	case "/trailer":
		c.Response.Trailer.Set("X-Sum", "1")
		w := c.Stream()
		w.WriteString("with a trailer")
		return w.Flush()
	case "/cookies":
		return c.Text(200, c.Request.Cookie("a")+c.Request.Cookie("b"))
	case "/fields":
		c.Response.Header.Add("X-Two", "1")
		c.Response.Header.Add("X-Two", "2")
		c.Response.Header.Set("Connection", "close")
		return c.Text(200, "")
	case "/hop":
		for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Upgrade", "Transfer-Encoding", "TE"} {
			c.Response.Header.Set(name, "x")
		}
		if err := c.EarlyHints(); err != nil {
			return err
		}
		return c.Text(200, "")
	case "/panic":
		panic("a test")
	case "/teapot":
		return filo.Error(418, "short and stout")
	case "/upgrade":
		_, _, err := c.Hijack()
		return err
	}
	return filo.Error(404, "")
}

// A handler's answers are the same over HTTP/1.1, over HTTP/2 with and without TLS, and over HTTP/3.
func TestSameAnswers(t *testing.T) {
	config := &filo.Server{Handler: answers, MaxBodyBytes: 2000}
	s := serve(t, config, nil)
	plain := filotest.Serve(t, &filo.Server{Handler: answers, MaxBodyBytes: 2000, Logger: filotest.Quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}})
	byTCP := func(protocols func(*http.Protocols)) *http.Client {
		transport := &http.Transport{TLSClientConfig: filotest.ClientTLS(), Protocols: new(http.Protocols)}
		protocols(transport.Protocols)
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: filotest.Bound}
	}
	clients := []struct {
		proto, base string
		client      *http.Client
	}{
		{"HTTP/1.1", "https://" + s.Addr, byTCP(func(p *http.Protocols) { p.SetHTTP1(true) })},
		{"HTTP/2.0", "https://" + s.Addr, byTCP(func(p *http.Protocols) { p.SetHTTP2(true) })},
		{"HTTP/2.0", "http://" + plain.Addr, byTCP(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })},
		{"HTTP/3.0", "https://" + s.Addr, s.client(t)},
	}
	for _, each := range []struct{ method, path, body string }{
		{"GET", "/text", ""}, {"HEAD", "/text", ""}, {"POST", "/echo", "a body"}, {"PUT", "/echo", strings.Repeat("x", 2000)},
		{"POST", "/echo", strings.Repeat("x", 2001)}, {"POST", "/length", "12345"}, {"GET", "/stream", ""}, {"GET", "/large", ""},
		{"HEAD", "/large", ""}, {"GET", "/empty", ""}, {"GET", "/trailer", ""}, {"GET", "/cookies", ""}, {"GET", "/fields", ""},
		{"GET", "/panic", ""}, {"GET", "/teapot", ""}, {"GET", "/nothing", ""}, {"QUERY", "/echo", "q"}, {"GET", "/text?" + strings.Repeat("q", 9000), ""},
	} {
		var want string
		for _, by := range clients {
			request, err := http.NewRequest(each.method, by.base+each.path, strings.NewReader(each.body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Add("Cookie", "a=1; b=2")
			r, err := by.client.Do(request)
			if err != nil {
				t.Fatalf("%s %s by %s: %v", each.method, each.path, by.proto, err)
			}
			body, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.Proto != by.proto {
				t.Errorf("%s %s by %s: %s, %v", each.method, each.path, by.proto, r.Proto, err)
			}
			r.Header.Del("Date")
			r.Header.Del("Connection") // only HTTP/1.1 has this field
			got := fmt.Sprintf("%d %v %v %.40q %d", r.StatusCode, r.Header, r.Trailer, body, len(body))
			if want == "" {
				want = got
			} else if got != want {
				t.Errorf("%s %.40s by %s:\n%s, and by HTTP/1.1\n%s", each.method, each.path, by.proto, got, want)
			}
		}
	}
}

// Handlers get the right protocol and addresses. The length of a missing body is 0.
func TestRequest(t *testing.T) {
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprintln(c.Request.Proto(), c.RemoteAddr() != nil, c.RemoteAddrPort().Addr(), c.LocalAddr(), c.TLS().NegotiatedProtocol))
	}}, nil)
	if _, body := s.ask(t, s.client(t), "GET", "/", ""); body != "HTTP/3.0 true 127.0.0.1 "+s.Addr+" h3\n" {
		t.Error(body)
	}
	if st := s.config.Stats(); st.Requests[2] != 1 || st.ConnsHTTP3 != 1 {
		t.Errorf("Stats counts %d answers, and %d connections", st.Requests[2], st.ConnsHTTP3)
	}
}

// A request of unknown length, with trailers, is answered while it is still being sent, so bytes flow in both directions at once.
func TestDuplex(t *testing.T) {
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		body, w, b := c.Request.BodyReader(), c.Stream(), make([]byte, 100)
		for {
			n, err := body.Read(b)
			if err == io.EOF {
				_, err = w.WriteString("trailer " + string(c.Request.Trailer.Get("X-Sum")))
				return err
			}
			if err != nil {
				return err
			}
			w.Write(b[:n])
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}}, nil)
	in, out := io.Pipe()
	request, err := http.NewRequest("POST", "https://"+s.Addr+"/", in)
	if err != nil {
		t.Fatal(err)
	}
	request.Trailer = http.Header{"X-Sum": nil}
	go io.WriteString(out, "ping")
	r, err := s.client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b := make([]byte, 4)
	if _, err := io.ReadFull(r.Body, b); string(b) != "ping" {
		t.Fatalf("%q, %v", b, err)
	}
	request.Trailer.Set("X-Sum", "42")
	out.Close()
	if rest, err := io.ReadAll(r.Body); string(rest) != "trailer 42" {
		t.Errorf("%q, %v", rest, err)
	}
}

// HTTP/2 and HTTP/3 demand the same client certificates for a host, even if the host's name is in another case, matches a wildcard or is missing.
func TestClientCertificates(t *testing.T) {
	strict := &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	strict.ClientCAs.AddCert(filotest.Certificate().Leaf)
	base := &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		switch {
		case hello.ServerName == "strict.test", strings.HasSuffix(hello.ServerName, ".wild.test"):
			return strict, nil
		case hello.ServerName == "none.test":
			return nil, errors.New("no such host")
		}
		return nil, nil
	}
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprint(len(c.TLS().PeerCertificates)))
	}, TLSConfig: base}, nil)
	result := func(client *http.Client, host string) string {
		request, err := http.NewRequest("GET", "https://"+s.Addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		r, err := client.Do(request)
		if err != nil {
			return "refused"
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return "refused"
		}
		return fmt.Sprintf("%d %s", r.StatusCode, body)
	}
	seen := make(map[string]int)
	for _, name := range []string{"open.test", "strict.test", "STRICT.test", "a.wild.test", "A.Wild.Test", "none.test", ""} {
		for _, certificate := range []bool{false, true} {
			for _, host := range []string{name, strings.ToUpper(name), "open.test", "strict.test", "b.wild.test", "127.0.0.1", "strict.test:443"} {
				change := func(c *tls.Config) {
					c.ServerName, c.InsecureSkipVerify = name, true
					if name == "" {
						c.ServerName = "127.0.0.1" // an address isn't sent as a name
					}
					if certificate {
						c.Certificates = []tls.Certificate{filotest.Certificate()}
					}
				}
				h2 := filotest.ClientTLS()
				change(h2)
				h2.NextProtos = []string{"h2"}
				transport := &http.Transport{TLSClientConfig: h2, ForceAttemptHTTP2: true}
				want := result(&http.Client{Transport: transport, Timeout: filotest.Bound}, host)
				transport.CloseIdleConnections()
				client := s.client(t, change)
				got := result(client, host)
				client.Transport.(io.Closer).Close()
				if got != want {
					t.Errorf("name %q, certificate %t, host %q: %s by HTTP/3, %s by HTTP/2", name, certificate, host, got, want)
				}
				seen[strings.Split(want, " ")[0]]++
			}
		}
	}
	if seen["200"] == 0 || seen["421"] == 0 || seen["refused"] == 0 {
		t.Errorf("the cases are one-sided: %v", seen)
	}
}

// A client with a resumed session sends nothing before the handshake has ended.
func TestNoEarlyData(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers}, nil)
	config := filotest.ClientTLS()
	config.NextProtos, config.ClientSessionCache = []string{"h3"}, tls.NewLRUClientSessionCache(1)
	resumed := false
	for range 3 {
		q, err := quic.DialAddrEarly(t.Context(), s.Addr, config, patient(nil))
		if err != nil {
			t.Fatal(err)
		}
		stream := open(t, q, head("GET", "/text"))
		stream.Close()
		io.ReadAll(stream)
		state := q.ConnectionState()
		if resumed = state.TLS.DidResume; state.Used0RTT {
			t.Error("a request was sent by 0-RTT")
		}
		q.CloseWithError(0x100, "")
	}
	if !resumed {
		t.Error("no connection was resumed")
	}
}

// Alt-Svc tells clients that the server speaks HTTP/3, and during a shutdown that it no longer does.
func TestAltSvc(t *testing.T) {
	gate := make(chan struct{})
	s := serve(t, &filo.Server{Handler: http3filo.AltSvc(443)(func(c *filo.Ctx) error {
		if c.Path() == "/wait" {
			<-c.ShuttingDown()
			return c.Text(200, "late")
		}
		return c.Text(200, "ok")
	})}, nil)
	tcp := &http.Client{Transport: &http.Transport{TLSClientConfig: filotest.ClientTLS(), ForceAttemptHTTP2: true}, Timeout: filotest.Bound}
	for _, c := range []*http.Client{tcp, s.client(t)} {
		if r, _ := s.ask(t, c, "GET", "/", ""); r.Header.Get("Alt-Svc") != `h3=":443"; ma=86400` {
			t.Errorf("by %s: %v", r.Proto, r.Header)
		}
	}
	go func() {
		defer close(gate)
		filotest.Try(func() bool { return len(s.config.Running()) == 1 })
		s.config.Shutdown(t.Context())
	}()
	// Shutdown begins while the handler waits, when the middleware has already set the field.
	if r, body := s.ask(t, tcp, "GET", "/wait", ""); body != "late" {
		t.Errorf("%v %s", r.Header, body)
	}
	filotest.Recv(t, gate, "Shutdown")
	plain := filotest.Serve(t, &filo.Server{Handler: http3filo.AltSvc(443)(answers), Logger: filotest.Quiet})
	if r, err := http.Get("http://" + plain.Addr + "/text"); err != nil || r.Header.Get("Alt-Svc") != "" {
		t.Errorf("without TLS: %v, %v", r, err)
	}
}

// Shutdown sends GOAWAY to clients, and waits for running requests. An idle client's connection ends. Close ends connections at once.
func TestShutdown(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() == "/wait" {
			<-release
		}
		return c.Bytes(200, "text/plain", bytes.Repeat([]byte("x"), 1<<20))
	}}, nil)
	idle, busy := s.client(t), s.client(t)
	s.ask(t, idle, "GET", "/", "")
	silent, q := s.raw(t, nil), s.raw(t, nil)
	waiting := open(t, q, head("GET", "/wait")) // keeps the connection open until the handler is released
	waiting.Close()
	answered := make(chan string, 1)
	go func() {
		r, err := s.try(busy, "GET", "/wait", "")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer r.Body.Close()
		answered <- r.Status
	}()
	filotest.Await(t, "the requests", func() bool { return s.config.Stats().RequestsCarried == 2 })
	if st := s.config.Stats(); st.ConnsHTTP3 != 4 || st.StreamsHTTP3 != 2 {
		t.Errorf("Stats counts %d connections and %d requests of HTTP/3", st.ConnsHTTP3, st.StreamsHTTP3)
	}
	down := make(chan error, 1)
	go func() { down <- s.config.Shutdown(t.Context()) }()
	goneAway := func() bool {
		control, err := q.AcceptUniStream(t.Context())
		if err != nil {
			return false
		}
		b := make([]byte, 64)
		for all := []byte(nil); ; {
			n, err := control.Read(b)
			all = append(all, b[:n]...)
			if bytes.HasSuffix(all, []byte{7, 1, 4}) { // GOAWAY, up to stream 4
				return true
			}
			if err != nil {
				t.Logf("the control stream: %x, %v", all, err)
				return false
			}
		}
	}
	if !goneAway() {
		t.Error("no GOAWAY")
	}
	stream := open(t, q, head("GET", "/"))
	var reset *quic.StreamError
	if _, err := stream.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.ErrorCode != 0x10b {
		t.Errorf("a request behind GOAWAY: %v", err)
	}
	var closed *quic.ApplicationError
	filotest.Recv(t, silent.Context().Done(), "the silent connection's end")
	if err := context.Cause(silent.Context()); !errors.As(err, &closed) || closed.ErrorCode != 0x100 {
		t.Errorf("an idle connection ended by %v", err)
	}
	select {
	case err := <-s.served:
		t.Fatalf("Serve returned %v during a request", err)
	default:
	}
	close(release)
	go io.Copy(io.Discard, waiting)
	if got := filotest.Recv(t, answered, "the answer"); got != "200 OK" {
		t.Error(got)
	}
	if err := filotest.Recv(t, down, "Shutdown"); err != nil {
		t.Error(err)
	}
	err := filotest.Recv(t, s.served, "Serve's return")
	if st := s.config.Stats(); st.ConnsHTTP3 != 0 || st.StreamsHTTP3 != 0 {
		t.Errorf("Stats still counts %d connections and %d requests of HTTP/3", st.ConnsHTTP3, st.StreamsHTTP3)
	}
	if s.served <- err; !errors.Is(err, filo.ErrServerClosed) { // the cleanup of the test receives this value again
		t.Error(err)
	}
}

// Without a certificate, or after Shutdown, Serve fails at once and closes the socket.
func TestServeFails(t *testing.T) {
	ended := &filo.Server{Handler: answers, TLSConfig: &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}, Logger: filotest.Quiet}
	ended.Close()
	for name, each := range map[string]struct {
		s    *filo.Server
		want string
	}{
		"no certificate": {&filo.Server{Handler: answers}, "http3filo: Server.TLSConfig has neither"},
		"ended":          {ended, filo.ErrServerClosed.Error()},
	} {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := http3filo.Serve(each.s, packets); err == nil || !strings.HasPrefix(err.Error(), each.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := packets.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the socket: %v", name, err)
		}
	}
	if err := http3filo.ListenAndServe(ended, "256.0.0.1:1"); err == nil {
		t.Error("served an address that doesn't exist")
	}
}

// systemd passes a socket on as descriptor 3. The socket survives the server that uses it.
func TestSocketOfSystemd(t *testing.T) {
	if os.Getenv("HTTP3_CHILD") != "" {
		packets, err := net.FilePacketConn(os.NewFile(3, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		s := &filo.Server{Handler: answers, TLSConfig: &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}}
		certFile, keyFile := os.Getenv("HTTP3_CERT"), os.Getenv("HTTP3_KEY")
		certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		s.TLSConfig.Certificates[0] = certificate
		go func() {
			io.ReadAll(os.Stdin) // until the parent closes it
			s.Shutdown(context.Background())
		}()
		if err := http3filo.Serve(s, packets); !errors.Is(err, filo.ErrServerClosed) {
			t.Fatal(err)
		}
		return
	}
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	file, err := packets.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	certFile, keyFile := filotest.CertificateFiles(t)
	for range 2 {
		child := exec.Command(os.Args[0], "-test.run=^TestSocketOfSystemd$")
		child.Env = slices.Concat(os.Environ(), []string{"HTTP3_CHILD=1", "HTTP3_CERT=" + certFile, "HTTP3_KEY=" + keyFile})
		child.ExtraFiles = []*os.File{file}
		stdin, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var output bytes.Buffer
		child.Stdout, child.Stderr = &output, &output
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		s := &server{Server: &filotest.Server{}}
		s.Addr = packets.LocalAddr().String()
		if r, body := s.ask(t, s.client(t), "GET", "/text", ""); r.Proto != "HTTP/3.0" || body != "hello" {
			t.Errorf("%s %s", r.Proto, body)
		}
		stdin.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("%v: %s", err, output.String())
		}
	}
}

// A rolling restart over two ports cuts no answer off. On one port, a new server can't listen before the old server's Serve has returned; until
// then clients use TCP.
func TestRestart(t *testing.T) {
	old := serve(t, &filo.Server{Handler: answers}, nil)
	packets, err := net.ListenPacket("udp", old.Addr)
	if err == nil {
		packets.Close()
		t.Error("a second socket has got the port")
	}
	successor := serve(t, &filo.Server{Handler: answers}, nil)
	stop, done := make(chan struct{}), make(chan int)
	go func() { // sends requests all the time, like a balancer that knows which server is ready
		client, n := old.client(t), 0
		defer func() { done <- n }()
		for {
			target := old
			select {
			case <-stop:
				target = successor
				if client = successor.client(t); n < 0 {
					return
				}
			default:
			}
			r, err := target.try(client, "GET", "/large", "")
			if err != nil && target == old {
				select {
				case <-stop: // the request arrived after Shutdown had begun, so a balancer sends it to the successor
					continue
				default:
				}
			}
			if err == nil {
				var length int64
				length, err = io.Copy(io.Discard, r.Body)
				r.Body.Close()
				if length != 1_000_000 {
					err = fmt.Errorf("%d bytes: %w", length, err)
				}
			}
			if err != nil {
				t.Errorf("request %d: %v", n, err)
				return
			}
			if n++; target == successor {
				return
			}
		}
	}()
	filotest.Await(t, "some requests", func() bool { return old.config.Stats().Requests[2] > 5 })
	close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), filotest.Bound)
	defer cancel()
	if err := old.config.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if n := <-done; n < 6 {
		t.Errorf("only %d requests", n)
	}
	err = filotest.Recv(t, old.served, "Serve's return")
	old.served <- err
	if packets, err = net.ListenPacket("udp", old.Addr); err != nil {
		t.Fatalf("the port isn't free: %v", err)
	}
	packets.Close()
}

// Answers and bodies arrive whole over a network that loses and reorders packets.
func TestLoss(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers}, func(packets net.PacketConn) net.PacketConn { return &lossy{PacketConn: packets} })
	client := s.client(t)
	client.Timeout = 2 * time.Minute
	for range 3 {
		if _, body := s.ask(t, client, "GET", "/large", ""); len(body) != 1_000_000 || strings.Count(body, "0123456789") != 100_000 {
			t.Errorf("%d bytes", len(body))
		}
		if _, body := s.ask(t, client, "POST", "/echo", strings.Repeat("abc", 300_000)); body != strings.Repeat("abc", 300_000) {
			t.Errorf("%d bytes", len(body))
		}
	}
}

// lossy loses every fiftieth datagram in each direction, and sends every seventh datagram after the one that follows it.
type lossy struct {
	net.PacketConn
	in, out int
	late    []byte
}

// ReadFrom implements net.PacketConn. Only one goroutine of the transport calls it, so it needs no lock.
func (l *lossy) ReadFrom(p []byte) (n int, addr net.Addr, err error) {
	for {
		n, addr, err = l.PacketConn.ReadFrom(p)
		if l.in++; err != nil || l.in%50 != 0 {
			return n, addr, err
		}
	}
}

// WriteTo implements net.PacketConn. Only one connection sends, and only one of its goroutines, so it needs no lock.
func (l *lossy) WriteTo(p []byte, addr net.Addr) (int, error) {
	switch l.out++; {
	case l.out%50 == 0:
		return len(p), nil
	case l.out%7 == 0 && l.late == nil:
		l.late = bytes.Clone(p)
		return len(p), nil
	}
	n, err := l.PacketConn.WriteTo(p, addr)
	if l.late != nil {
		l.PacketConn.WriteTo(l.late, addr)
		l.late = nil
	}
	return n, err
}

// A client is told to leave by an answer with Connection: close, and by each answer while keep-alives are off. The time-out of one handler
// doesn't end the connection, which may carry other requests.
func TestConnectionClose(t *testing.T) {
	var s *server
	s = serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/close":
			c.Response.SetClose()
		case "/off":
			s.config.SetKeepAlivesEnabled(false)
		case "/late":
			c.SetTimeout(time.Nanosecond, nil)
			<-c.Context().Done()
			return c.Context().Err()
		}
		return c.Text(200, "hello")
	}}, nil)
	for _, path := range []string{"/close", "/off"} {
		q := s.raw(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), filotest.Bound)
		defer cancel()
		control, err := q.AcceptUniStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range []string{"/late", "/", path} {
			stream := open(t, q, head("GET", each))
			stream.Close()
			if answer, err := io.ReadAll(stream); err != nil || each != "/late" && !bytes.HasSuffix(answer, []byte("hello")) {
				t.Fatalf("%s: %q, %v", each, answer, err)
			}
		}
		control.SetReadDeadline(time.Now().Add(filotest.Bound))
		sent, err := io.ReadAll(control)
		if !bytes.HasSuffix(sent, []byte{7, 1, 12}) {
			t.Errorf("%s: the control stream has %x, %v, which doesn't end with GOAWAY for a fourth request", path, sent, err)
		}
	}
}

// The answer of a handler's time-out ends the handler's wait for the request's body.
func TestTimeoutEndsRead(t *testing.T) {
	read := make(chan error, 1)
	s := serve(t, &filo.Server{ReadTimeout: -1, MinTransferRate: -1, Handler: func(c *filo.Ctx) error {
		c.SetTimeout(20*time.Millisecond, nil)
		_, err := io.Copy(io.Discard, c.BodyReader())
		read <- err
		return err
	}}, nil)
	stream := open(t, s.raw(t, nil), append(head("POST", "/", "content-length", "100"), frame(0, []byte("part"))...))
	if err := filotest.Recv(t, read, "the end of the read"); !errors.Is(err, filo.ErrHandlerTimeout) {
		t.Errorf("the read ended with %v", err)
	}
	if answer, err := io.ReadAll(stream); err != nil || !bytes.Contains(answer, []byte("took too long")) {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	if got := s.config.Stats().Timeouts; got != (filo.Timeouts{Handler: 1}) {
		t.Errorf("the time-outs are %+v", got)
	}
}
