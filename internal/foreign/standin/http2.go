package standin

import (
	"net/http"
	"os"

	"github.com/filohttp/filo"
)

// Native says that the HTTP/2 suites test Go's server instead of filo's. This shows which tests fail there, too.
var Native = os.Getenv("FOREIGN_NATIVE") != ""

// NewHTTP2 returns a server with the handler and the settings of s. It speaks HTTP/2 over TLS, and without TLS to clients that begin with
// the preface.
func NewHTTP2(s *http.Server) *filo.Server {
	markReached()
	p := newPart(s, nil)
	p.TLSConfig = s.TLSConfig
	speakHTTP2(&p.Server, s.HTTP2)
	return &p.Server
}

// speakHTTP2 makes a server speak HTTP/2 with the settings of config, which may be nil.
func speakHTTP2(s *filo.Server, config *http.HTTP2Config) {
	s.HTTP2.Unencrypted, s.HTTP2.MaxGlitches = true, -1
	if config == nil {
		return
	}
	s.HTTP2.MaxConcurrentStreams, s.HTTP2.PingInterval = config.MaxConcurrentStreams, config.SendPingTimeout
	s.HTTP2.MaxStreamWindow, s.HTTP2.MaxConnWindow = config.MaxReceiveBufferPerStream, config.MaxReceiveBufferPerConnection
}
