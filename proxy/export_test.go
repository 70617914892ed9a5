package proxy

import (
	"crypto/tls"
	"crypto/x509"
)

// SetTurn makes n the number of attempts that were made so far.
func (p *Proxy) SetTurn(n uint32) { p.turn.Store(n) }

// TrustRoots makes the proxy's own transport trust upstreams by these authorities. It must be called before the first request.
func (p *Proxy) TrustRoots(roots *x509.CertPool) {
	p.transport.(*transport).usual.TLSClientConfig = &tls.Config{RootCAs: roots}
}

// HasDotSegment is hasDotSegment.
var HasDotSegment = hasDotSegment
