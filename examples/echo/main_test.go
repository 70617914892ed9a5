package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"github.com/filohttp/filo/examples/internal/selfsigned"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asProgram makes the test binary behave as the example itself, for the tests that send signals.
const asProgram = "FILO_ECHO_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience bounds each wait of a test. It is long, since the machine may be busy.
const patience = time.Minute

// running is the example under test, listening on a free port.
type running struct {
	base string // "http://127.0.0.1:port"
	addr string
	stop context.CancelFunc
	done chan error // run's result
}

// start calls run and waits until it listens. The test's end stops it.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	r := &running{stop: stop, done: make(chan error, 1)}
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), out)
		out.CloseWithError(err)
		r.done <- err
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("run ended before it listened: %v", err)
	}
	go io.Copy(io.Discard, stdout)
	r.base = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	_, r.addr, _ = strings.Cut(r.base, "://")
	t.Cleanup(func() { stop(); stdout.Close() })
	return r
}

// exchange sends raw bytes and returns everything that the server sends until it closes the connection.
func (r *running) exchange(t *testing.T, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("after %q: %v", answer, err)
	}
	return string(answer)
}

func do(t *testing.T, method, url string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(answer)
}

func TestSite(t *testing.T) {
	r := start(t)
	cases := []struct {
		name, method, path, body, contentType string
		status                                int
		answer, answerType, allow             string
	}{
		{name: "hello is exact", method: "GET", path: "/hello", status: 200, answer: "Hello, World!", answerType: "text/plain; charset=utf-8"},
		{name: "a query changes nothing", method: "GET", path: "/hello?a=b", status: 200, answer: "Hello, World!", answerType: "text/plain; charset=utf-8"},
		{name: "HEAD has no body", method: "HEAD", path: "/hello", status: 200, answerType: "text/plain; charset=utf-8"},
		{name: "echo keeps the type", method: "POST", path: "/echo", body: "so long", contentType: "text/x-note", status: 200, answer: "so long", answerType: "text/x-note"},
		{name: "echo of nothing", method: "POST", path: "/echo", status: 200, answerType: "application/octet-stream"},
		{name: "hello refuses POST", method: "POST", path: "/hello", body: "x", status: 405, allow: "GET, HEAD"},
		{name: "echo refuses GET", method: "GET", path: "/echo", status: 405, allow: "POST"},
		{name: "echo refuses HEAD", method: "HEAD", path: "/echo", status: 405, allow: "POST"},
		{name: "the page refuses DELETE", method: "DELETE", path: "/", status: 405, allow: "GET, HEAD"},
		{name: "nothing else is there", method: "GET", path: "/hello/", status: 404},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var header []string
			if tc.contentType != "" {
				header = []string{"Content-Type", tc.contentType}
			}
			var sent io.Reader
			if tc.body != "" {
				sent = strings.NewReader(tc.body)
			}
			resp, body := do(t, tc.method, r.base+tc.path, sent, header...)
			if resp.StatusCode != tc.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tc.status)
			}
			if tc.status == 200 && body != tc.answer {
				t.Errorf("body %q, want %q", body, tc.answer)
			}
			if got := resp.Header.Get("Content-Type"); tc.answerType != "" && got != tc.answerType {
				t.Errorf("Content-Type %q, want %q", got, tc.answerType)
			}
			if got := resp.Header.Get("Allow"); got != tc.allow {
				t.Errorf("Allow %q, want %q", got, tc.allow)
			}
			if resp.Header.Get("Date") == "" {
				t.Error("no Date")
			}
		})
	}
}

