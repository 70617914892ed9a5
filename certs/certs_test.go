package certs_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/certs"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

var serials int64

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serials++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serials), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

// issue returns a certificate and its key as PEM. The name is its only host name, and the client's name.
func (a *authority) issue(t *testing.T, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	return a.issueFrom(t, name, time.Now().Add(-2*time.Hour), until)
}

func (a *authority) issueFrom(t *testing.T, name string, from, until time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serials++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serials), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files are a certificate's files in a directory of their own.
func files(t *testing.T) certs.Pair {
	directory := t.TempDir()
	return certs.Pair{Cert: filepath.Join(directory, "cert.pem"), Key: filepath.Join(directory, "key.pem")}
}

// put writes a new certificate to the files, and returns its serial number.
func put(t *testing.T, a *authority, to certs.Pair, name string, until time.Time) (serial *big.Int) {
	t.Helper()
	cert, key := a.issue(t, name, until)
	write(t, to.Cert, cert)
	write(t, to.Key, key)
	return big.NewInt(serials)
}

// records are what a Store has logged.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// take returns the records since the last call, and forgets them.
func (r *records) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.text.Reset()
	return r.text.String()
}

func (r *records) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

func newStore(t *testing.T, options certs.Options) *certs.Store {
	t.Helper()
	store, err := certs.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// serial returns the serial number of the certificate that a client gets.
func serial(t *testing.T, store *certs.Store, name string) *big.Int {
	t.Helper()
	certificate, err := store.TLSConfig().GetCertificate(&tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}, SupportedCurves: []tls.CurveID{tls.CurveP256},
	})
	if err != nil {
		t.Fatal(err)
	}
	return certificate.Leaf.SerialNumber
}

var later = time.Now().Add(time.Hour)

// "A client gets the first certificate that matches … If none matches, it gets the first one."
func TestNames(t *testing.T) {
	a, first, second, wild := newAuthority(t, "CA"), files(t), files(t), files(t)
	one, two, three := put(t, a, first, "a.test", later), put(t, a, second, "b.test", later), put(t, a, wild, "*.b.test", later)
	store := newStore(t, certs.Options{Pairs: []certs.Pair{first, second, wild}})
	for name, want := range map[string]*big.Int{"a.test": one, "b.test": two, "x.b.test": three, "x.y.b.test": one, "": one, "c.test": one} {
		if got := serial(t, store, name); got.Cmp(want) != 0 {
			t.Errorf("%q gets certificate %v, want %v", name, got, want)
		}
	}
	described := store.Certificates()
	if len(described) != 3 || described[1].File != second.Cert || !slices.Equal(described[1].Names, []string{"b.test"}) ||
		described[1].NotAfter.Unix() != later.Unix() || described[1].Err != nil {
		t.Errorf("got %+v", described)
	}
}

// While clients connect, changed files are read again every Options.Interval, and no handshake waits for the reading.
func TestChange(t *testing.T) {
	a, pair, log := newAuthority(t, "CA"), files(t), new(records)
	before := put(t, a, pair, "a.test", later)
	store := newStore(t, certs.Options{Pairs: []certs.Pair{pair}, Interval: time.Millisecond, Logger: log.logger()})
	if got := serial(t, store, ""); got.Cmp(before) != 0 {
		t.Fatalf("got certificate %v, want %v", got, before)
	}
	after := put(t, a, pair, "a.test", later)
	for end := time.Now().Add(time.Minute); serial(t, store, "").Cmp(after) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new certificate isn't served")
		}
	}
	for got := ""; !strings.Contains(got, "new certificate\" file="); got += log.take() { // logged before it was served
		if got != "" && !strings.Contains(got, "refused") { // the pair may have been read when only one of its files was new
			t.Fatalf("logged %s", got)
		}
	}
}

