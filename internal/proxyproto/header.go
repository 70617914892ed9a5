// Package proxyproto parses the header in which a proxy tells a server about a connection's client: the PROXY protocol, versions 1 and 2
// (HAProxy's doc/proxy-protocol.txt). Conn is a connection that begins with such a header.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// MaxSize is the size of the longest header that Parse accepts. The protocol allows 64 KB, but no proxy needs more than 4 KB.
	MaxSize = 4 << 10
	// MinSize is the size of the shortest header, which is "PROXY UNKNOWN\r\n". So reading MinSize bytes never consumes bytes after the header.
	MinSize = 15

	maxVersion1  = 107 // in bytes, including the line end
	fixedSize    = 16  // of a header of version 2: the part before the addresses
	signature    = "\r\n\r\n\x00\r\nQUIT\n"
	word         = "PROXY "
	versionProxy = 0x21
	versionLocal = 0x20
	tlvHeader    = 3
)

// Errors of Parse.
var (
	ErrMissing   = errors.New("the connection doesn't begin with a header")
	ErrTooLarge  = errors.New("the header is larger than 4 KB")
	ErrMalformed = errors.New("the header is malformed")
	ErrChecksum  = errors.New("the header's checksum is wrong")
)

// Types of TLVs that are used here.
const (
	typeALPN      = 0x01
	typeAuthority = 0x02
	typeCRC32C    = 0x03
	typeUniqueID  = 0x05
	typeTLS       = 0x20
)

// The first byte of Header.data.
const (
	kindLocal   = 'l' // the proxy's own connection
	kindUnknown = 'u' // of a client whose addresses aren't known
	kindIPv4    = '4'
	kindIPv6    = '6'
)

// Header is a parsed header. It is small, since a server may have very many connections. It is immutable.
type Header struct {
	data string // the kind, the addresses as in version 2, and the TLVs
}

// Parse parses the header at the beginning of b. It returns size 0 and no error if the header is incomplete.
func Parse(b []byte) (h *Header, size int, err error) {
	switch {
	case len(b) == 0:
		return nil, 0, nil
	case b[0] == signature[0]:
		return parse2(b)
	default:
		return parse1(b)
	}
}

// parse1 parses a header of version 1, such as "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".
func parse1(b []byte) (*Header, int, error) {
	if n := min(len(b), len(word)); string(b[:n]) != word[:n] {
		return nil, 0, ErrMissing
	}
	end := bytes.IndexByte(b[:min(len(b), maxVersion1)], '\n')
	switch {
	case end < 0 && len(b) < maxVersion1:
		return nil, 0, nil
	case end < 0 || b[end-1] != '\r':
		return nil, 0, ErrMalformed
	}
	fields := strings.Split(string(b[len(word):end-1]), " ")
	if fields[0] == "UNKNOWN" {
		return &Header{string(kindUnknown)}, end + 1, nil // the rest has no meaning
	}
	if len(fields) != 5 {
		return nil, 0, ErrMalformed
	}
	source, ok1 := parseAddress(fields[0], fields[1])
	target, ok2 := parseAddress(fields[0], fields[2])
	from, ok3 := parsePort(fields[3])
	to, ok4 := parsePort(fields[4])
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return nil, 0, ErrMalformed
	}
	data := []byte{kindIPv6}
	if source.Is4() {
		data[0] = kindIPv4
	}
	data = append(append(data, source.AsSlice()...), target.AsSlice()...)
	data = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(data, from), to)
	return &Header{string(data)}, end + 1, nil
}

func parseAddress(family, text string) (address netip.Addr, ok bool) {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil || address.Zone() != "":
		return address, false
	case family == "TCP4":
		return address, address.Is4()
	}
	return address, family == "TCP6" && address.Is6()
}

func parsePort(text string) (port uint16, ok bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && strconv.FormatUint(n, 10) == text
}

// parse2 parses a header of version 2.
func parse2(b []byte) (*Header, int, error) {
	if n := min(len(b), len(signature)); string(b[:n]) != signature[:n] {
		return nil, 0, ErrMissing
	}
	if len(b) < fixedSize {
		return nil, 0, nil
	}
	size := fixedSize + int(binary.BigEndian.Uint16(b[fixedSize-2:]))
	local := b[12] == versionLocal
	switch {
	case b[12] != versionProxy && !local:
		return nil, 0, ErrMalformed
	case size > MaxSize:
		return nil, 0, ErrTooLarge
	case len(b) < size:
		return nil, 0, nil
	case local: // the addresses must be ignored
		return &Header{string(kindLocal)}, size, nil
	}
	kind, addresses := byte(kindUnknown), 0
	switch b[13] {
	case 0x00:
	case 0x11: // TCP over IPv4
		kind, addresses = kindIPv4, 12
	case 0x21: // TCP over IPv6
		kind, addresses = kindIPv6, 36
	case 0x31: // Unix sockets, whose names aren't kept
		addresses = 216
	default:
		return nil, 0, ErrMalformed
	}
	if fixedSize+addresses > size {
		return nil, 0, ErrMalformed
	}
	tlvs := b[fixedSize+addresses : size]
	if b[13] == 0 {
		// The rest of a header of an unknown kind may have any structure, so it isn't checked.
		return &Header{string(kindUnknown)}, size, nil
	}
	if err := checkTLVs(b[:size], tlvs); err != nil {
		return nil, 0, err
	}
	data := []byte{kind}
	if kind != kindUnknown {
		data = append(data, b[fixedSize:fixedSize+addresses]...)
	}
	return &Header{string(append(data, tlvs...))}, size, nil
}

