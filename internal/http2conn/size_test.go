package http2conn

import (
	"testing"
	"unsafe"

	"github.com/filohttp/filo/internal/race"
)

// The types of which a server has very many values fit into the size classes of Go's allocator that are listed here. Go's runtime adds 8
// bytes to objects of more than 512 bytes.
func TestHTTP2Sizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 || race.Enabled {
		t.Skip("pointers have 4 bytes, or a mutex more than elsewhere")
	}
	for name, size := range map[string]struct{ got, class uintptr }{
		"a connection": {unsafe.Sizeof(Conn{}) + 8, 640},
		"a stream":     {unsafe.Sizeof(Stream{}), 288},
		"a request":    {unsafe.Sizeof(Request{}), 256},
	} {
		if size.got > size.class {
			t.Errorf("%s takes %d bytes, and the size class has %d", name, size.got, size.class)
		}
	}
}
