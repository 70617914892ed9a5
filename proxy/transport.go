package proxy

import (
	"net"
	"net/http"
	"time"
)

// transport is the default http.RoundTripper of a proxy. Without TLS, an http.Transport speaks either HTTP/1.1 or HTTP/2, so there are
// two of them.
type transport struct {
	usual *http.Transport // HTTP/1.1; with TLS also HTTP/2, if Options.HTTP2 is set
	h2c   *http.Transport // HTTP/2 without TLS; nil if Options.HTTP2 isn't set
}

// Over HTTP/2, all requests to an upstream share one connection. PINGs detect a broken connection, and the window of a stream limits how
// much of an answer the proxy buffers for a slow client.
const (
	pingAfter    = 15 * time.Second // without received data
	pingTimeout  = 5 * time.Second
	streamWindow = 128 << 10 // enough for 400 MB/s if an upstream is 0.3 ms away
)

func newTransport(o *Options) *transport {
	if !o.HTTP2 {
		return &transport{usual: newHTTPTransport(o, (*http.Protocols).SetHTTP1)}
	}
	return &transport{
		usual: newHTTPTransport(o, (*http.Protocols).SetHTTP1, (*http.Protocols).SetHTTP2),
		h2c:   newHTTPTransport(o, (*http.Protocols).SetUnencryptedHTTP2),
	}
}

func newHTTPTransport(o *Options, protocols ...func(*http.Protocols, bool)) *http.Transport {
	t := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: o.DialTimeout}).DialContext,
		TLSHandshakeTimeout:   o.DialTimeout,
		ResponseHeaderTimeout: o.ResponseTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       30 * time.Second,
		DisableCompression:    true, // the upstream chooses an encoding by the client's Accept-Encoding
		Protocols:             new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: streamWindow,
		},
	}
	for _, set := range protocols {
		set(t.Protocols, true)
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.h2c != nil && r.URL.Scheme == "http" && r.Header.Get("Upgrade") == "" { // HTTP/2 has no upgrades
		return t.h2c.RoundTrip(r)
	}
	return t.usual.RoundTrip(r)
}

// closeIdle closes the connections that no request uses.
func (t *transport) closeIdle() {
	t.usual.CloseIdleConnections()
	if t.h2c != nil {
		t.h2c.CloseIdleConnections()
	}
}
