package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/proxy"
)

// rawUpstream is an upstream of HTTP/1.1 that answers each connection's first request with the given bytes, valid or not.
func rawUpstream(t testing.TB, answer string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.WriteString(conn, answer)
			}
			conn.Close()
		}
	}()
	return "http://" + ln.Addr().String()
}

// rawH2Upstream is an upstream of HTTP/2 that answers requests with the given blocks of fields. The blocks are any interim answers, then
// the final answer and, after the body "body", the trailer.
func rawH2Upstream(t testing.TB, blocks ...[]string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
				f := http2.NewFramer(conn, conn)
				f.WriteSettings()
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					if _, ok := frame.(*http2.HeadersFrame); !ok {
						continue
					}
					var block bytes.Buffer
					encoder := hpack.NewEncoder(&block)
					for i, fields := range blocks {
						if i == len(blocks)-1 {
							f.WriteData(frame.Header().StreamID, false, []byte("body"))
						}
						block.Reset()
						for _, field := range fields {
							name, value, _ := strings.Cut(field, "=")
							encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
						}
						f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.Header().StreamID, EndHeaders: true, EndStream: i == len(blocks)-1,
							BlockFragment: block.Bytes()})
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// ownFields are the fields that middleware in front of the proxy sets in these tests.
var ownFields = [][2]string{{"Content-Security-Policy", "default-src 'self'"}, {"X-Frame-Options", "DENY"}, {"Access-Control-Allow-Origin", "https://a.example"},
	{"Access-Control-Allow-Credentials", "true"}, {"Vary", "Origin"}, {"X-Request-Id", "1"}, {"Set-Cookie", "own=1"}}

// newOwnFront starts a proxy behind middleware that sets ownFields, and returns it with a client.
func newOwnFront(t testing.TB, client protocol, options proxy.Options) *h2Front {
	t.Helper()
	options.Logger = quiet
	p := proxy.New(options)
	t.Cleanup(func() { p.Close() })
	s := &filo.Server{Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: func(c *filo.Ctx) error {
		for _, field := range ownFields {
			c.Response.Header.Add(field[0], field[1])
		}
		return p.Serve(c)
	}}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	t.Cleanup(transport.CloseIdleConnections)
	transport.Protocols.SetHTTP1(client == http1)
	transport.Protocols.SetUnencryptedHTTP2(client == h2c)
	return &h2Front{t: t, client: &http.Client{Transport: transport}, url: "http://" + tcptest.Serve(t, s)}
}

// connectionFields are fields that always concern the upstream's connection, whether Connection lists them or not.
const connectionFields = "connection=X-Hop;x-hop=1;proxy-authenticate=Basic;keep-alive=timeout=5;proxy-connection=close;transfer-encoding=chunked;upgrade=h2c;te=trailers;" +
	"trailer=X-Late"

// The final answer has the fields that middleware has set, even after interim answers. No answer has a field about the upstream's
// connection.
func TestInterimAnswers(t *testing.T) {
	hop := strings.Split(connectionFields, ";")
	// Without X-Hop: since Go 1.27 the transport hides the field Connection of HTTP/2, where none is allowed.
	hop2 := append([]string{hop[0]}, hop[2:]...)
	early := "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n" + strings.ReplaceAll(strings.ReplaceAll(connectionFields, "=", ": "), ";", "\r\n") + "\r\n\r\n"
	for name, test := range map[string]struct {
		upstream string
		h2       bool
		expect   bool
		status   int
	}{
		"103":           {rawUpstream(t, early+early+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"), false, false, 200},
		"100":           {rawUpstream(t, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"), false, true, 200},
		"103 and EOF":   {rawUpstream(t, early), false, false, 502},
		"103 and 999":   {rawUpstream(t, early+"HTTP/1.1 999 Odd\r\nContent-Length: 4\r\n\r\nbody"), false, false, 502},
		"103 by HTTP/2": {rawH2Upstream(t, append([]string{":status=103", "link=</a.css>"}, hop2...), append([]string{":status=200"}, hop2...), hop2[2:]), true, false, 200},
		"999 by HTTP/2": {rawH2Upstream(t, []string{":status=999"}, []string{"a=b"}), true, false, 502},
	} {
		for _, client := range []protocol{http1, h2c} {
			t.Run(name+" to "+string(client), func(t *testing.T) {
				f := newOwnFront(t, client, proxy.Options{Upstreams: []string{test.upstream}, HTTP2: test.h2, Retries: -1})
				r := f.request("POST", "/", strings.NewReader("request"))
				if test.expect {
					r.Header.Set("Expect", "100-continue")
				}
				clean := func(h http.Header) {
					for _, name := range []string{"Connection", "X-Hop", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Te", "Proxy-Authenticate"} {
						if values, ok := h[name]; ok && !(name == "Connection" && slices.Equal(values, []string{"close"}) && client == http1) {
							t.Errorf("%s: %q is passed on", name, values)
						}
					}
				}
				interim := 0
				answer := f.do(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
						if clean(http.Header(h)); status == 103 && h.Get("Link") == "</a.css>" {
							interim++
						}
						return nil
					},
				})))
				if _, err := io.ReadAll(answer.Body); answer.StatusCode != test.status || err != nil {
					t.Errorf("answered with %d, %v", answer.StatusCode, err)
				}
				if strings.HasPrefix(name, "103") && interim == 0 {
					t.Error("no interim answer has come")
				}
				clean(answer.Header)
				clean(answer.Trailer)
				for _, field := range ownFields {
					if got := answer.Header[field[0]]; !slices.Contains(got, field[1]) {
						t.Errorf("%s: %q, want %q", field[0], got, field[1])
					}
				}
				if got := answer.Header["Link"]; len(got) > 0 {
					t.Errorf("an interim field is in the final answer: %q", got)
				}
			})
		}
	}
}

// A field that isn't a list has one value, the upstream's if the upstream sets it. All CORS fields come either from the upstream or from
// the middleware. Fields that are lists have the values of both.
func TestOneValue(t *testing.T) {
	upstream := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Frame-Options", "SAMEORIGIN")
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Set-Cookie", "its=2")
		if r.URL.Path == "/cors" {
			w.Header().Set("Access-Control-Allow-Origin", "*")
		}
	})
	f := newOwnFront(t, http1, proxy.Options{Upstreams: []string{upstream}, ModifyResponse: func(r *http.Response) error {
		if r.Request.URL.Path == "/own" {
			r.Header.Del("X-Frame-Options")
		}
		return nil
	}})
	for path, want := range map[string][3]string{
		"/":     {"[SAMEORIGIN]", "[https://a.example]", "[true]"},
		"/cors": {"[SAMEORIGIN]", "[*]", "[]"},
		"/own":  {"[DENY]", "[https://a.example]", "[true]"},
	} {
		h := f.do(f.request("GET", path, nil)).Header
		got := [3]string{fmt.Sprint(h["X-Frame-Options"]), fmt.Sprint(h["Access-Control-Allow-Origin"]), fmt.Sprint(h["Access-Control-Allow-Credentials"])}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		if vary, cookies := h["Vary"], h["Set-Cookie"]; len(vary) != 2 || len(cookies) != 2 {
			t.Errorf("%s: Vary %q, Set-Cookie %q", path, vary, cookies)
		}
	}
}
