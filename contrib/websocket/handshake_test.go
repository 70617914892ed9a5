package websocket_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/proxy"
)

// request renders a handshake with changed lines. An edit is "Name: value" to replace a field, "-Name" to remove it, or "+Name: value" to add
// another field.
func request(line string, edits ...string) string {
	lines := strings.Split(strings.TrimSuffix(handshake, "\r\n"), "\r\n")
	if line != "" {
		lines[0] = line
	}
	for _, edit := range edits {
		name, _, _ := strings.Cut(strings.Trim(edit, "+-"), ":")
		kept := lines[:0:0]
		for _, l := range lines {
			if edit[0] == '+' || !strings.HasPrefix(l, name+":") {
				kept = append(kept, l)
			}
		}
		if lines = kept; edit[0] != '-' {
			lines = append(lines, strings.TrimPrefix(edit, "+"))
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func TestHandshake(t *testing.T) {
	const ok = "HTTP/1.1 101 "
	for _, test := range []struct {
		says   string
		send   string
		status string
		fields map[string]string // of the answer; "" means that the field is missing
	}{
		{"4.2.2: the answer has Upgrade, Connection and the key's answer", request(""), ok,
			map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
				"Sec-WebSocket-Protocol": "", "Sec-WebSocket-Extensions": "", "Content-Length": "", "Transfer-Encoding": ""}},
		{"4.2.1: it must be a GET", request("POST /ws HTTP/1.1"), "HTTP/1.1 405 ", map[string]string{"Allow": "GET", "Sec-WebSocket-Accept": ""}},
		{"4.2.1: it must be HTTP/1.1 or later", request("GET /ws HTTP/1.0"), "HTTP/1.1 426 ", nil},
		{"4.2.1: it must have a Host", request("", "-Host"), "HTTP/1.1 400 ", nil},
		{"4.2.1: it must have Upgrade", request("", "-Upgrade"), "HTTP/1.1 426 ", map[string]string{"Upgrade": "websocket", "Connection": "Upgrade",
			"Sec-WebSocket-Version": "13"}},
		{"4.2.1: Upgrade must have the token websocket", request("", "Upgrade: h2c"), "HTTP/1.1 426 ", nil},
		{"4.2.1: in any case, and among others", request("", "Upgrade: foo, WebSocket"), ok, nil},
		{"4.2.1: Connection must have the token Upgrade", request("", "Connection: keep-alive"), "HTTP/1.1 426 ", nil},
		{"4.2.1: in any case, and among others", request("", "Connection: keep-alive, upgrade"), ok, nil},
		{"4.2.1: it must have a key", request("", "-Sec-WebSocket-Key"), "HTTP/1.1 400 ", nil},
		{"4.2.1: of 16 bytes", request("", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j"), "HTTP/1.1 400 ", nil},
		{"4.2.1: and no more", request("", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWE="), "HTTP/1.1 400 ", nil},
		{"4.2.1: in base64", request("", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j!Q=="), "HTTP/1.1 400 ", nil},
		{"11.3.1: the key must not be there twice", request("", "+Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), "HTTP/1.1 400 ", nil},
		{"4.2.1: it must have a version", request("", "-Sec-WebSocket-Version"), "HTTP/1.1 426 ", map[string]string{"Sec-WebSocket-Version": "13"}},
		{"4.4: another version must be answered by the one that is spoken", request("", "Sec-WebSocket-Version: 8"), "HTTP/1.1 426 ",
			map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Accept": ""}},
		{"11.3.5: the version must not be there twice", request("", "+Sec-WebSocket-Version: 8"), "HTTP/1.1 426 ", nil},
		{"4.2.1: a body would be taken for frames", request("", "+Content-Length: 2") + "hi", "HTTP/1.1 400 ", nil},
		{"likewise a chunked one", request("", "+Transfer-Encoding: chunked") + "0\r\n\r\n", "HTTP/1.1 400 ", nil},

		{"4.2.2: of the subprotocols that are offered it is the one that the server likes best", request("", "+Sec-WebSocket-Protocol: chat, superchat"), ok,
			map[string]string{"Sec-WebSocket-Protocol": "superchat"}},
		{"11.3.4: they may be in several fields", request("", "+Sec-WebSocket-Protocol: other", "+Sec-WebSocket-Protocol: chat"), ok,
			map[string]string{"Sec-WebSocket-Protocol": "chat"}},
		{"4.2.2: it must be one that the client has offered, or none", request("", "+Sec-WebSocket-Protocol: other, CHAT"), ok, map[string]string{"Sec-WebSocket-Protocol": ""}},
		{"4.1: they must be tokens", request("", "+Sec-WebSocket-Protocol: a b"), "HTTP/1.1 400 ", nil},
		{"an empty field is as none", request("", "+Sec-WebSocket-Protocol: ", "+Sec-WebSocket-Extensions: "), ok,
			map[string]string{"Sec-WebSocket-Protocol": "", "Sec-WebSocket-Extensions": ""}},
		{"empty elements don't count", request("", "+Sec-WebSocket-Protocol: ,", "+Sec-WebSocket-Protocol: , chat,,", "+Sec-WebSocket-Extensions: , ,"), ok,
			map[string]string{"Sec-WebSocket-Protocol": "chat", "Sec-WebSocket-Extensions": ""}},
		{"9.1: extensions that aren't as in the grammar fail the handshake", request("", "+Sec-WebSocket-Extensions: a b"), "HTTP/1.1 400 ", nil},
		{"9.1: likewise", request("", "+Sec-WebSocket-Extensions: a; "), "HTTP/1.1 400 ", nil},
		{"9.1: likewise", request("", "+Sec-WebSocket-Extensions: a; b="), "HTTP/1.1 400 ", nil},
		{"9.1: likewise", request("", `+Sec-WebSocket-Extensions: a; b="c`), "HTTP/1.1 400 ", nil},
		{"9.1: a quoted value must be a token", request("", `+Sec-WebSocket-Extensions: a; b="c d"`), "HTTP/1.1 400 ", nil},
		{"9.1: extensions that aren't known are declined", request("", `+Sec-WebSocket-Extensions: a; b="c"; d=e, f`), ok, map[string]string{"Sec-WebSocket-Extensions": ""}},

		{"10.2: a client that is no browser sends no origin", request("", "-Origin"), ok, nil},
		{"10.2: the page's origin is that of the request", request("", "Origin: http://filo.test"), ok, nil},
		{"behind a proxy with TLS", request("", "Origin: https://filo.test"), ok, nil},
		{"whatever the case", request("", "Origin: HTTP://FILO.test"), ok, nil},
		{"with the scheme's own port", request("", "Origin: http://filo.test:80"), ok, nil},
		{"the host's port may be empty, as for CSRF", request("", "Host: filo.test:", "Origin: http://filo.test"), ok, nil},
		{"another port is another origin", request("", "Origin: http://filo.test:8080"), "HTTP/1.1 403 ", map[string]string{"Sec-WebSocket-Accept": ""}},
		{"another host", request("", "Origin: http://evil.test"), "HTTP/1.1 403 ", nil},
		{"one that ends the same", request("", "Origin: http://evilfilo.test"), "HTTP/1.1 403 ", nil},
		{"one that begins the same", request("", "Origin: http://filo.test.evil.test"), "HTTP/1.1 403 ", nil},
		{"no origin that one can know", request("", "Origin: null"), "HTTP/1.1 403 ", nil},
		{"an empty one", request("", "Origin: "), "HTTP/1.1 403 ", nil},
		{"one with a user", request("", "Origin: http://x@filo.test"), "HTTP/1.1 403 ", nil},
		{"one with a path", request("", "Origin: http://filo.test/"), "HTTP/1.1 403 ", nil},
		{"another scheme", request("", "Origin: ftp://filo.test"), "HTTP/1.1 403 ", nil},
		{"two of them", request("", "+Origin: http://filo.test", "+Origin: http://evil.test"), "HTTP/1.1 403 ", nil},
		{"one that is allowed", request("", "Origin: https://app.example.com"), ok, nil},
		{"with another scheme", request("", "Origin: http://app.example.com"), "HTTP/1.1 403 ", nil},
		{"a subdomain that is allowed", request("", "Origin: https://a.example.org"), ok, nil},
		{"a host below a subdomain, as in CORS and CSRF", request("", "Origin: https://a.b.example.org"), "HTTP/1.1 403 ", nil},
		{"with a port that isn't", request("", "Origin: https://a.example.org:8443"), "HTTP/1.1 403 ", nil},
		{"the domain itself", request("", "Origin: https://example.org"), "HTTP/1.1 403 ", nil},
		{"one that merely ends like it", request("", "Origin: https://badexample.org"), "HTTP/1.1 403 ", nil},
	} {
		t.Run(test.says, func(t *testing.T) {
			inModes(t, websocket.Options{Subprotocols: []string{"superchat", "chat"},
				Origins: []string{"https://App.Example.com", "https://*.example.org"}}, func(t *testing.T, address string) {
				c := connect(t, address)
				c.send(test.send)
				head := c.head()
				if !strings.HasPrefix(head, test.status) {
					t.Fatalf("got %q, want %q", head, test.status)
				}
				for name, want := range test.fields {
					if got := field(head, name); got != want {
						t.Errorf("%s: got %q, want %q", name, got, want)
					}
				}
				if test.status == ok {
					c.send(frame(fin|text, "it works"))
					c.want(fin|text, "it works")
				}
			})
		})
	}
}

func TestAnyOrigin(t *testing.T) {
	c := connect(t, modes[0].serve(t, websocket.Options{OnMessage: echo, Origins: []string{"*"}}))
	c.send(request("", "Origin: https://anything.test"))
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Errorf("got %q", head)
	}
}

func TestWrongOptions(t *testing.T) {
	for says, options := range map[string]websocket.Options{
		"an origin without a scheme":       {Origins: []string{"example.com"}},
		"an origin with a path":            {Origins: []string{"https://example.com/"}},
		"a star that isn't a label":        {Origins: []string{"https://*example.com"}},
		"a star in the middle":             {Origins: []string{"https://a.*.example.com"}},
		"nothing but a star":               {Origins: []string{"https://*"}},
		"a subprotocol that isn't a token": {Subprotocols: []string{"a b"}},
		"one that would inject a field":    {Subprotocols: []string{"a\r\nSet-Cookie: x"}},
		"an empty one":                     {Subprotocols: []string{""}},
		"one that is there twice":          {Subprotocols: []string{"a", "b", "a"}},
		"a queue without a limit":          {MaxQueuedBytes: -1},
		"an OnOpen without OnMessage":      {OnOpen: func(*filo.Ctx, *websocket.Conn) error { return nil }},
		"an OnClose without OnMessage":     {OnClose: func(*websocket.Conn, error) {}},
		"closing without a limit":          {CloseTimeout: -1},
		"an unknown compression":           {Compression: 3},
	} {
		func() {
			defer func() {
				if value, _ := recover().(string); !strings.HasPrefix(value, "websocket: ") {
					t.Errorf("%s: got %q", says, value)
				}
			}()
			websocket.New(options)
		}()
	}
}

// New accepts no options or one Options.
func TestOptionsOnce(t *testing.T) {
	if websocket.New() == nil {
		t.Fatal("no Upgrader")
	}
	defer func() {
		if message, _ := recover().(string); !strings.HasPrefix(message, "websocket: New takes one Options at most") {
			t.Errorf("panics with %q", message)
		}
	}()
	websocket.New(websocket.Options{}, websocket.Options{})
}

// A page may open a WebSocket if middleware.CSRF would let it send a form: both determine the client's host and scheme in the same way.
func TestOriginBehindProxy(t *testing.T) {
	trusted := middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TrustHost: true, TrustProto: true}
	behind := middleware.RealIP(trusted)
	upgrader := websocket.New(websocket.Options{OnMessage: echo})
	address := serveHandler(t, filo.DriverAuto, behind(upgrader.Serve))
	guarded := serveHandler(t, filo.DriverAuto, behind(middleware.CSRF()(func(c *filo.Ctx) error { return c.NoContent() })))
	for _, host := range []string{"backend", "app.test", "app.test:443"} {
		for _, told := range []string{"", "app.test", "App.test:80", "app.test:443", "evil.test"} {
			for _, proto := range []string{"", "http", "https", "wss"} {
				for _, origin := range []string{"http://app.test", "https://app.test", "https://APP.test", "http://app.test:8080", "https://backend", "null"} {
					edits := []string{"Host: " + host, "Origin: " + origin}
					if told != "" {
						edits = append(edits, "X-Forwarded-Host: "+told)
					}
					if proto != "" {
						edits = append(edits, "X-Forwarded-Proto: "+proto)
					}
					c := connect(t, address)
					c.send(request("", edits...))
					opens := strings.HasPrefix(c.head(), "HTTP/1.1 101 ")
					c.Close()
					c = connect(t, guarded)
					c.send(request("POST / HTTP/1.1", append(edits, "Connection: close", "-Upgrade")...))
					if posts := strings.HasPrefix(c.head(), "HTTP/1.1 204 "); opens != posts {
						t.Errorf("%q: a page may open a WebSocket: %v, and send a form: %v", edits, opens, posts)
					}
					c.Close()
				}
			}
		}
	}
}

// By default, a proxy sends its upstream's host in Host, and the client's host in X-Forwarded-Host.
func TestOriginBehindFilosProxy(t *testing.T) {
	behind := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TrustHost: true})
	upgrader := websocket.New(websocket.Options{OnMessage: echo})
	upstream := serveHandler(t, filo.DriverAuto, behind(upgrader.Serve))
	p := proxy.New(proxy.Options{Upstreams: []string{"http://" + upstream}})
	t.Cleanup(func() { p.Close() })
	address := serveHandler(t, filo.DriverAuto, p.Serve)
	for origin, want := range map[string]string{"http://filo.test": "HTTP/1.1 101 ", "http://evil.test": "HTTP/1.1 403 "} {
		c := connect(t, address)
		c.send(request("", "Origin: "+origin))
		if head := c.head(); !strings.HasPrefix(head, want) {
			t.Errorf("a page of %s got %q", origin, head)
		}
	}
}
