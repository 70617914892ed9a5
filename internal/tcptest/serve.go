// Package tcptest runs servers on TCP sockets in tests, which servertest doesn't do.
package tcptest

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// TLSConfig returns a TLS configuration with a certificate for localhost and example.com.
func TLSConfig() *tls.Config {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// shutdownTime is how long running handlers have to finish after the test.
const shutdownTime = 60 * time.Second

// Serve serves on a TCP address of the loopback interface until the test ends, and returns the address. It serves over TLS if the server
// has a TLSConfig.
func Serve(t testing.TB, s *filo.Server) (address string) {
	t.Helper()
	ln, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		if s.TLSConfig != nil {
			served <- s.ServeTLS(ln, "", "")
			return
		}
		served <- s.Serve(ln)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
			s.Close()
		}
		if err := <-served; !errors.Is(err, filo.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return ln.Addr().String()
}
