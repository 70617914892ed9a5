package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"crypto/tls"

	"github.com/chromedp/chromedp"
	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/browser"
	"github.com/filohttp/filo/examples/internal/program"
	"github.com/filohttp/filo/examples/internal/selfsigned"
)

// protocols counts the requests by path, up to the second slash, and protocol.
type protocols struct {
	mu   sync.Mutex
	seen map[string]int
}

func (p *protocols) count(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		path, _, _ := strings.Cut(c.Path()[1:], "/")
		p.mu.Lock()
		p.seen[path+" "+c.Request.Proto()]++
		p.mu.Unlock()
		return next(c)
	}
}

// start serves on a free port.
func start(t *testing.T) (address string, certificate *x509.Certificate, seen *protocols, stop func() error) {
	t.Helper()
	pair, err := selfsigned.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	seen = &protocols{seen: make(map[string]int)}
	address, stop, err = program.Background(func(ctx context.Context, l net.Listener) error {
		server := newServer(l.Addr().(*net.TCPAddr).Port, pair)
		server.Handler, server.Logger = seen.count(server.Handler), slog.New(slog.DiscardHandler)
		return serve(ctx, server, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop() })
	return address, certificate, seen, stop
}

// The same page is served over three protocols. The answers over TCP say where HTTP/3 is available, and a shutdown ends all protocols.
func TestProtocols(t *testing.T) {
	address, certificate, seen, stop := start(t)
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	config := &tls.Config{RootCAs: roots}
	byTCP := func(set func(*http.Protocols)) *http.Transport {
		transport := &http.Transport{TLSClientConfig: config.Clone(), Protocols: new(http.Protocols)}
		set(transport.Protocols)
		return transport
	}
	quic := &http3.Transport{TLSClientConfig: config}
	defer quic.Close()
	_, port, _ := net.SplitHostPort(address)
	for _, transport := range []http.RoundTripper{byTCP(func(p *http.Protocols) { p.SetHTTP1(true) }), byTCP(func(p *http.Protocols) { p.SetHTTP2(true) }), quic} {
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		answer, err := client.Get("https://" + address)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.Header.Get("Alt-Svc") != `h3=":`+port+`"; ma=86400` {
			t.Errorf("%s: %v", answer.Proto, answer.Header)
		}
		client.CloseIdleConnections()
	}
	if seen.seen[" HTTP/1.1"] != 1 || seen.seen[" HTTP/2.0"] != 1 || seen.seen[" HTTP/3.0"] != 1 {
		t.Errorf("the requests were %v", seen.seen)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Chromium gets the page, its 200 images and its events over HTTP/3, and sends a stream as a body.
func TestChromium(t *testing.T) {
	address, certificate, seen, _ := start(t)
	key := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	log := filepath.Join(t.TempDir(), "net-log.json")
	t.Cleanup(func() { checkNetLog(t, log, address) }) // runs when the browser has ended, which completes the file
	tab := browser.Tab(t, chromedp.Flag("origin-to-force-quic-on", address), chromedp.Flag("log-net-log", log),
		chromedp.Flag("ignore-certificate-errors-spki-list", base64.StdEncoding.EncodeToString(key[:])))
	wait := func(expression string) {
		t.Helper()
		if _, err := chromedp.Run(tab, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(time.Minute))); err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
	}
	if err := chromedp.Do(tab, chromedp.Navigate("https://"+address)); err != nil {
		t.Fatal(err)
	}
	wait(`[...document.images].length === 200 && [...document.images].every((image) => image.complete && image.naturalWidth === 16)`)
	wait(`/^([2-9]|\d\d+) by HTTP\/3.0$/.test(document.querySelector("#events").textContent)`)
	if err := chromedp.Do(tab, chromedp.Click(chromedp.CSS("#send"))); err != nil {
		t.Fatal(err)
	}
	wait(`document.querySelector("#sent").textContent === "4194304 bytes by HTTP/3.0"`)
	wait(`performance.getEntriesByType("resource").every((entry) => entry.nextHopProtocol === "h3" || entry.name.startsWith("data:"))`)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for name, n := range map[string]int{" HTTP/3.0": 1, "tiles HTTP/3.0": 200, "events HTTP/3.0": 1, "upload HTTP/3.0": 1} {
		if seen.seen[name] != n {
			t.Errorf("%d requests for %s instead of %d", seen.seen[name], name, n)
		}
	}
	if len(seen.seen) != 4 {
		t.Errorf("the requests were %v", seen.seen)
	}
}

// checkNetLog checks, in Chromium's own log of its network, that Chromium sent its requests over HTTP/3, and none over TCP. The log's constants are on
// one line, and so is each event. The end of the log may be missing, depending on how the browser ended.
func checkNetLog(t *testing.T, file, address string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, events, _ := strings.Cut(string(text), "\n")
	var log struct {
		Constants struct{ LogEventTypes map[string]int }
	}
	if err := json.Unmarshal([]byte(strings.TrimSuffix(first, ",")+"}"), &log); err != nil {
		t.Fatalf("the log has %d bytes: %v", len(text), err)
	}
	sent := make(map[int]int) // by the event's type
	for line := range strings.Lines(events) {
		var event struct {
			Type   int
			Params struct{ Headers any }
		}
		if json.Unmarshal([]byte(strings.TrimRight(line, ",\n]")), &event) == nil && strings.Contains(fmt.Sprint(event.Params.Headers), address) {
			sent[event.Type]++
		}
	}
	for kind, want := range map[string]bool{
		"HTTP_TRANSACTION_QUIC_SEND_REQUEST_HEADERS":  true,
		"HTTP_TRANSACTION_HTTP2_SEND_REQUEST_HEADERS": false,
		"HTTP_TRANSACTION_SEND_REQUEST_HEADERS":       false,
	} {
		number, known := log.Constants.LogEventTypes[kind]
		if n := sent[number]; !known || (n > 0) != want {
			t.Errorf("the log of %d bytes has %d of %s", len(text), n, kind)
		}
	}
}