// checkTLVs checks that the last TLV ends with the header, and verifies the checksum if there is one.
func checkTLVs(header, tlvs []byte) error {
	for len(tlvs) > 0 {
		if len(tlvs) < tlvHeader {
			return ErrMalformed
		}
		end := tlvHeader + int(binary.BigEndian.Uint16(tlvs[1:]))
		switch {
		case end > len(tlvs):
			return ErrMalformed
		case tlvs[0] == typeCRC32C && end != tlvHeader+4:
			return ErrMalformed
		case tlvs[0] == typeCRC32C && checksum(header, len(header)-len(tlvs)+tlvHeader) != binary.BigEndian.Uint32(tlvs[tlvHeader:]):
			return ErrChecksum
		}
		tlvs = tlvs[end:]
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of the header. The four bytes of the checksum itself, at offset, count as zeros.
func checksum(header []byte, offset int) uint32 {
	sum := crc32.Update(0, castagnoli, header[:offset])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, header[offset+4:])
}

// IsLocal reports whether the connection is the proxy's own, such as a health check.
func (h *Header) IsLocal() bool { return h.data[0] == kindLocal }

// Source returns the client's address, which is invalid if the header has none.
func (h *Header) Source() netip.AddrPort { return h.address(0) }

// Destination returns the address to which the client has connected. It is invalid if the header has none.
func (h *Header) Destination() netip.AddrPort { return h.address(1) }

// address returns the source (0) or the destination (1).
func (h *Header) address(i int) netip.AddrPort {
	size := h.addressSize()
	if size == 0 {
		return netip.AddrPort{}
	}
	address, _ := netip.AddrFromSlice([]byte(h.data[1+i*size:][:size]))
	ports := h.data[1+2*size:]
	return netip.AddrPortFrom(address.Unmap(), uint16(ports[2*i])<<8|uint16(ports[2*i+1]))
}

// addressSize returns the size of each address in bytes, or 0 if the header has no addresses.
func (h *Header) addressSize() int {
	switch h.data[0] {
	case kindIPv4:
		return 4
	case kindIPv6:
		return 16
	}
	return 0
}

// TLV returns the value of the first TLV of this type.
func (h *Header) TLV(kind byte) (value string, ok bool) {
	tlvs := h.data[1:]
	if size := h.addressSize(); size > 0 {
		tlvs = tlvs[2*size+4:]
	}
	return find(tlvs, kind)
}

// find returns the value of the first TLV of this type.
func find(tlvs string, kind byte) (value string, ok bool) {
	for len(tlvs) >= tlvHeader {
		end := tlvHeader + (int(tlvs[1])<<8 | int(tlvs[2]))
		if end > len(tlvs) {
			return "", false // checkTLVs hasn't checked the TLVs inside a TLV
		}
		if tlvs[0] == kind {
			return tlvs[tlvHeader:end], true
		}
		tlvs = tlvs[end:]
	}
	return "", false
}

// Authority returns the server name that the client sent in its TLS handshake (SNI), or "" if there is none.
func (h *Header) Authority() string { return h.text(typeAuthority) }

// ALPN returns the protocol that the client and the proxy have negotiated, or "" if there is none.
func (h *Header) ALPN() string { return h.text(typeALPN) }

// UniqueID returns the connection's ID, or "" if there is none.
func (h *Header) UniqueID() string { return h.text(typeUniqueID) }

func (h *Header) text(kind byte) string {
	value, _ := h.TLV(kind)
	return value
}

// TLS describes the TLS connection between the client and the proxy.
type TLS struct {
	// Verified says that the client has shown a certificate, in this connection or an earlier one of the session, and the proxy has
	// verified it.
	Verified bool
	// Version and Cipher are names such as "TLSv1.3". CommonName is the client certificate's. Each is "" if the header doesn't contain it.
	Version, Cipher, CommonName string
}

// TLS reports whether the client has connected to the proxy over TLS, and returns the details that the header contains.
func (h *Header) TLS() (t TLS, ok bool) {
	value, ok := h.TLV(typeTLS)
	if !ok || len(value) < 5 || value[0]&1 == 0 {
		return TLS{}, false
	}
	const shown = 0x02 | 0x04 // the client certificate was shown on this connection, or on another one of the TLS session
	t.Verified = value[0]&shown != 0 && value[1:5] == "\x00\x00\x00\x00"
	sub := value[5:]
	t.Version, _ = find(sub, 0x21)
	t.CommonName, _ = find(sub, 0x22)
	t.Cipher, _ = find(sub, 0x23)
	return t, true
}
