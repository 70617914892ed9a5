package standin

import (
	"net/http"
	"os"
	"reflect"

	"github.com/filohttp/filo"
)

// Native says that the suites for HTTP/2 test a server of Go's instead of filo, to see what fails by itself.
var Native = os.Getenv("FOREIGN_NATIVE") != ""

// NewHTTP2 returns a server with the handler and the settings of s. It speaks HTTP/2 over TLS, and without TLS to clients that begin with
// the preface.
func NewHTTP2(s *http.Server) *filo.Server {
	markReached()
	p := newPart(s, new(standIn), nil)
	p.TLSConfig = s.TLSConfig
	speakHTTP2(&p.Server, s.HTTP2)
	return &p.Server
}

// speakHTTP2 makes a server speak HTTP/2 with the settings of config, which may be nil.
func speakHTTP2(s *filo.Server, config *http.HTTP2Config) {
	// The fields are set by name, so that this compiles with a filo that doesn't have them.
	set := func(name string, value any) bool {
		field := reflect.ValueOf(s).Elem().FieldByName(name)
		if field.IsValid() {
			field.Set(reflect.ValueOf(value).Convert(field.Type()))
		}
		return field.IsValid()
	}
	if !set("UnencryptedHTTP2", true) {
		panic("this filo doesn't speak HTTP/2: filo.Server has no field UnencryptedHTTP2")
	}
	if config != nil {
		set("MaxConcurrentStreams", config.MaxConcurrentStreams)
	}
}