// Unusable files are refused and logged once, and the previous certificate stays.
func TestRefused(t *testing.T) {
	a, log := newAuthority(t, "CA"), new(records)
	for name, test := range map[string]struct {
		spoil func(t *testing.T, pair certs.Pair)
		want  string
	}{
		"no file":     {func(t *testing.T, pair certs.Pair) { os.Remove(pair.Key) }, "no such file"},
		"empty":       {func(t *testing.T, pair certs.Pair) { write(t, pair.Cert, nil) }, "failed to find any PEM data"},
		"no PEM":      {func(t *testing.T, pair certs.Pair) { write(t, pair.Key, []byte("key")) }, "failed to find any PEM data"},
		"another key": {func(t *testing.T, pair certs.Pair) { _, key := a.issue(t, "a.test", later); write(t, pair.Key, key) }, "does not match"},
		"expired":     {func(t *testing.T, pair certs.Pair) { put(t, a, pair, "a.test", time.Now().Add(-time.Hour)) }, "has expired on"},
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := files(t), files(t)
			put(t, a, good, "b.test", later)
			before := put(t, a, bad, "a.test", later)
			store := newStore(t, certs.Options{Pairs: []certs.Pair{bad, good}, Interval: -1, Logger: log.logger()})
			test.spoil(t, bad)
			other := put(t, a, good, "b.test", later)
			log.take()
			for i := range 2 {
				if err := store.Reload(); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				if got := log.take(); i == 0 && strings.Count(got, "\n") != 2 || i == 0 && !strings.Contains(got, test.want) || i > 0 && got != "" {
					t.Errorf("reload %d logged %q", i, got)
				}
			}
			if got := serial(t, store, "a.test"); got.Cmp(before) != 0 {
				t.Errorf("got certificate %v, want %v", got, before)
			}
			if got := serial(t, store, "b.test"); got.Cmp(other) != 0 {
				t.Errorf("got certificate %v for the other one, want %v", got, other)
			}
			if described := store.Certificates(); described[0].Err == nil || described[1].Err != nil {
				t.Errorf("got %+v", described)
			}
			after := put(t, a, bad, "a.test", later)
			if err := store.Reload(); err != nil {
				t.Error(err)
			}
			if got := serial(t, store, "a.test"); got.Cmp(after) != 0 {
				t.Errorf("then got certificate %v, want %v", got, after)
			}
			if described := store.Certificates(); described[0].Err != nil {
				t.Errorf("then got %+v", described)
			}
		})
	}
}

// A certificate that isn't valid yet doesn't replace a good one. Once it is valid it is served, even if its files haven't changed since.
func TestNotYetValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time in the bubble begins in the year 2000
		a, log, pair := newAuthority(t, "CA"), new(records), files(t)
		from := time.Now().Add(time.Hour)
		put(t, a, pair, "a.test", time.Now().Add(2*time.Hour))
		store := newStore(t, certs.Options{Pairs: []certs.Pair{pair}, Interval: -1, Logger: log.logger()})
		before := serial(t, store, "a.test")
		cert, key := a.issueFrom(t, "a.test", from, from.Add(24*time.Hour))
		write(t, pair.Cert, cert)
		write(t, pair.Key, key)
		for i := range 3 {
			if err := store.Reload(); err == nil || !strings.Contains(err.Error(), "isn't valid before "+from.UTC().Format(time.RFC3339)) {
				t.Errorf("reload %d: %v", i, err)
			}
			if got := log.take(); strings.Count(got, "\n") != max(1-i, 0) {
				t.Errorf("reload %d logged %q", i, got)
			}
			if got := serial(t, store, "a.test"); got.Cmp(before) != 0 {
				t.Errorf("reload %d: certificate %v takes the place of %v", i, got, before)
			}
			if store.Certificates()[0].Err == nil {
				t.Errorf("reload %d: Certificates doesn't tell that it is refused", i)
			}
		}
		time.Sleep(time.Hour)
		if err := store.Reload(); err != nil {
			t.Error(err)
		}
		if got := serial(t, store, "a.test"); got.Cmp(before) == 0 || store.Certificates()[0].Err != nil {
			t.Errorf("when it is valid, certificate %v is served: %v", got, store.Certificates()[0].Err)
		}
		// At the start there is no previous certificate, so even a certificate that isn't valid yet is served.
		cert, key = a.issueFrom(t, "a.test", time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
		write(t, pair.Cert, cert)
		write(t, pair.Key, key)
		log.take()
		newStore(t, certs.Options{Pairs: []certs.Pair{pair}, Logger: log.logger()})
		if got := log.take(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "isn't valid before") {
			t.Errorf("at the start it logged %q", got)
		}
	})
}

// New fails if a certificate can't be used. A certificate that has expired is still served.
func TestNewFails(t *testing.T) {
	a, pair, log := newAuthority(t, "CA"), files(t), new(records)
	if _, err := certs.New(certs.Options{Pairs: []certs.Pair{pair}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without files: %v", err)
	}
	put(t, a, pair, "a.test", time.Now().Add(-time.Hour))
	newStore(t, certs.Options{Pairs: []certs.Pair{pair}, Logger: log.logger()})
	if got := log.take(); !strings.Contains(got, "has expired on") {
		t.Errorf("logged %q", got)
	}
	if _, err := certs.New(certs.Options{Pairs: []certs.Pair{pair}, ClientCAs: pair.Key}); err == nil || !strings.Contains(err.Error(), pair.Key) {
		t.Errorf("with a key as authorities: %v", err)
	}
	for name, options := range map[string]certs.Options{
		"no pair":        {},
		"no key":         {Pairs: []certs.Pair{{Cert: pair.Cert}}},
		"no authorities": {Pairs: []certs.Pair{pair}, ClientAuth: tls.RequireAnyClientCert},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			certs.New(options)
		}()
	}
}

