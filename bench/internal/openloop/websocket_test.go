package openloop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// serverFrame returns a frame as a server sends it.
func serverFrame(first byte, message string) []byte {
	frame := []byte{first}
	switch n := len(message); {
	case n < 126:
		frame = append(frame, byte(n))
	case n <= 0xffff:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	return append(frame, message...)
}

// A client's frame is what a server that removes the mask reads as the message.
func TestClientFrame(t *testing.T) {
	for _, n := range []int{0, 1, 5, 125, 126, 0xffff, 0x10000} {
		message := bytes.Repeat([]byte("message"), n)[:n]
		frame := clientFrame(opText, message)
		want := serverFrame(0x81, string(message))
		header := len(want) - n
		got := append([]byte{}, frame[:header]...)
		if got[1]&0x80 == 0 {
			t.Fatalf("%d bytes: the mask bit isn't set", n)
		}
		got[1] &= 0x7f
		for i, c := range frame[header+4:] {
			got = append(got, c^frame[header+i&3])
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %.20x..., want %.20x...", n, got, want)
		}
	}
}

// The example of RFC 6455, section 1.3.
func TestAcceptValue(t *testing.T) {
	if got := acceptValue("dGhlIHNhbXBsZSBub25jZQ=="); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("%s", got)
	}
}

func TestFrameReader(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 0xffff, 0x10000} {
		message := strings.Repeat("m", n)
		wire := append(serverFrame(0x89, "ping"), serverFrame(0x82, message)...)
		for cut := 0; cut <= min(len(wire), 40); cut++ {
			f := frameReader{opcode: opBinary}
			var body []byte
			ended := false
			for _, data := range [][]byte{wire[:cut], wire[cut:]} {
				for len(data) > 0 {
					n, piece, done, err := f.next(data)
					if err != nil || ended || n == 0 {
						t.Fatalf("%d bytes cut at %d: consumed %d, %v, ended %v", len(message), cut, n, err, ended)
					}
					body, data, ended = append(body, piece...), data[n:], done
				}
			}
			if string(body) != message || !ended {
				t.Errorf("%d bytes cut at %d: %d bytes, ended %v", n, cut, len(body), ended)
			}
		}
	}
	for rule, wire := range map[string]string{
		"masked":                     "\x82\x81\x00\x00\x00\x00a",
		"another opcode":             "\x81\x01a",
		"a fragment":                 "\x02\x01a",
		"a reserved bit":             "\xc2\x01a",
		"a close":                    "\x88\x00",
		"a ping of 126 bytes":        "\x89\x7e\x00\x7e",
		"a length with its high bit": "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00",
	} {
		f := frameReader{opcode: opBinary}
		if _, _, _, err := f.next([]byte(wire)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
