package clientcert

import (
	"crypto/tls"
	"errors"
	"testing"
)

// A request for another host needs another connection only if the configuration for that host demands another client certificate, or can't be
// compared.
func TestDiffers(t *testing.T) {
	strict := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}
	base := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		switch hello.ServerName {
		case "strict.example":
			return strict, nil
		case "same.example":
			return &tls.Config{MinVersion: tls.VersionTLS13}, nil
		case "none.example":
			return nil, errors.New("no such host")
		}
		return nil, nil
	}}
	for _, test := range []struct {
		opened, host string
		want         bool
	}{
		{"a.example", "A.example.", false}, {"a.example", "b.example", false}, {"a.example", "same.example", false}, {"a.example", "192.0.2.1", false},
		{"a.example", "strict.example", true}, {"strict.example", "a.example", true}, {"a.example", "none.example", true}, {"none.example", "a.example", true},
		{"strict.example", "strict.example", false},
	} {
		if got := Differs(base, &tls.ConnectionState{ServerName: test.opened}, test.host, nil); got != test.want {
			t.Errorf("opened for %s, a request for %s: %t", test.opened, test.host, got)
		}
	}
}
