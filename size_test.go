package filo

import (
	"testing"
	"unsafe"

	"github.com/filohttp/filo/internal/race"
)

// The types of which a server has very many values fit a size class of Go's allocator. Objects over 512 bytes begin with 8 bytes that
// belong to the runtime.
func TestSizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 || race.Enabled {
		t.Skip("pointers have 4 bytes, or a mutex more than elsewhere")
	}
	for name, size := range map[string]struct{ got, class uintptr }{
		"a parked connection or stream": {unsafe.Sizeof(ParkedConn{}), 320},
		"a connection":                  {unsafe.Sizeof(conn{}), 256},
	} {
		if size.got > size.class {
			t.Errorf("%s takes %d bytes, and the size class has %d", name, size.got, size.class)
		}
	}
}
