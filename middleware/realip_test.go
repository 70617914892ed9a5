package middleware_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// tellClient answers with the client's address, and with the scheme and the host of the client's request.
func tellClient(c *filo.Ctx) error {
	return c.Text(200, fmt.Sprint(middleware.ClientIP(c), " ", middleware.Scheme(c), " ", middleware.Host(c)))
}

func prefixes(texts ...string) (prefixes []netip.Prefix) {
	for _, text := range texts {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

func ExampleRealIP() {
	realIP := middleware.RealIP(middleware.RealIPOptions{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		TrustProto:     true,
	})
	h := realIP(func(c *filo.Ctx) error {
		return c.Text(200, middleware.ClientIP(c).String()+" by "+middleware.Scheme(c))
	})
	// The proxy at 192.0.2.1 has added the last address. The client has made up the part to the left of it.
	mwtest.Show(h, nil, "GET /", "X-Forwarded-For: 10.9.9.9, 203.0.113.7", "X-Forwarded-Proto: https")
	// Output:
	// 200 203.0.113.7 by https
}

func TestRealIP(t *testing.T) {
	const (
		proxy  = "192.0.2.1:1"
		proxy6 = "[2001:db8::1]:1"
		other  = "198.51.100.1:1"
	)
	x := middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24", "2001:db8::/64"), TrustProto: true, TrustHost: true}
	onlyFor := middleware.RealIPOptions{TrustedProxies: x.TrustedProxies}
	standard := x
	standard.Forwarded = true
	standardFor := onlyFor
	standardFor.Forwarded = true
	mapped := middleware.RealIPOptions{TrustedProxies: prefixes("::ffff:192.0.2.0/120")}
	many := strings.Repeat("192.0.2.9, ", 40) + "192.0.2.8"
	for _, test := range []struct {
		sentence, from string
		options        middleware.RealIPOptions
		fields         []string
		want           string
	}{
		{"without the fields it is the connection", proxy, x, nil, "192.0.2.1 http filo.test"},
		{"what isn't trusted is the client, whatever it says", other, x,
			[]string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test"}, "198.51.100.1 http filo.test"},
		{"a proxy names the client", proxy, x, []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: www.test:8443"},
			"203.0.113.7 https www.test:8443"},
		{"also one of IPv6", proxy6, x, []string{"X-Forwarded-For: 2001:db8:1::7"}, "2001:db8:1::7 http filo.test"},
		{"what the client put in front doesn't count", proxy, x, []string{"X-Forwarded-For: 1.1.1.1, 10.0.0.1, 203.0.113.7"}, "203.0.113.7 http filo.test"},
		{"nor in a field of its own", proxy, x, []string{"X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 203.0.113.7"}, "203.0.113.7 http filo.test"},
		{"proxies behind proxies are looked through", proxy, x, []string{"X-Forwarded-For: 1.1.1.1, 203.0.113.7, 192.0.2.9", "X-Forwarded-For: 2001:db8::2, 192.0.2.8"},
			"203.0.113.7 http filo.test"},
		{"a client behind trusted addresses only is the outermost", proxy, x, []string{"X-Forwarded-For: 192.0.2.7, 192.0.2.9"}, "192.0.2.7 http filo.test"},
		{"32 hops at most", proxy, x, []string{"X-Forwarded-For: 1.1.1.1, " + many}, "192.0.2.9 http filo.test"},
		{"8 fields at most, the last ones", proxy, x, append(strings.Split(strings.Repeat("X-Forwarded-For: 1.1.1.1|", 20), "|")[:20], "X-Forwarded-For: 203.0.113.7"), "203.0.113.7 http filo.test"},
		{"empty elements are skipped", proxy, x, []string{"X-Forwarded-For: 203.0.113.7, ,", "X-Forwarded-For: "}, "203.0.113.7 http filo.test"},
		{"ports don't count", proxy, x, []string{"X-Forwarded-For: 203.0.113.7:4711"}, "203.0.113.7 http filo.test"},
		{"nor brackets", proxy, x, []string{"X-Forwarded-For: [2001:db8:1::7]:4711"}, "2001:db8:1::7 http filo.test"},
		{"nor brackets", proxy, x, []string{"X-Forwarded-For: [2001:db8:1::7]"}, "2001:db8:1::7 http filo.test"},
		{"a mapped address is one of IPv4", proxy, x, []string{"X-Forwarded-For: ::ffff:203.0.113.7"}, "203.0.113.7 http filo.test"},
		{"and is trusted as such", proxy, x, []string{"X-Forwarded-For: 203.0.113.7, ::ffff:192.0.2.9"}, "203.0.113.7 http filo.test"},
		{"a mapped prefix, too", proxy, mapped, []string{"X-Forwarded-For: 203.0.113.7"}, "203.0.113.7 http filo.test"},
		{"zones mean nothing here", proxy, x, []string{"X-Forwarded-For: fe80::7%eth0"}, "fe80::7 http filo.test"},
		{"behind what is no address nothing is known", proxy, x, []string{"X-Forwarded-For: 203.0.113.7, unknown"}, "192.0.2.1 http filo.test"},
		{"behind what is no address nothing is known", proxy, x, []string{"X-Forwarded-For: 203.0.113.7, <script>, 192.0.2.9"}, "192.0.2.9 http filo.test"},
		{"a value that is too long is none", proxy, x, []string{"X-Forwarded-For: " + strings.Repeat("1", 5000)}, "192.0.2.1 http filo.test"},
		{"scheme and host are forged unless an option says that they aren't", proxy, onlyFor,
			[]string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test"}, "203.0.113.7 http filo.test"},
		{"the nearest proxy's scheme and host count", proxy, x, []string{"X-Forwarded-Proto: https, HTTP", "X-Forwarded-Host: evil.test, www.test"}, "192.0.2.1 http www.test"},
		{"another scheme is none", proxy, x, []string{"X-Forwarded-Proto: javascript"}, "192.0.2.1 http filo.test"},
		{"what is no host is none", proxy, x, []string{"X-Forwarded-Host: www.test/evil"}, "192.0.2.1 http filo.test"},
		{"a port may be empty, as in Host", proxy, x, []string{"X-Forwarded-Host: www.test:"}, "192.0.2.1 http www.test:"},
		{"but not two of them", proxy, x, []string{"X-Forwarded-Host: www.test::"}, "192.0.2.1 http filo.test"},
		{"nor a port alone", proxy, x, []string{"X-Forwarded-Host: :"}, "192.0.2.1 http filo.test"},
		{"Forwarded isn't looked at unless an option says so", proxy, x, []string{"Forwarded: for=203.0.113.7"}, "192.0.2.1 http filo.test"},
		{"and then the others aren't", proxy, standard, []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test"}, "192.0.2.1 http filo.test"},
		{"RFC 7239: for, proto, host and by", proxy, standard, []string{`Forwarded: For=203.0.113.7;PROTO=https; host="www.test:8443";by=203.0.113.43`}, "203.0.113.7 https www.test:8443"},
		{"RFC 7239: IPv6 is quoted, in brackets", proxy, standard, []string{`Forwarded: for="[2001:db8:1::7]:4711"`}, "2001:db8:1::7 http filo.test"},
		{"RFC 7239: a client's part is left of the proxy's", proxy, standard, []string{`Forwarded: for=1.1.1.1;host=evil.test`, `Forwarded: for=203.0.113.7`}, "203.0.113.7 http filo.test"},
		{"a quote that a client leaves open hides nothing", proxy, standard, []string{`Forwarded: for="1.1.1.1, for=203.0.113.7;proto=https`}, "203.0.113.7 https filo.test"},
		{"commas in quotes separate nothing", proxy, standard, []string{`Forwarded: for=203.0.113.7;x="a, for=1.1.1.1"`}, "203.0.113.7 http filo.test"},
		{"escaped quotes, which nobody needs, hide who it was, and forge nobody", proxy, standard, []string{`Forwarded: for=203.0.113.7;host="a\", for=1.1.1.1, b=\"c"`}, "192.0.2.1 http filo.test"},
		{"RFC 7239: proxies are looked through", proxy, standard, []string{`Forwarded: for=1.1.1.1;proto=http, for=203.0.113.7;proto=https;host=www.test, for=192.0.2.9;proto=http`}, "203.0.113.7 https www.test"},
		{"RFC 7239: unknown and hidden clients", proxy, standard, []string{`Forwarded: for=1.1.1.1, for=_hidden;proto=https`}, "192.0.2.1 https filo.test"},
		{"RFC 7239: no parameter twice", proxy, standard, []string{`Forwarded: for=1.1.1.1;for=203.0.113.7`}, "192.0.2.1 http filo.test"},
		{"RFC 7239: a parameter has a value", proxy, standard, []string{`Forwarded: for=203.0.113.7;proto`}, "192.0.2.1 http filo.test"},
		{"an element without for ends the way", proxy, standard, []string{`Forwarded: for=1.1.1.1, proto=https`}, "192.0.2.1 https filo.test"},
		{"scheme and host are forged unless an option says that they aren't", proxy, standardFor, []string{`Forwarded: for=203.0.113.7;proto=https;host=evil.test`}, "203.0.113.7 http filo.test"},
	} {
		s := servertest.New(t, middleware.RealIP(test.options)(tellClient))
		if got := s.DoFrom(t, mwtest.TCPAddress(test.from), "GET /", test.fields...).Body; got != test.want {
			t.Errorf("%s: %q from %s: %s, want %s", test.sentence, test.fields, test.from, got, test.want)
		}
	}
	if got := servertest.New(t, tellClient).DoFrom(t, mwtest.TCPAddress(proxy), "GET /", "X-Forwarded-For: 1.1.1.1").Body; got != "192.0.2.1 http filo.test" {
		t.Errorf("without the middleware: %s", got)
	}
}

// Some proxies send ws or wss as the scheme of a WebSocket's handshake.
func TestSchemeOfWebSockets(t *testing.T) {
	h := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24"), TrustProto: true})(tellClient)
	for proto, want := range map[string]string{"wss": "https", "WSS": "https", "ws": "http", "other": "http"} {
		got := servertest.New(t, h).DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET http://a/", "X-Forwarded-Proto: "+proto)
		if got.Body != "192.0.2.1 "+want+" a" {
			t.Errorf("%s: got %q", proto, got.Body)
		}
	}
}

// A client can neither override its proxy's fields by another spelling of their names, nor remove them by Connection.
func TestRealIPSpellings(t *testing.T) {
	h := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24"), TrustProto: true, TrustHost: true})(tellClient)
	fields := []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: proxy.example"}
	for _, client := range []string{"X_Forwarded_For: 6.6.6.6", "x_forwarded-for: 6.6.6.6", "X.Forwarded.For: 6.6.6.6", "X_Forwarded_Host: evil.example",
		"X_Forwarded_Proto: http", "X-Real-IP: 6.6.6.6", "connection: x-forwarded-for, X-FORWARDED-HOST, x-forwarded-proto, x-real-ip"} {
		for _, all := range [][]string{append([]string{client}, fields...), append(fields[:len(fields):len(fields)], client)} {
			if got := servertest.New(t, h).DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET /", all...); got.Body != "203.0.113.7 https proxy.example" {
				t.Errorf("%s: got %q", client, got.Body)
			}
		}
	}
}

// A Unix socket has no address. It is trusted only if an option says so.
func TestRealIPUnixSocket(t *testing.T) {
	for _, test := range []struct {
		options middleware.RealIPOptions
		want    string
	}{
		{middleware.RealIPOptions{TrustUnixSocket: true}, "203.0.113.7 http filo.test"},
		{middleware.RealIPOptions{TrustUnixSocket: true, Forwarded: true}, "invalid IP http filo.test"},
		{middleware.RealIPOptions{TrustedProxies: prefixes("0.0.0.0/0")}, "invalid IP http filo.test"},
	} {
		s := servertest.New(t, middleware.RealIP(test.options)(tellClient))
		c, err := s.Listener.DialFrom(&net.UnixAddr{Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, servertest.Request("GET /", "", "X-Forwarded-For: 203.0.113.7"))
		answer := make([]byte, 1000)
		n, _ := c.Read(answer)
		if !strings.HasSuffix(string(answer[:n]), "\r\n\r\n"+test.want) {
			t.Errorf("%q, want %s", answer[:n], test.want)
		}
	}
}

// Over TLS the scheme is https, unless a trusted proxy says otherwise.
func TestSchemeOverTLS(t *testing.T) {
	standIn := httptest.NewTLSServer(nil) // for its certificate
	defer standIn.Close()
	realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.1/32"), TrustProto: true})
	s := &filo.Server{Handler: realIP(tellClient), TLSConfig: &tls.Config{Certificates: standIn.TLS.Certificates}}
	ln := servertest.NewListener()
	served := make(chan error, 1)
	go func() { served <- s.ServeTLS(ln, "", "") }()
	for from, want := range map[string]string{
		"198.51.100.1:1": "198.51.100.1 https filo.test",
		"192.0.2.1:1":    "192.0.2.1 http filo.test",
	} {
		plain, err := ln.DialFrom(mwtest.TCPAddress(from))
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(plain, &tls.Config{InsecureSkipVerify: true})
		io.WriteString(c, servertest.Request("GET /", "", "X-Forwarded-Proto: http", "Connection: close"))
		raw, _ := io.ReadAll(c)
		c.Close()
		if !strings.HasSuffix(string(raw), "\r\n\r\n"+want) {
			t.Errorf("from %s: %s, want %s", from, raw, want)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != filo.ErrServerClosed {
		t.Error(err)
	}
}

func TestRealIPOptions(t *testing.T) {
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"nobody to trust":     func() { middleware.RealIP(middleware.RealIPOptions{}) },
		"an invalid prefix":   func() { middleware.RealIP(middleware.RealIPOptions{TrustedProxies: make([]netip.Prefix, 1)}) },
		"all mapped and more": func() { middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("::ffff:0.0.0.0/90")}) },
	})
}

// Whatever the fields contain, the client's address is the connection's address or an address from an element. Elements that a client puts in
// front of its proxy's element change nothing.
func FuzzRealIP(f *testing.F) {
	f.Add(`for="[2001:db8::1]:4711";proto=https, for=192.0.2.9`)
	f.Add(`for="1.1.1.1`)
	f.Add(`1.1.1.1, 192.0.2.9`)
	f.Add(`x="\", for=1.1.1.1, y=\"`)
	options := middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24"), TrustProto: true, TrustHost: true}
	x := servertest.New(f, middleware.RealIP(options)(tellClient))
	options.Forwarded = true
	standard := servertest.New(f, middleware.RealIP(options)(tellClient))
	f.Fuzz(func(t *testing.T, forged string) {
		if strings.ContainsFunc(forged, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) || len(forged) > 1000 {
			return
		}
		got := x.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET /", "X-Forwarded-For: "+forged+", 203.0.113.7", "X-Forwarded-Proto: "+forged+",http", "X-Forwarded-Host: "+forged+", a")
		if got.Body != "203.0.113.7 http a" {
			t.Errorf("X-Forwarded-For: %q", got.Body)
		}
		got = standard.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET /", "Forwarded: "+forged+",for=203.0.113.7;proto=http;host=a")
		if got.Body != "203.0.113.7 http a" {
			t.Errorf("Forwarded: %q", got.Body)
		}
	})
}

func BenchmarkRealIP(b *testing.B) {
	realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24")})
	b.Run("unasked", func(b *testing.B) { mwtest.Benchmark(b, realIP(mwtest.Hello), "GET /", "X-Forwarded-For: 203.0.113.7") })
	b.Run("ClientIP", func(b *testing.B) {
		h := realIP(func(c *filo.Ctx) error {
			middleware.ClientIP(c)
			return nil
		})
		mwtest.Benchmark(b, h, "GET /", "X-Forwarded-For: 1.1.1.1, 203.0.113.7, 192.0.2.9")
	})
}

// HostCheck, the router, CSRF and handlers agree on the host and the scheme of a client's request, whether the request or a trusted proxy
// states them.
func TestOneView(t *testing.T) {
	const page = "admin.example.com"
	for _, option := range []middleware.RealIPOptions{
		{TrustHost: true, TrustProto: true}, {TrustHost: true, TrustProto: true, Forwarded: true}, {TrustHost: true}, {TrustProto: true}, {},
	} {
		option.TrustedProxies = prefixes("192.0.2.0/24")
		r := router.New()
		r.Use(middleware.CSRF())
		r.Handle(page+"/", func(c *filo.Ctx) error { return c.Text(200, middleware.Scheme(c)+" "+middleware.Host(c)) })
		r.Handle("/", func(c *filo.Ctx) error { return c.Text(200, "another host") })
		s := servertest.New(t, mwtest.Wrap(r.Serve, middleware.RealIP(option)))
		checked := servertest.New(t, mwtest.Wrap(r.Serve, middleware.RealIP(option), middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{page}})))
		for _, from := range []string{"192.0.2.1:1", "203.0.113.1:1"} {
			for _, own := range []string{page, "Admin.Example.com", page + ".", page + ".:443", page + ":80", page + ":443", page + ":8080", "backend", page + ".evil.test"} {
				for _, told := range []string{"", page, "ADMIN.example.com.", page + ":443", "evil.test"} {
					for _, proto := range []string{"", "https", "wss", "http"} {
						var fields []string
						if told != "" && proto != "" {
							fields = append(fields, `Forwarded: host="`+told+`";proto=`+proto)
						}
						if told != "" {
							fields = append(fields, "X-Forwarded-Host: "+told)
						}
						if proto != "" {
							fields = append(fields, "X-Forwarded-Proto: "+proto)
						}
						address, request := mwtest.TCPAddress(from), "GET http://"+own+"/"
						what := fmt.Sprintf("%+v from %s: %s %q", option, from, request, fields)

						got := checked.DoFrom(t, address, request, fields...)
						routed := s.DoFrom(t, address, request, fields...)
						if got.Status == 200 != (routed.Body != "another host") {
							t.Fatalf("%s: HostCheck answers %d, and the router %q", what, got.Status, routed.Body)
						}
						if got.Status != 200 {
							continue
						}
						scheme, host, _ := strings.Cut(got.Body, " ")
						for _, origin := range []string{"http://", "https://"} {
							// If no trusted proxy states the scheme, a request that arrived over http may have been sent over https.
							want := 200
							if origin == "http://" && scheme == "https" || strings.Contains(host, ":8080") ||
								strings.HasSuffix(host, ":443") && origin == "http://" || strings.HasSuffix(host, ":80") && origin == "https://" {
								want = 403
							}
							dot := strings.Contains(host, "com.")
							for _, spelt := range []string{page, "ADMIN.example.com"} {
								if dot {
									spelt += "."
								}
								got := s.DoFrom(t, address, "POST http://"+own+"/", append(fields, "Origin: "+origin+spelt)...)
								if got.Status != want {
									t.Fatalf("%s: CSRF answers %d to a page of %s%s, want %d", what, got.Status, origin, spelt, want)
								}
							}
						}
					}
				}
			}
		}
	}
}
