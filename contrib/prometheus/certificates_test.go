package prometheus_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo/certs"
	"github.com/filohttp/filo/contrib/prometheus"
)

// The gauges tell when a certificate expires, and that a new certificate was refused.
func TestCertificates(t *testing.T) {
	file, end := filepath.Join(t.TempDir(), "both.pem"), time.Now().Add(time.Hour)
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})...)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	pair := certs.Pair{Cert: file, Key: file}
	store, err := certs.New(certs.Options{Pairs: []certs.Pair{pair, pair}, Interval: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Certificates(store))
	want := func(refused string) {
		t.Helper()
		label := fmt.Sprintf("{file=%q} ", file)
		wantLines(t, "what the store serves", exposed(t, registry), fmt.Sprintf("filo_certificate_refused%s%s", label, refused))
		_, value, _ := strings.Cut(exposed(t, registry), "\nfilo_certificate_not_after_seconds"+label)
		value, _, _ = strings.Cut(value, "\n")
		if got, err := strconv.ParseFloat(value, 64); err != nil || int64(got) != end.Unix() {
			t.Errorf("it expires at %q, want %d", value, end.Unix())
		}
	}
	want("0.0")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if store.Reload() == nil {
		t.Error("an empty file is accepted")
	}
	want("1.0")
}