func TestPageShowsLiveNumbers(t *testing.T) {
	r := start(t)
	for range 3 {
		do(t, "GET", r.base+"/hello", nil)
	}
	resp, page := do(t, "GET", r.base+"/", nil)
	if got := resp.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
	for _, want := range []string{
		"<b>3</b><span>answers 2xx</span>",
		"<b>1</b><span>connections accepted</span>",
		"curl -i " + r.base + "/hello",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// pattern returns a reader of n bytes that look random, so that a test notices a piece in the wrong position.
func pattern(n int64) io.Reader { return io.LimitReader(&counting{}, n) }

type counting struct{ n uint32 }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		c.n = c.n*1664525 + 1013904223
		p[i] = byte(c.n >> 24)
	}
	return len(p), nil
}

func TestEchoStreams(t *testing.T) {
	r := start(t)
	const mb = 1 << 20
	for _, tc := range []struct {
		name    string
		size    int64
		chunked bool
	}{
		{"the largest that is read whole", bufferedEcho, false},
		{"one byte more", bufferedEcho + 1, false},
		{"a small chunked body", 10, true},
		{"over the server's body limit", 9*mb + 1, false},
		{"100 MB chunked", 100 * mb, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequest("POST", r.base+"/echo", pattern(tc.size))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.size
			if tc.chunked {
				req.ContentLength = -1
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			want, got := sha256.New(), sha256.New()
			io.Copy(want, pattern(tc.size))
			n, err := io.Copy(got, resp.Body)
			if err != nil || n != tc.size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				t.Errorf("%d bytes came back of %d, error %v", n, tc.size, err)
			}
		})
	}
}

// A client that sends Expect: 100-continue gets a 100 before the answer's head (RFC 9110, 10.1.1).
func TestEchoAsksForAnExpectedBody(t *testing.T) {
	r := start(t)
	for _, size := range []int{5, bufferedEcho + 1} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 100 {
			t.Fatalf("%d bytes announced: %v, %v; want a 100", size, resp, err)
		}
		go conn.Write(bytes.Repeat([]byte("x"), size))
		resp, err = http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d bytes sent: %v, %v; want a 200", size, resp, err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(size) {
			t.Errorf("%d bytes came back of %d, error %v", n, size, err)
		}
	}
}

func TestRefusesBodyWithoutAskingForIt(t *testing.T) {
	r := start(t)
	answer := r.exchange(t, "POST /hello HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 405 ") {
		t.Errorf("got %q, want the 405 and no 100", answer)
	}
}

func TestRunRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-addr", "127.0.0.1:99999"},
		{"-tls-cert", "cert.pem"},
		{"-tls-cert", "no such file", "-tls-key", "no such file", "-addr", "127.0.0.1:0"},
		{"-self-signed", "-tls-cert", "cert.pem", "-tls-key", "key.pem"},
		{"surplus"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("run(%q) returned %v, want an error", args, err)
		}
	}
}

// writeCert writes a certificate for 127.0.0.1 and its key to files, and returns the files' names.
func writeCert(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	cert, err := selfsigned.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", cert.Certificate[0]), write("key.pem", "PRIVATE KEY", keyDER)
}

func TestTLS(t *testing.T) {
	certFile, keyFile := writeCert(t)
	r := start(t, "-tls-cert", certFile, "-tls-key", keyFile)
	if !strings.HasPrefix(r.base, "https://") {
		t.Fatalf("it says it listens on %s", r.base)
	}
	roots := x509.NewCertPool()
	data, err := os.ReadFile(certFile)
	if err != nil || !roots.AppendCertsFromPEM(data) {
		t.Fatal("the test's own certificate is unusable:", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	resp, err := client.Get(r.base + "/hello")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "Hello, World!" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
}

// An HTTP/2 client is served over HTTP/2, both with and without TLS.
func TestHTTP2(t *testing.T) {
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	for _, r := range []*running{start(t, "-self-signed"), start(t)} {
		resp, err := client.Get(r.base + "/hello")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); resp.Proto != "HTTP/2.0" || string(body) != "Hello, World!" || err != nil {
			t.Errorf("%s: got %q by %s, %v", r.base, body, resp.Proto, err)
		}
	}
}