// "With Options.ClientCAs the server asks clients for certificates, too, and handlers find them in filo.Ctx.TLS." New authorities apply to
// new connections, over both versions of HTTP.
func TestClientCertificates(t *testing.T) {
	a, old, renewed, pair := newAuthority(t, "CA"), newAuthority(t, "old"), newAuthority(t, "renewed"), files(t)
	put(t, a, pair, "a.test", later)
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	write(t, authorities, old.pem())
	store := newStore(t, certs.Options{
		Pairs: []certs.Pair{pair}, ClientCAs: authorities, Interval: -1, Config: &tls.Config{MinVersion: tls.VersionTLS13},
	})
	listener, err := new(filo.Server).Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{TLSConfig: store.TLSConfig(), Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
		return c.Text(200, c.TLS().PeerCertificates[0].Subject.CommonName+" by "+c.Request.Proto())
	}}
	go s.ServeTLS(listener, "", "")
	defer s.Close()
	ask := func(by *authority, second bool) (string, error) {
		config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "a.test"}
		config.RootCAs.AddCert(a.certificate)
		if by != nil {
			certificate, err := tls.X509KeyPair(by.issue(t, "somebody", later))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: second}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequest("GET", "https://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "shop.test" // a proxy passes on the client's Host, while its handshake names the server itself
		response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	want := func(by *authority, answered bool) {
		t.Helper()
		for second, proto := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
			got, err := ask(by, second)
			if answered && (err != nil || got != "somebody by "+proto) || !answered && err == nil {
				t.Errorf("answered %q, %v; want an answer: %v", got, err, answered)
			}
		}
	}
	want(old, true)
	want(renewed, false)
	want(nil, false)
	write(t, authorities, renewed.pem())
	if err := store.Reload(); err != nil {
		t.Fatal(err)
	}
	want(old, false)
	want(renewed, true)
	write(t, authorities, []byte("nothing"))
	if err := store.Reload(); err == nil {
		t.Error("authorities without a certificate are accepted")
	}
	want(renewed, true)
}

// A file that was cut off, or has a certificate that can't be parsed, is refused, and isn't mistaken for a file with fewer
// certificates.
func TestCut(t *testing.T) {
	a, pair, authorities := newAuthority(t, "CA"), files(t), filepath.Join(t.TempDir(), "ca.pem")
	cert, key := a.issue(t, "a.test", later)
	write(t, pair.Key, key)
	write(t, authorities, a.pem())
	chain := append(slices.Clip(cert), a.pem()...)
	try := func(content []byte) error {
		write(t, pair.Cert, content)
		_, err := certs.New(certs.Options{Pairs: []certs.Pair{pair}})
		write(t, authorities, content)
		write(t, pair.Cert, chain)
		_, err2 := certs.New(certs.Options{Pairs: []certs.Pair{pair}, ClientCAs: authorities})
		if (err == nil) != (err2 == nil) {
			t.Errorf("as a pair %v, and as authorities %v", err, err2)
		}
		return err
	}
	for i := range chain {
		if near := min(max(i-len(cert), len(cert)-i), len(chain)-i); near > 40 && i%29 != 0 {
			continue // within a line of base64
		}
		// A file that ends with a whole certificate is valid, with or without the end of the last line.
		if err := try(chain[:i]); (err == nil) != (i == len(cert) || i == len(cert)-1 || i == len(chain)-1) {
			t.Fatalf("%d of %d bytes, behind %d of the first certificate: %v", i, len(chain), len(cert), err)
		}
	}
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw[:100]})
	for name, test := range map[string]struct {
		content string
		good    bool
	}{
		"text around":                     {"subject: a\n---\n" + string(chain) + "- the end", true},
		"lines as Windows has them":       {strings.ReplaceAll(string(chain), "\n", "\r\n"), true},
		"other blocks":                    {string(chain) + string(key), true},
		"cut, and another block behind":   {string(cert) + string(a.pem()[:100]) + "\n" + string(key), false},
		"one that can't be parsed":        {string(cert) + string(broken), false},
		"one that is indented":            {string(cert) + strings.ReplaceAll(string(a.pem()), "-----BEGIN", "  -----BEGIN"), false},
		"an end without a beginning":      {string(chain) + "-----END CERTIFICATE-----\n", false},
		"a beginning that is cut already": {string(chain) + "-----BEG", false},
	} {
		if err := try([]byte(test.content)); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
