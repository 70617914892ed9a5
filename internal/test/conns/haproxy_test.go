package conns

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// haproxy starts HAProxy with these sections of its configuration. If HAProxy isn't installed, the test is skipped, except in CI.
func haproxy(t *testing.T, sections string) {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal(err)
		}
		t.Skip("HAProxy isn't installed: make deps")
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	const defaults = "defaults\n mode http\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n"
	if err := os.WriteFile(file, []byte(defaults+sections), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	proxy := exec.Command(path, "-db", "-f", file)
	proxy.Stdout, proxy.Stderr = &printed, &printed
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proxy.Process.Kill()
		if proxy.Wait(); t.Failed() {
			t.Logf("HAProxy printed:\n%s", &printed)
		}
	})
}

// The server understands HAProxy's headers: the client's address in both versions, and the TLVs with the host name, the TLS version, the
// unique ID and a checksum. It treats HAProxy's health checks as connections from HAProxy itself.
func TestHAProxy(t *testing.T) {
	log := new(filotest.Log)
	s := filotest.Serve(t, &filo.Server{Handler: tellProxied, ProxyProtocol: loopback, Logger: slog.New(slog.NewTextHandler(log, nil))})
	key, err := x509.MarshalPKCS8PrivateKey(filotest.Certificate().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: filotest.Certificate().Certificate[0]})
	certificate = append(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	file := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	plain, secure := filotest.FreeAddress(t), filotest.FreeAddress(t)
	haproxy(t, fmt.Sprintf(`
frontend plain
 bind %s
 default_backend version1
frontend secure
 bind %s ssl crt %s
 unique-id-format id-%%ci
 default_backend version2
backend version1
 server s %[4]s send-proxy
backend version2
 option httpchk GET /check
 server s %[4]s send-proxy-v2 proxy-v2-options ssl,authority,unique-id,crc32c check inter 50ms
`, plain, secure, file, s.Addr))
	for _, test := range []struct {
		address, scheme, want string
	}{
		{plain, "http", " local=false authority= alpn= id= tls=false {false   }"},
		{secure, "https", " local=false authority=filo.test alpn= id=id-127.0.0.1 tls=true {false TLSv1.3  }"},
	} {
		var from string
		transport := &http.Transport{TLSClientConfig: filotest.ClientTLS(), DialContext: func(context.Context, string, string) (net.Conn, error) {
			var conn net.Conn
			var err error
			filotest.Await(t, "HAProxy", func() bool {
				conn, err = net.Dial("tcp", test.address)
				return err == nil
			})
			from = conn.LocalAddr().String()
			return conn, nil
		}}
		for range 3 {
			var got string
			filotest.Await(t, "a good health check", func() bool {
				response, err := (&http.Client{Transport: transport, Timeout: filotest.Bound}).Get(test.scheme + "://filo.test/")
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				body, _ := io.ReadAll(response.Body)
				got = string(body)
				return response.StatusCode == 200
			})
			if want := from + " " + test.address + test.want; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		transport.CloseIdleConnections()
	}
	if strings.Contains(log.String(), "msg=refused") {
		t.Errorf("logged %s", log)
	}
}
