package recipes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"github.com/filohttp/filo"
)

// A certificate from the cache is served, with HTTP/2, and only for the given hosts. Port 80 redirects.
func TestAutocert(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.test"}, NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cached := append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ec}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	cache := autocert.DirCache(t.TempDir())
	if err := cache.Put(context.Background(), "example.test", cached); err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }, Logger: slog.New(slog.DiscardHandler)}
	plain := &filo.Server{Handler: Autocert(s, cache, "example.test")}
	defer s.Close()
	defer plain.Close()
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	secure, port80 := listen(), listen()
	go s.ServeTLS(secure, "", "")
	go plain.Serve(port80)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			if _, port, _ := net.SplitHostPort(address); port == "80" {
				return net.Dial("tcp", port80.Addr().String())
			}
			return net.Dial("tcp", secure.Addr().String())
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	response, err := client.Get("http://example.test/") // redirected
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || string(body) != "ok" || response.ProtoMajor != 2 || response.Request.URL.Scheme != "https" {
		t.Errorf("got %s %d %q of %s, %v", response.Proto, response.StatusCode, body, response.Request.URL, err)
	}
	if response, err := client.Get("https://other.test/"); err == nil {
		response.Body.Close()
		t.Error("another host has a certificate")
	}
}
