// Package certs serves TLS certificates from files, and loads new certificates when the files change, so that a renewal needs no
// restart.
//
//	store, err := certs.New(certs.Options{Pairs: []certs.Pair{
//		{Cert: "/etc/app/example.com.pem", Key: "/etc/app/example.com.key"},
//		{Cert: "/etc/app/example.org.pem", Key: "/etc/app/example.org.key"},
//	}})
//	if err != nil {
//		return err
//	}
//	store.ReloadOn(ctx, syscall.SIGHUP)
//	s.TLSConfig = store.TLSConfig()
//	return s.RunTLS(ctx, ":443", "", "")
//
// A client gets the first certificate that matches the host name that it asks for (SNI) and the kinds of keys that it supports. If none
// matches, the client gets the certificate of the first Pair.
//
// The files are read again after a signal (ReloadOn) and, while clients connect, every Options.Interval. No handshake waits for the
// reading. A server without clients reads nothing. If the files are unusable, they are refused and logged once, and the previous
// certificate stays in use. Files are unusable if they can't be read or parsed, if the key belongs to another certificate (as while only
// one of the files is replaced), or if the certificate has expired. A certificate that isn't valid yet is refused until it is valid.
//
// With Options.ClientCAs the server asks clients for certificates, too, and handlers find them in filo.Ctx.TLS. Store.Certificates returns
// the expiry dates for a gauge, such as that of package contrib/prometheus.
package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/setup"
)

// DefaultInterval is the default of Options.Interval.
const DefaultInterval = 10 * time.Second

var must = setup.Checker("certs")

// Pair names the PEM files of a certificate, with its intermediates, and its key. They may be the same file.
type Pair struct{ Cert, Key string }

// Options are the options of New. Pairs is required.
type Options struct {
	// Pairs are the certificates. If no certificate matches a client, it gets the first one.
	Pairs []Pair
	// ClientCAs is a PEM file with the authorities that may sign clients' certificates. "": clients aren't asked for certificates.
	ClientCAs string
	// ClientAuth says what the server demands of clients' certificates, if ClientCAs is set. Default tls.RequireAndVerifyClientCert.
	ClientAuth tls.ClientAuthType
	// Config has the other settings of TLS, such as MinVersion. It is cloned.
	Config *tls.Config
	// Interval is how often the files are read while clients connect. Default 10 s; negative: only Reload reads them.
	Interval time.Duration
	// Logger receives a record of each new certificate, and of each refused one. Default slog.Default.
	Logger *slog.Logger
}

// Certificate describes a certificate that is served.
type Certificate struct {
	// File is Pair.Cert.
	File string
	// Names are the host names and addresses for which it is valid.
	Names []string
	// NotBefore and NotAfter are the limits of its validity.
	NotBefore, NotAfter time.Time
	// Err is why the current files were refused; nil if this certificate came from them.
	Err error
}

// Store holds the current certificates. Its methods may be called by several goroutines at once.
type Store struct {
	options Options
	current atomic.Pointer[snapshot]
	next    atomic.Int64 // when the files may be read again, in Unix nanoseconds

	mu    sync.Mutex
	pairs []*source[tls.Certificate] // guarded by mu
	cas   *source[x509.CertPool]     // nil without client certificates; guarded by mu
}

// snapshot holds the certificates and the configuration for handshakes.
type snapshot struct {
	certificates []*tls.Certificate
	config       *tls.Config // for GetConfigForClient; nil without client certificates
	described    []Certificate
}

// source is a value that is read from files.
type source[T any] struct {
	files []string
	parse func(contents [][]byte, first bool) (*T, error)

	contents [][]byte // as they were when last read; nil if parsing them again may give another result
	value    *T       // the last valid value
	err      error    // why the last attempt to read and parse the files failed; nil if it succeeded
}

