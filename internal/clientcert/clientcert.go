// Package clientcert compares the client certificates that a TLS configuration demands for different hosts. It uses only configurations and the state
// of a TLS connection.
package clientcert

import (
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
)

// Differs reports whether base.GetConfigForClient demands another client certificate for the host than for the one that the connection was
// opened for. It calls GetConfigForClient for both hosts, since the demands may have changed since the handshake. conn is the connection that
// GetConfigForClient gets in its ClientHelloInfo.
func Differs(base *tls.Config, state *tls.ConnectionState, host string, conn net.Conn) bool {
	opened, host := serverName(state.ServerName), serverName(host)
	if opened == host {
		return false
	}
	had, err := configFor(base, state, opened, conn)
	if err != nil {
		return true
	}
	demanded, err := configFor(base, state, host, conn)
	return err != nil || !sameDemands(had, demanded)
}

// serverName returns the server name that a client sends in its handshake for a host: in lower case, without the final dot of a fully qualified name.
// It returns "" for an IP address (RFC 6066, section 3).
func serverName(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// configFor returns the configuration that GetConfigForClient would return if a client made a handshake for the host, with the TLS version, the
// cipher suite and the application protocol of this connection.
func configFor(base *tls.Config, state *tls.ConnectionState, host string, conn net.Conn) (*tls.Config, error) {
	hello := &tls.ClientHelloInfo{
		ServerName: host, CipherSuites: []uint16{state.CipherSuite}, SupportedVersions: []uint16{state.Version},
		SupportedCurves: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}, SupportedPoints: []uint8{0},
		SignatureSchemes: helloSchemes, Conn: conn,
	}
	if state.NegotiatedProtocol != "" {
		hello.SupportedProtos = []string{state.NegotiatedProtocol}
	}
	config, err := base.GetConfigForClient(hello)
	if config == nil {
		config = base
	}
	return config, err
}

// helloSchemes make ClientHelloInfo.SupportsCertificate decide by the name of the host.
var helloSchemes = []tls.SignatureScheme{
	tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512, tls.Ed25519,
	tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512, tls.PKCS1WithSHA256, tls.PKCS1WithSHA384, tls.PKCS1WithSHA512,
}

// sameDemands reports whether two configurations demand the same client certificate. Functions can't be compared, so only whether both are set
// counts.
func sameDemands(a, b *tls.Config) bool {
	if a == b {
		return true
	}
	return a.ClientAuth == b.ClientAuth && (a.ClientAuth == tls.NoClientCert || a.ClientCAs.Equal(b.ClientCAs)) &&
		(a.VerifyPeerCertificate == nil) == (b.VerifyPeerCertificate == nil) && (a.VerifyConnection == nil) == (b.VerifyConnection == nil)
}
