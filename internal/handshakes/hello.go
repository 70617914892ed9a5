package handshakes

import "encoding/binary"

// IsWholeHello reports whether b holds a whole ClientHello, in one record or in several. It also reports true for bytes that can't begin a
// ClientHello, since crypto/tls refuses them without waiting for more.
func IsWholeHello(b []byte) bool {
	const recordHeader, handshakeRecord, messageHeader, maxMessage = 5, 22, 4, 64 << 10
	var header [messageHeader]byte // the type and the size of the handshake message
	for came := 0; len(b) > 0; {
		if b[0] != handshakeRecord {
			return true
		}
		if len(b) < recordHeader {
			return false
		}
		size := int(binary.BigEndian.Uint16(b[recordHeader-2:]))
		if b = b[recordHeader:]; size == 0 {
			return true // no handshake has an empty record
		}
		if len(b) < size {
			return false
		}
		if came < messageHeader {
			copy(header[came:], b[:size])
		}
		came += size
		message := int(binary.BigEndian.Uint32(header[:]) & (1<<24 - 1))
		if came >= messageHeader && (came >= messageHeader+message || message > maxMessage) {
			return true
		}
		b = b[size:]
	}
	return false
}
