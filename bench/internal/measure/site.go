package measure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/filohttp/filo/bench/internal/row"
)

// Site is what servers are given: files, and a certificate.
type Site struct{ Files, cert, key string }

// NewSite makes them in a folder.
func NewSite(folder string) (*Site, error) {
	s := &Site{Files: filepath.Join(folder, "files"), cert: filepath.Join(folder, "cert.pem"), key: filepath.Join(folder, "key.pem")}
	if err := os.MkdirAll(s.Files, 0o755); err != nil {
		return nil, err
	}
	for name, size := range row.Files {
		if err := writeFile(filepath.Join(s.Files, name), size); err != nil {
			return nil, err
		}
	}
	return s, s.makeCertificate()
}

// args are the flags that a row needs.
func (s *Site) args(r *row.Row) []string {
	args := slices.Clone(r.Args)
	if r.TLS {
		args = append(args, "-cert", s.cert, "-key", s.key)
	}
	return args
}

// writeFile makes a file of so many bytes, with something in all of its blocks.
func writeFile(name string, size int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	block := make([]byte, min(size, 64<<10))
	for i := range block {
		block[i] = byte(i * 31 >> 2)
	}
	for written := 0; written < size && err == nil; written += len(block) {
		_, err = f.Write(block[:min(len(block), size-written)])
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

func (s *Site) makeCertificate() error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if err := writePEM(s.cert, "CERTIFICATE", cert); err != nil {
		return err
	}
	return writePEM(s.key, "PRIVATE KEY", key)
}

func writePEM(name, kind string, der []byte) error {
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
