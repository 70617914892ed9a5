package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/browser"
)

// images is how many images the page of TestHTTP2Page has.
const images = 100

// gallery is a page with images.
func gallery(c *filo.Ctx) error {
	if c.Path() != "/gallery" {
		return c.Bytes(200, "image/svg+xml", []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>`))
	}
	var page strings.Builder
	page.WriteString("<!doctype html><title>Gallery</title><link rel='icon' href='data:,'>")
	for i := range images {
		fmt.Fprintf(&page, `<img src="/gallery/%d.svg" alt="">`, i)
	}
	return c.HTML(200, page.String())
}

// asked records the protocol and the client's address of a server's requests, by path.
type asked struct {
	mu sync.Mutex
	by map[string][2]string
}

// serve serves the chat and the gallery.
func (a *asked) serve(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		a.mu.Lock()
		a.by[c.Path()] = [2]string{c.Request.Proto(), c.RemoteAddr().String()}
		a.mu.Unlock()
		if strings.HasPrefix(c.Path(), "/gallery") {
			return gallery(c)
		}
		return next(c)
	}
}

// startTLS serves over TLS until the test ends, with WebSockets over HTTP/2.
func (a *asked) startTLS(t *testing.T) (base string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &filo.Server{
		Handler:   a.serve(newHandler(newChat(time.Now), []string{"127.0.0.1"})),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		HTTP2:     filo.HTTP2Options{ExtendedConnect: true},
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return "https://" + listener.Addr().String()
}

// of returns the protocol and the client's address of a request whose path has the suffix.
func (a *asked) of(suffix string) (protocol, client string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, by := range a.by {
		if strings.HasSuffix(path, suffix) {
			return by[0], by[1]
		}
	}
	return "", ""
}

// Over HTTP/2 a browser needs only one connection for a page, all of its images and a WebSocket.
func TestHTTP2Page(t *testing.T) {
	a := asked{by: make(map[string][2]string)}
	base := a.startTLS(t)
	ctx := browser.Tab(t)
	page := tab{t, ctx}
	page.do("trusting the certificate", chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
		return err
	}))
	page.do("opening the gallery", chromedp.Navigate(base+"/gallery"))
	complete := fmt.Sprintf(`[...document.images].filter(i => i.complete && i.naturalWidth === 9).length === %d`, images)
	poll := chromedp.Poll[bool](complete, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience))
	if _, err := chromedp.Run(ctx, poll); err != nil {
		t.Fatalf("the images: %v", err)
	}
	protocols := `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
		.map(e => e.nextHopProtocol).filter(p => p === "h2").length.toString()`
	if got := page.text(protocols); got != fmt.Sprint(1+images) {
		t.Errorf("%s answers came by h2, in the browser's view", got)
	}
	page.open(base, "lobby")
	page.join("Ada")
	page.say("By one connection.")
	page.sees(">Ada: By one connection.")

	_, first := a.of("/gallery/0.svg")
	for _, path := range []string{"/gallery/99.svg", "/chat.js", "/socket"} {
		if protocol, client := a.of(path); protocol != "HTTP/2.0" || client != first {
			t.Errorf("%s came by %q from %q, the first image from %q", path, protocol, client, first)
		}
	}
}
