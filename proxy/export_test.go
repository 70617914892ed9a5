package proxy

import (
	"crypto/tls"
	"crypto/x509"
)

// SetTurn sets the number of attempts made so far to n.
func (p *Proxy) SetTurn(n uint32) { p.turn.Store(n) }

// TrustRoots makes the proxy's own transport trust certificates of upstreams that these authorities have signed. It must be
// called before the first request.
func (p *Proxy) TrustRoots(roots *x509.CertPool) {
	p.transport.(*transport).usual.TLSClientConfig = &tls.Config{RootCAs: roots}
}

// HasDotSegment exports hasDotSegment.
var HasDotSegment = hasDotSegment

// Active returns how many requests the upstreams are serving.
func (p *Proxy) Active() (n int64) {
	for _, u := range p.upstreams {
		n += u.active.Load()
	}
	return n
}
