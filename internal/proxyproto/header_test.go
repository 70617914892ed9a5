package proxyproto

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// version2 makes a header of version 2.
func version2(command, family byte, rest ...string) string {
	block := strings.Join(rest, "")
	b := append([]byte(signature), command, family)
	return string(binary.BigEndian.AppendUint16(b, uint16(len(block)))) + block
}

func tlv(kind byte, value string) string {
	return string(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value)))) + value
}

const (
	ipv4 = "\xc0\x00\x02\x01\xc6\x33\x64\x02\xdc\x04\x01\xbb"
	ipv6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
)

// summed makes a header with a checksum.
func summed(value uint32) string {
	header := version2(0x21, 0x11, ipv4, tlv(typeCRC32C, "\x00\x00\x00\x00"), tlv(typeUniqueID, "id"))
	sum := crc32.Checksum([]byte(header), castagnoli) + value
	at := fixedSize + len(ipv4) + tlvHeader
	return header[:at] + string(binary.BigEndian.AppendUint32(nil, sum)) + header[at+4:]
}

var valid = map[string]struct {
	header       string
	source, dest string
	local        bool
}{
	"TCP4":             {"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", "192.0.2.1:56324", "198.51.100.2:443", false},
	"TCP6":             {"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "[2001:db8::1]:56324", "[2001:db8::2]:443", false},
	"TCP6, longest":    {"PROXY TCP6 ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", "", "", false}, // see init
	"UNKNOWN":          {"PROXY UNKNOWN\r\n", "", "", false},
	"UNKNOWN, more":    {"PROXY UNKNOWN ffff:: any thing\r\n", "", "", false},
	"2, IPv4":          {version2(0x21, 0x11, ipv4), "192.0.2.1:56324", "198.51.100.2:443", false},
	"2, IPv6":          {version2(0x21, 0x21, ipv6), "[2001:db8::1]:56324", "[2001:db8::2]:443", false},
	"2, TLVs":          {version2(0x21, 0x11, ipv4, tlv(typeUniqueID, "id"), tlv(4, "\x00\x00")), "192.0.2.1:56324", "198.51.100.2:443", false},
	"2, local":         {version2(0x20, 0x00), "", "", true},
	"2, local, more":   {version2(0x20, 0x11, ipv4), "", "", true},
	"2, unspecified":   {version2(0x21, 0x00, "anything"), "", "", false},
	"2, Unix":          {version2(0x21, 0x31, strings.Repeat("x", 216), tlv(typeUniqueID, "id")), "", "", false},
	"2, with checksum": {summed(0), "192.0.2.1:56324", "198.51.100.2:443", false},
	"2, largest":       {version2(0x21, 0x11, ipv4, tlv(0xe0, strings.Repeat("x", MaxSize-fixedSize-len(ipv4)-tlvHeader))), "192.0.2.1:56324", "198.51.100.2:443", false},
}

func init() {
	full := "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	longest := valid["TCP6, longest"]
	longest.header = "PROXY TCP6 " + full + " " + full + " 65535 65535\r\n"
	longest.source = "[" + full + "]:65535"
	longest.dest = longest.source
	valid["TCP6, longest"] = longest
}

// Each header is parsed once it is complete, whatever bytes follow. Until then Parse returns size 0.
func TestValid(t *testing.T) {
	for name, test := range valid {
		t.Run(name, func(t *testing.T) {
			for n := range len(test.header) {
				if h, size, err := Parse([]byte(test.header)[:n:n]); h != nil || size != 0 || err != nil {
					t.Fatalf("the first %d bytes: %v, %d, %v", n, h, size, err)
				}
			}
			for _, follows := range []string{"", "GET / HTTP/1.1\r\n", "\r\n\r\n"} {
				h, size, err := Parse([]byte(test.header + follows))
				if err != nil || size != len(test.header) {
					t.Fatalf("size %d of %d, %v", size, len(test.header), err)
				}
				for _, each := range []struct {
					got  netip.AddrPort
					want string
				}{{h.Source(), test.source}, {h.Destination(), test.dest}} {
					if each.got.IsValid() != (each.want != "") || each.want != "" && each.got != netip.MustParseAddrPort(each.want) {
						t.Errorf("got %v, want %q", each.got, each.want)
					}
				}
				if h.IsLocal() != test.local {
					t.Errorf("local: %v", h.IsLocal())
				}
			}
			if len(test.header) < MinSize {
				t.Errorf("MinSize is %d, and the header has %d bytes", MinSize, len(test.header))
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		header string
		want   error
	}{
		"a request":                  {"GET / HTTP/1.1\r\n\r\n", ErrMissing},
		"its first byte":             {"G", ErrMissing},
		"a hello":                    {"\x16\x03\x01\x02\x00", ErrMissing},
		"almost the word":            {"PROXX", ErrMissing},
		"almost the signature":       {"\r\n\r\n\x00\r\nQUIX\n", ErrMissing},
		"lower case":                 {"proxy TCP4", ErrMissing},
		"no end":                     {"PROXY TCP4 " + strings.Repeat("1", maxVersion1), ErrMalformed},
		"a bare line feed":           {"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\n", ErrMalformed},
		"nothing":                    {"PROXY \r\n", ErrMalformed},
		"another protocol":           {"PROXY UDP4 192.0.2.1 198.51.100.2 56324 443\r\n", ErrMalformed},
		"two spaces":                 {"PROXY TCP4  192.0.2.1 198.51.100.2 56324 443\r\n", ErrMalformed},
		"a space at the end":         {"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n", ErrMalformed},
		"no ports":                   {"PROXY TCP4 192.0.2.1 198.51.100.2\r\n", ErrMalformed},
		"a large port":               {"PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n", ErrMalformed},
		"a port with a zero":         {"PROXY TCP4 192.0.2.1 198.51.100.2 080 443\r\n", ErrMalformed},
		"a port with a sign":         {"PROXY TCP4 192.0.2.1 198.51.100.2 +80 443\r\n", ErrMalformed},
		"an address of the other":    {"PROXY TCP4 2001:db8::1 198.51.100.2 80 443\r\n", ErrMalformed},
		"IPv4 as IPv6":               {"PROXY TCP6 192.0.2.1 198.51.100.2 80 443\r\n", ErrMalformed},
		"a zone":                     {"PROXY TCP6 fe80::1%eth0 2001:db8::2 80 443\r\n", ErrMalformed},
		"2, another version":         {version2(0x11, 0x11, ipv4), ErrMalformed},
		"2, another command":         {version2(0x22, 0x11, ipv4), ErrMalformed},
		"2, UDP":                     {version2(0x21, 0x12, ipv4), ErrMalformed},
		"2, another family":          {version2(0x21, 0x41, ipv4), ErrMalformed},
		"2, too short for addresses": {version2(0x21, 0x21, ipv4), ErrMalformed},
		"2, half a TLV":              {version2(0x21, 0x11, ipv4, "\x05\x00"), ErrMalformed},
		"2, a TLV beyond the end":    {version2(0x21, 0x11, ipv4, "\x05\x00\x05abcd"), ErrMalformed},
		"2, a long checksum":         {version2(0x21, 0x11, ipv4, tlv(typeCRC32C, "12345")), ErrMalformed},
		"2, a wrong checksum":        {summed(1), ErrChecksum},
		"2, too large":               {version2(0x21, 0x11, ipv4, tlv(0xe0, strings.Repeat("x", MaxSize-fixedSize-len(ipv4)-tlvHeader+1))), ErrTooLarge},
		"2, too large, only said":    {signature + "\x21\x11\xff\xff", ErrTooLarge},
	} {
		if h, size, err := Parse([]byte(test.header)); !errors.Is(err, test.want) || h != nil || size != 0 {
			t.Errorf("%s: %v, %d, %v; want %v", name, h, size, err, test.want)
		}
	}
}

func TestTLVs(t *testing.T) {
	const verified = "\x05\x00\x00\x00\x00"
	header := version2(0x21, 0x11, ipv4, tlv(typeALPN, "h2"), tlv(typeAuthority, "example.com"), tlv(0xe0, ""), tlv(typeUniqueID, "abc"), tlv(typeUniqueID, "second"),
		tlv(typeTLS, verified+tlv(0x21, "TLSv1.3")+tlv(0x22, "somebody")+tlv(0x23, "TLS_AES_128_GCM_SHA256")))
	h, _, err := Parse([]byte(header))
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{h.ALPN(), h.Authority(), h.UniqueID()}; !slices.Equal(got, []string{"h2", "example.com", "abc"}) {
		t.Errorf("got %q", got)
	}
	if got, ok := h.TLS(); !ok || got != (TLS{true, "TLSv1.3", "TLS_AES_128_GCM_SHA256", "somebody"}) {
		t.Errorf("got %+v, %v", got, ok)
	}
	if value, ok := h.TLV(0xe0); !ok || value != "" {
		t.Errorf("got %q, %v", value, ok)
	}
	if value, ok := h.TLV(0xe1); ok {
		t.Errorf("got %q", value)
	}
	for name, value := range map[string]string{
		"without TLS": "\x00\x00\x00\x00\x00", "too short": "\x01\x00\x00", "": "",
	} {
		h, _, err := Parse([]byte(version2(0x21, 0x11, ipv4, tlv(typeTLS, value))))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := h.TLS(); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for value, want := range map[string]bool{"\x01\x00\x00\x00\x00": false, "\x03\x00\x00\x00\x01": false, "\x03\x00\x00\x00\x00": true} {
		h, _, _ := Parse([]byte(version2(0x21, 0x11, ipv4, tlv(typeTLS, value+"\x21\xff\xffx"))))
		if got, ok := h.TLS(); !ok || got != (TLS{Verified: want}) {
			t.Errorf("%q: %+v, %v", value, got, ok)
		}
	}
}

// For any bytes, Parse either finds a header of one size or refuses the bytes. The parts of the header can be read, and bytes after it don't matter.
func FuzzParse(f *testing.F) {
	for _, test := range valid {
		f.Add([]byte(test.header))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(version2(0x21, 0x11, ipv4, tlv(typeTLS, "\x05\x00\x00\x00\x00"+tlv(0x21, "x")), "\x05\x00\x09")))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, size, err := Parse(slices.Clip(b))
		switch {
		case err != nil && (h != nil || size != 0), (h == nil) != (size == 0), size > len(b), size > MaxSize:
			t.Fatalf("%v, %d, %v", h, size, err)
		case h == nil:
			if err == nil && len(b) >= MaxSize {
				t.Fatal("more is wanted than the largest header")
			}
			return
		case size < MinSize:
			t.Fatalf("a header of %d bytes", size)
		}
		if _, shorter, err := Parse(slices.Clip(b[:size-1])); shorter != 0 || err != nil {
			t.Fatalf("without its last byte: %d, %v", shorter, err)
		}
		if again, same, err := Parse(slices.Clip(b[:size])); err != nil || same != size || *again != *h {
			t.Fatalf("alone: %d, %v", same, err)
		}
		h.TLS()
		h.Source()
		h.Destination()
		for kind := range 256 {
			h.TLV(byte(kind))
		}
		if h.Source().IsValid() != h.Destination().IsValid() || h.IsLocal() && h.Source().IsValid() {
			t.Fatalf("from %v to %v, local %v", h.Source(), h.Destination(), h.IsLocal())
		}
	})
}
