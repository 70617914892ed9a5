package guard_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/guard"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

const secret = "correct-horse-battery"

func basic(user, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func from(address string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1234))
}

func guarded(options guard.Options) filo.Handler {
	return guard.New("test", options)(func(c *filo.Ctx) error { return c.Text(200, "inside") })
}

// operators returns a server with the handler and with ForOperator set.
func operators(t testing.TB, handler filo.Handler) *servertest.Server {
	return servertest.NewServer(t, &filo.Server{Handler: handler, ForOperator: true, Logger: slog.New(slog.DiscardHandler)})
}

// With ForOperator, only clients on the same machine are admitted. Each case is an attempt to get around this rule, or a client that must be
// admitted.
func TestLocal(t *testing.T) {
	s := operators(t, guarded(guard.Options{Hosts: []string{"box.example"}}))
	for _, test := range []struct {
		says   string
		client string
		host   string
		fields []string
		status int
	}{
		{"a client on this machine", "127.0.0.1", "localhost", nil, 200},
		{"all of 127.0.0.0/8 is this machine", "127.9.8.7", "127.0.0.1:8080", nil, 200},
		{"by IPv6", "::1", "[::1]:8080", nil, 200},
		{"by IPv6 without a port", "::1", "[::1]", nil, 200},
		{"an IPv4 address that came as an IPv6 one", "::ffff:127.0.0.1", "localhost", nil, 200},
		{"case and the last dot don't count", "127.0.0.1", "LOCALHOST.:80", nil, 200},
		{"names below localhost are this machine", "127.0.0.1", "app.localhost:80", nil, 200},
		{"a host that was named", "127.0.0.1", "Box.Example:80", nil, 200},

		{"another machine", "192.0.2.1", "localhost", nil, 404},
		{"one of a private network", "10.0.0.1", "localhost", nil, 404},
		{"one with a link-local address", "fe80::1", "localhost", nil, 404},
		{"the address that stands for all", "0.0.0.0", "localhost", nil, 404},

		{"a name whose owner gave it 127.0.0.1", "127.0.0.1", "evil.test", nil, 404},
		{"a name that begins as this machine", "127.0.0.1", "localhost.evil.test", nil, 404},
		{"a name that ends as this machine", "127.0.0.1", "evillocalhost", nil, 404},
		{"a name that begins as an address", "127.0.0.1", "127.0.0.1.evil.test", nil, 404},
		{"an empty label before localhost", "127.0.0.1", ".localhost", nil, 404},
		{"below a host that was named", "127.0.0.1", "a.box.example", nil, 404},
		{"an address of another machine", "127.0.0.1", "192.0.2.1", nil, 404},
		{"the address that stands for all", "127.0.0.1", "0.0.0.0", nil, 404},
		{"a name so long that it is none", "127.0.0.1", strings.Repeat("a", 300) + ".localhost", nil, 404},

		{"a proxy that says for whom", "127.0.0.1", "localhost", []string{"X-Forwarded-For: 127.0.0.1"}, 404},
		{"in any case", "127.0.0.1", "localhost", []string{"x-FORWARDED-for: 127.0.0.1"}, 404},
		{"an empty one", "127.0.0.1", "localhost", []string{"X-Forwarded-For:"}, 404},
		{"a kind of its own", "127.0.0.1", "localhost", []string{"X-Forwarded-Something: a"}, 404},
		{"RFC 7239", "127.0.0.1", "localhost", []string{"Forwarded: for=127.0.0.1"}, 404},
		{"RFC 9110, section 7.6.3", "127.0.0.1", "localhost", []string{"Via: 1.1 proxy"}, 404},
		{"as nginx is often set up", "127.0.0.1", "localhost", []string{"X-Real-IP: 127.0.0.1"}, 404},
		{"a content network", "127.0.0.1", "localhost", []string{"CF-Connecting-IP: 127.0.0.1"}, 404},
		{"a sidecar", "127.0.0.1", "localhost", []string{"X-Envoy-External-Address: 127.0.0.1"}, 404},
		{"one that knows the user", "127.0.0.1", "localhost", []string{"Remote-User: a"}, 404},
		{"one that counts its hops", "127.0.0.1", "localhost", []string{"CDN-Loop: a"}, 404},
		{"behind others", "127.0.0.1", "localhost", []string{"Accept: */*", "Accept: a/b", "True-Client-IP: ::1"}, 404},
		{"a long field that begins as one", "127.0.0.1", "localhost", []string{"X-Forwarded-" + strings.Repeat("a", 100) + ": a"}, 404},
		{"fields that say nothing of proxies", "127.0.0.1", "localhost", []string{"User-Agent: curl", "X-Request-ID: 1", "Vian: a"}, 200},

		{"a page of another site", "127.0.0.1", "localhost", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image"}, 404},
		{"a script of another port", "127.0.0.1", "localhost", []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: empty"}, 404},
		{"shown in another site's page", "127.0.0.1", "localhost", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe"}, 404},
		{"a link that was followed", "127.0.0.1", "localhost", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"}, 200},
		{"the page itself", "127.0.0.1", "localhost", []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"}, 200},
		{"typed in", "127.0.0.1", "localhost", []string{"Sec-Fetch-Site: none", "Sec-Fetch-Dest: document"}, 200},
	} {
		if got := s.DoFrom(t, from(test.client), "GET http://"+test.host+"/", test.fields...); got.Status != test.status {
			t.Errorf("%s: %s asks %s with %q: %d, want %d", test.says, test.client, test.host, test.fields, got.Status, test.status)
		}
	}
}

// A link on another site may lead to a guarded page, but a form on that site can't be sent to it.
func TestLocalForm(t *testing.T) {
	s := operators(t, guarded(guard.Options{}))
	document := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate"}
	for method, status := range map[string]int{"GET": 200, "HEAD": 200, "POST": 404, "PUT": 404} {
		if got := s.DoFrom(t, from("127.0.0.1"), method+" http://localhost/", document...); got.Status != status {
			t.Errorf("%s: %d, want %d", method, got.Status, status)
		}
	}
}

// Over plain HTTP, browsers send no Sec-Fetch-Site to hosts other than localhost. But they send Origin with requests that forms and scripts on a page
// of another site make.
func TestOriginWithoutSite(t *testing.T) {
	s := operators(t, guarded(guard.Options{Hosts: []string{"devbox"}}))
	withToken := servertest.New(t, guarded(guard.Options{Token: secret}))
	for _, test := range []struct {
		says, method string
		fields       []string
		status       int
	}{
		{"a form of another site", "POST", []string{"Origin: http://evil.test"}, 404},
		{"a form of another port", "POST", []string{"Origin: http://devbox"}, 404},
		{"a form of nobody's", "POST", []string{"Origin: null"}, 404},
		{"a script of another site", "GET", []string{"Origin: http://evil.test"}, 404},
		{"two origins", "POST", []string{"Origin: http://devbox:8080", "Origin: http://evil.test"}, 404},
		{"a form of its own", "POST", []string{"Origin: http://devbox:8080"}, 200},
		{"behind a proxy that has taken TLS off", "POST", []string{"Origin: https://DEVBOX:8080"}, 200},
		{"no browser", "POST", nil, 200},
		{"a browser that says more", "POST", []string{"Origin: null", "Sec-Fetch-Site: same-origin"}, 200},
	} {
		target := test.method + " http://devbox:8080/"
		if got := s.DoFrom(t, from("127.0.0.1"), target, test.fields...); got.Status != test.status {
			t.Errorf("%s: %d, want %d", test.says, got.Status, test.status)
		}
		// A browser adds the password automatically.
		if got := withToken.Do(t, target, append(test.fields, basic("a", secret))...); got.Status != test.status {
			t.Errorf("%s, with a token: %d, want %d", test.says, got.Status, test.status)
		}
	}
}

// These requests must be sent as text, since servertest can't make them: they have an old version, or two hosts.
func TestLocalRaw(t *testing.T) {
	s := operators(t, guarded(guard.Options{}))
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":                    "200",
		"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n":                                         "404", // a proxy's version
		"GET / HTTP/1.0\r\n\r\n":                                                            "404",
		"GET http://evil.test/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":    "404", // the target's host counts
		"GET / HTTP/1.1\r\nHost: localhost:80:80\r\nConnection: close\r\n\r\n":              "400",
		"GET / HTTP/1.1\r\nHost: ::1\r\nConnection: close\r\n\r\n":                          "4",
		"GET / HTTP/1.1\r\nHost: [127.0.0.1]\r\nConnection: close\r\n\r\n":                  "4",
		"GET / HTTP/1.1\r\nHost: localhost@evil.test\r\nConnection: close\r\n\r\n":          "4",
		"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n": "400",
	} {
		c, err := s.Listener.DialFrom(from("127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, request)
		answer := make([]byte, 12)
		if _, err := c.Read(answer); err != nil {
			t.Fatal(err)
		}
		if got := string(answer[9:]); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", request, got, want)
		}
		c.Close()
	}
}

// A peer that has no IP address and isn't connected to a Unix socket may be on any machine.
func TestLocalWithoutAddress(t *testing.T) {
	if got := operators(t, guarded(guard.Options{})).Do(t, "GET http://localhost/"); got.Status != 404 {
		t.Errorf("%d", got.Status)
	}
}

// Without ForOperator no client is admitted, since the peer may be a proxy on this machine that adds no field. The log says once what to do.
func TestUndeclared(t *testing.T) {
	var log mwtest.Log
	s := servertest.NewServer(t, &filo.Server{Handler: guarded(guard.Options{Hosts: []string{"devbox"}}), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	for _, client := range []string{"127.0.0.1", "::1", "192.0.2.1"} {
		for _, host := range []string{"localhost", "127.0.0.1:8080", "devbox", "example.com"} {
			if got := s.DoFrom(t, from(client), "GET http://"+host+"/"); got.Status != 404 {
				t.Errorf("%s asks for %s: %d", client, host, got.Status)
			}
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "Token") || !strings.Contains(log.String(), "ForOperator") {
		t.Errorf("%d records: %s", n, log.String())
	}
}

// With each driver, protocol and kind of socket, the server's options decide, not the peer's address. On a connection with a PROXY header no client
// is admitted, whatever the header says about it.
func TestListeners(t *testing.T) {
	unspecified := "\r\n\r\n\x00\r\nQUIT\n"
	headers := map[string]string{
		"v1 of a client here": "PROXY TCP4 127.0.0.1 127.0.0.1 1234 80\r\n", "v1 UNKNOWN": "PROXY UNKNOWN\r\n",
		"v2 LOCAL": unspecified + "\x20\x00\x00\x00", "v2 UNSPEC": unspecified + "\x21\x00\x00\x00",
		"v2 AF_UNIX": unspecified + "\x21\x31\x00\xd8" + strings.Repeat("/", 216), "none": "",
	}
	for _, driver := range []filo.Driver{filo.DriverBlocking, filo.DriverAuto} {
		for _, network := range []string{"tcp", "unix"} {
			for _, declared := range []bool{false, true} {
				for name, header := range headers {
					if !declared && header != "" {
						continue
					}
					handler := guarded(guard.Options{})
					if driver == filo.DriverAuto { // net/http middleware must not hide the connection from the guard
						handler = adaptor.Middleware(func(next http.Handler) http.Handler {
							return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(struct{ http.ResponseWriter }{w}, r) })
						})(handler)
					}
					server := &filo.Server{Handler: handler, Driver: driver, ForOperator: declared, Logger: slog.New(slog.DiscardHandler),
						HTTP2: filo.HTTP2Options{Unencrypted: true}}
					if header != "" {
						server.ProxyProtocol = filo.ProxyProtocol{TrustedPeers: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TrustUnixSocket: true}
					}
					want := 404
					if declared && header == "" {
						want = 200
					}
					for _, version := range []int{1, 2} {
						if got := ask(t, server, network, header, version); got != want {
							t.Errorf("%v, %s, HTTP/%d, declared %v, header %s: %d, want %d", driver, network, version, declared, name, got, want)
						}
					}
					server.Close()
				}
			}
		}
	}
}

// ask makes the server listen on a new socket, and returns the status of a request on a connection that begins with the header.
func ask(t *testing.T, server *filo.Server, network, header string, version int) int {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go server.Serve(listener)
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
		c, err := net.Dial(network, listener.Addr().String())
		if err == nil {
			_, err = io.WriteString(c, header)
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetUnencryptedHTTP2(version == 2)
	response, err := (&http.Client{Transport: transport}).Get("http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// A client that isn't admitted gets the same answer as if there were no handler, whatever media type it accepts.
func TestHidden(t *testing.T) {
	without, with := router.New(), router.New()
	with.Handle("/page", guarded(guard.Options{}))
	for _, accept := range []string{"", "Accept: application/json", "Accept: text/html"} {
		want := servertest.New(t, without.Serve).DoFrom(t, from("192.0.2.1"), "GET http://localhost/page", accept+"\r\nA: b")
		got := servertest.New(t, with.Serve).DoFrom(t, from("192.0.2.1"), "GET http://localhost/page", accept+"\r\nA: b")
		got.Header.Del("Date")
		want.Header.Del("Date")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

func TestToken(t *testing.T) {
	s := servertest.New(t, guarded(guard.Options{Token: secret}))
	for _, test := range []struct {
		says   string
		fields []string
		status int
	}{
		{"without", nil, 401},
		{"the token", []string{"Authorization: Bearer " + secret}, 200},
		{"a scheme is compared without case", []string{"authorization: bEARER   " + secret}, 200},
		{"as a password", []string{basic("anybody", secret)}, 200},
		{"as a password without a user", []string{basic("", secret)}, 200},
		{"a proxy may be in front", []string{basic("", secret), "X-Forwarded-For: 192.0.2.1"}, 200},
		{"as a user", []string{basic(secret, "")}, 401},
		{"another one", []string{"Authorization: Bearer wrong-horse-battery"}, 401},
		{"its beginning", []string{"Authorization: Bearer " + secret[:len(secret)-1]}, 401},
		{"with more behind it", []string{"Authorization: Bearer " + secret + "s"}, 401},
		{"twice", []string{basic("a", secret+":"+secret)}, 401},
		{"an empty one", []string{"Authorization: Bearer "}, 401},
		{"an unknown scheme", []string{"Authorization: Digest " + secret}, 401},
		{"no scheme", []string{"Authorization: " + secret}, 401},
		{"no base64", []string{"Authorization: Basic !"}, 401},
		{"no colon", []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(secret))}, 401},
		{"a password beyond all measure", []string{basic("a", strings.Repeat("a", 8000))}, 401},
		{"in the wrong field", []string{"Proxy-Authorization: Bearer " + secret}, 401},
		{"by a page of another site, whose browser knows it", []string{basic("a", secret), "Sec-Fetch-Site: cross-site"}, 404},
	} {
		got := s.Do(t, "GET /", test.fields...)
		if got.Status != test.status {
			t.Errorf("%s: %d, want %d", test.says, got.Status, test.status)
		}
		if challenge := got.Header.Get("WWW-Authenticate"); (got.Status == 401) != (challenge != "") {
			t.Errorf("%s: %d with WWW-Authenticate %q", test.says, got.Status, challenge)
		}
		if strings.Contains(fmt.Sprint(got), secret) {
			t.Errorf("%s: the token is in the answer: %v", test.says, got)
		}
	}
	if got := s.Do(t, "GET /?token="+secret); got.Status != 401 {
		t.Errorf("in the query, which is logged everywhere: %d", got.Status)
	}
}

func TestAllow(t *testing.T) {
	s := operators(t, guarded(guard.Options{Allow: func(c *filo.Ctx) bool { return c.Query("let") == "in" }}))
	if got := s.Do(t, "GET /?let=in"); got.Status != 200 {
		t.Errorf("allowed: %d", got.Status)
	}
	if got := s.DoFrom(t, from("127.0.0.1"), "GET http://localhost/"); got.Status != 404 {
		t.Errorf("Allow decides alone, for this machine too: %d", got.Status)
	}
}

// The header fields of an answer keep it from everyone but the client that requested it.
func TestFields(t *testing.T) {
	got := servertest.New(t, guarded(guard.Options{Token: secret})).Do(t, "GET /", "Authorization: Bearer "+secret)
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
}

func TestOptions(t *testing.T) {
	always := func(*filo.Ctx) bool { return true }
	for name, options := range map[string]guard.Options{
		"both":                      {Allow: always, Token: secret},
		"a short token":             {Token: "short"},
		"a long token":              {Token: strings.Repeat("a", 513)},
		"a token with a space":      {Token: secret + " a"},
		"a token with a line break": {Token: secret + "\r\nA: b"},
		"a token that isn't ASCII":  {Token: secret + "é"},
		"hosts for a token":         {Token: secret, Hosts: []string{"a.test"}},
		"hosts for Allow":           {Allow: always, Hosts: []string{"a.test"}},
		"an empty host":             {Hosts: []string{""}},
		"a host with a port":        {Hosts: []string{"a.test:80"}},
		"a pattern":                 {Hosts: []string{"*.a.test"}},
		"a URL":                     {Hosts: []string{"http://a.test"}},
		"a host with a line break":  {Hosts: []string{"a.test\r\n"}},
	} {
		message := func() (message string) {
			defer func() { message = fmt.Sprint(recover()) }()
			guard.New("test", options)
			return ""
		}()
		if !strings.HasPrefix(message, "test: ") {
			t.Errorf("%s: panics with %q", name, message)
		}
	}
}

func BenchmarkLocal(b *testing.B) { benchmark(b, guard.Options{}) }
func BenchmarkToken(b *testing.B) {
	benchmark(b, guard.Options{Token: secret}, "Authorization: Bearer "+secret)
}

func benchmark(b *testing.B, options guard.Options, fields ...string) {
	b.ReportAllocs()
	pass := guard.New("test", options)(func(*filo.Ctx) error { return nil })
	s := operators(b, func(c *filo.Ctx) error {
		for b.Loop() {
			c.Response.Header.Reset()
			if err := pass(c); err != nil {
				b.Fatal(err)
			}
		}
		return nil
	})
	s.DoFrom(b, from("127.0.0.1"), "GET http://localhost:8080/", append(fields, "Accept: */*", "User-Agent: curl/8")...)
}
