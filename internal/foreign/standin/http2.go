package standin

import (
	"net/http"
	"os"
	"reflect"

	"github.com/filohttp/filo"
)

// Native says that the suites for HTTP/2 are to test the server of Go's that they were written for, and not filo.
var Native = os.Getenv("FOREIGN_NATIVE") != ""

// NewHTTP2 returns a server that speaks HTTP/2 with the handler and the settings of s, by ALPN and without TLS. The suites for HTTP/2 test it.
func NewHTTP2(s *http.Server) *filo.Server {
	markReached()
	p := newPart(s, new(standIn), nil)
	p.TLSConfig = s.TLSConfig
	speakHTTP2(&p.Server, s.HTTP2)
	return &p.Server
}

// speakHTTP2 makes a server speak HTTP/2. The config may be nil.
func speakHTTP2(s *filo.Server, config *http.HTTP2Config) {
	// The fields are found by name, so that this compiles with a filo that doesn't have them.
	fields := reflect.ValueOf(s).Elem()
	clear := fields.FieldByName("UnencryptedHTTP2")
	if !clear.IsValid() {
		panic("this filo doesn't speak HTTP/2: filo.Server has no field UnencryptedHTTP2")
	}
	clear.SetBool(true)
	if most := fields.FieldByName("MaxConcurrentStreams"); most.IsValid() && config != nil {
		most.SetInt(int64(config.MaxConcurrentStreams))
	}
}
