package handshakes

import "testing"

// Bytes that crypto/tls refuses without reading more count as a whole hello, so that the server doesn't wait for the rest.
func TestIsWholeHello(t *testing.T) {
	const hello = "\x16\x03\x01\x00\x03\x01\x00\x00\x16\x03\x01\x00\x03\x02ab" // in two records
	for n := range len(hello) {
		if IsWholeHello([]byte(hello[:n])) {
			t.Errorf("%d of %d bytes are whole", n, len(hello))
		}
	}
	for _, whole := range []string{hello, "GET / HTTP/1.1", "\x15", "\x16\x03\x01\x00\x00", "\x16\x03\x01\x00\x05\x01\xff\xff\xff\x00", "\x16\x03\x01\x00\x01\x01\x17"} {
		if !IsWholeHello([]byte(whole)) {
			t.Errorf("%q isn't whole", whole)
		}
	}
}