// New reads the certificates. New fails if a certificate can't be used. New logs a certificate that has expired or isn't valid yet, but
// serves it, since there is no previous certificate to serve instead. New panics if Options has no Pairs, or a pair lacks a file.
func New(options Options) (*Store, error) {
	must(len(options.Pairs) > 0, "Options.Pairs is empty")
	must(options.ClientCAs != "" || options.ClientAuth == tls.NoClientCert, "Options.ClientAuth needs ClientCAs")
	options.Interval = cmp.Or(options.Interval, DefaultInterval)
	if options.ClientCAs != "" && options.ClientAuth == tls.NoClientCert {
		options.ClientAuth = tls.RequireAndVerifyClientCert
	}
	s := &Store{options: options}
	for _, pair := range options.Pairs {
		must(pair.Cert != "" && pair.Key != "", "a pair needs both files, and is %q", pair)
		s.pairs = append(s.pairs, &source[tls.Certificate]{files: []string{pair.Cert, pair.Key}, parse: s.parsePair})
	}
	if options.ClientCAs != "" {
		s.cas = &source[x509.CertPool]{files: []string{options.ClientCAs}, parse: parsePool}
	}
	if err := s.reload(true); err != nil {
		return nil, err
	}
	s.due()
	return s, nil
}

// parsePair parses a certificate and its key.
func (s *Store) parsePair(contents [][]byte, first bool) (*tls.Certificate, error) {
	certificate, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkPEM(contents[0]), checkPEM(contents[1])); err != nil {
		return nil, err
	}
	if certificate.Leaf == nil { // a GODEBUG setting can cause that
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, err
		}
	}
	if err := checkTime(certificate.Leaf); err != nil {
		if !first {
			return nil, err
		}
		s.logger().Error("certs: the certificate is served despite a problem", "error", err)
	}
	return &certificate, nil
}

// checkTime returns an error if a certificate isn't valid now.
func checkTime(leaf *x509.Certificate) error {
	switch now := time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate has expired on %s", leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return notYetError(leaf.NotBefore)
	}
	return nil
}

// notYetError is the error of a certificate that is valid only from this time on.
type notYetError time.Time

func (e notYetError) Error() string {
	return "the certificate isn't valid before " + time.Time(e).Format(time.RFC3339)
}

func parsePool(contents [][]byte, _ bool) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents[0]) {
		return nil, errors.New("no certificate in it")
	}
	return pool, checkPEM(contents[0])
}

// checkPEM returns an error if a file has the first line of a PEM block without the last, or the last without the first, or a
// certificate that can't be parsed. This detects files that were cut off. Other text around the blocks is allowed.
func checkPEM(content []byte) error {
	begun, ended, blocks, certificates := 0, 0, 0, 0
	for line := range bytes.Lines(content) {
		whole := bytes.HasSuffix(line, []byte{'\n'})
		switch line = bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, pemBegin):
			begun++
		case bytes.HasPrefix(line, pemEnd):
			ended++
		case !whole && len(line) > 0 && (bytes.HasPrefix(pemBegin, line) || bytes.HasPrefix(pemEnd, line)): // the file was cut inside this line
			begun++
		}
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificates++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d in it: %w", certificates, err)
		}
	}
	if begun != blocks || ended != blocks {
		return fmt.Errorf("it has a malformed block of PEM besides %d that can be read: perhaps the file was cut", blocks)
	}
	return nil
}

var pemBegin, pemEnd = []byte("-----BEGIN "), []byte("-----END ")

// read reads the files. It reports whether anything has changed since the last time: a new value, or a new error.
func (f *source[T]) read(first bool) (changed bool) {
	var contents [][]byte
	var err error
	for _, file := range f.files {
		content, failed := os.ReadFile(file)
		err = cmp.Or(err, failed)
		contents = append(contents, content)
	}
	if err != nil {
		changed = f.err == nil || f.err.Error() != "certs: "+err.Error()
		f.contents, f.err = nil, fmt.Errorf("certs: %w", err)
		return changed
	}
	if f.contents != nil && slices.EqualFunc(f.contents, contents, bytes.Equal) {
		return false
	}
	f.contents = contents
	value, err := f.parse(contents, first)
	if err != nil {
		err = fmt.Errorf("certs: %s: %w", f.files[0], err)
		if _, notYet := errors.AsType[notYetError](err); notYet {
			f.contents = nil
		}
		changed = f.err == nil || f.err.Error() != err.Error()
		f.err = err
		return changed
	}
	f.value, f.err = value, nil
	return true
}

// Reload reads the files now. The error names all refused files; the certificates of the other files are served.
func (s *Store) Reload() error { return s.reload(false) }

func (s *Store) reload(first bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all error
	changed := first
	for _, pair := range s.pairs {
		if pair.read(first) {
			changed = true
			s.tell(pair.files[0], pair.err, first)
		}
		all = errors.Join(all, pair.err)
	}
	if s.cas != nil {
		if s.cas.read(first) {
			changed = true
			s.tell(s.cas.files[0], s.cas.err, first)
		}
		all = errors.Join(all, s.cas.err)
	}
	if changed && (!first || all == nil) {
		s.current.Store(s.take())
	}
	return all
}

// tell logs whether a changed file was accepted or refused. During New (first) it logs nothing, since New returns the errors.
func (s *Store) tell(file string, err error, first bool) {
	switch {
	case first:
	case err != nil:
		s.logger().Error("certs: a new certificate is refused, and the previous one stays", "error", err)
	default:
		s.logger().Info("certs: new certificate", "file", file)
	}
}

// take makes a snapshot from the last good value of each file. The caller holds mu.
func (s *Store) take() *snapshot {
	taken := new(snapshot)
	for _, pair := range s.pairs {
		leaf := pair.value.Leaf
		described := Certificate{File: pair.files[0], Names: leaf.DNSNames, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Err: pair.err}
		for _, ip := range leaf.IPAddresses {
			described.Names = append(described.Names[:len(described.Names):len(described.Names)], ip.String())
		}
		taken.certificates = append(taken.certificates, pair.value)
		taken.described = append(taken.described, described)
	}
	if s.cas != nil {
		taken.config = s.config()
		taken.config.ClientCAs = s.cas.value
	}
	return taken
}

// config returns the settings that don't depend on the files.
func (s *Store) config() *tls.Config {
	config := s.options.Config.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	config.GetCertificate, config.ClientAuth = s.certificate, s.options.ClientAuth
	return config
}

// TLSConfig returns a configuration that serves the current certificates, for filo.Server.TLSConfig.
func (s *Store) TLSConfig() *tls.Config {
	config := s.config()
	if s.cas != nil {
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s.look()
			return s.current.Load().config, nil
		}
	}
	return config
}

// certificate implements tls.Config.GetCertificate.
func (s *Store) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.look()
	certificates := s.current.Load().certificates
	if len(certificates) > 1 {
		for _, each := range certificates {
			if hello.SupportsCertificate(each) == nil {
				return each, nil
			}
		}
	}
	return certificates[0], nil
}

// look reloads the files in the background if Options.Interval has passed.
func (s *Store) look() {
	next := s.next.Load()
	if s.options.Interval > 0 && time.Now().UnixNano() >= next && s.next.CompareAndSwap(next, 1<<63-1) {
		go func() {
			s.reload(false) // reload logs its errors itself
			s.due()
		}()
	}
}

// due sets the time from which the files may be read again.
func (s *Store) due() { s.next.Store(time.Now().Add(s.options.Interval).UnixNano()) }

// ReloadOn reloads the files whenever the process receives one of the signals, until ctx ends.
func (s *Store) ReloadOn(ctx context.Context, signals ...os.Signal) {
	must(len(signals) > 0, "ReloadOn without a signal") // no signal would mean all signals
	came := make(chan os.Signal, 1)
	signal.Notify(came, signals...)
	go func() {
		defer signal.Stop(came)
		for {
			select {
			case <-came:
				if err := s.Reload(); err != nil {
					s.logger().Error("certs: reloaded, except for the refused files", "error", err)
				} else {
					s.logger().Info("certs: reloaded")
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Certificates describes the certificates that are served, in the order of Options.Pairs.
func (s *Store) Certificates() []Certificate {
	s.look()
	return append([]Certificate(nil), s.current.Load().described...)
}

func (s *Store) logger() *slog.Logger { return cmp.Or(s.options.Logger, slog.Default()) }
