package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/row"
)

// answer is the part of an answer that has arrived. A connection waits for at most one answer at a time.
type answer struct {
	head    []byte // the head, with the part of the body that arrived together with the head
	status  int    // 0 until the whole head has arrived
	length  int    // of the body; -1 if the body is chunked
	matched int    // how many bytes of the body have arrived
	tail    []byte // the last bytes of a chunked body
}

const lastChunk = "\r\n0\r\n\r\n"

// take handles a piece of an answer, and compares it with the expected answer.
func (a *answer) take(data []byte, want *row.Want, refusals bool) (done bool, err error) {
	if a.status == 0 {
		a.head = append(a.head, data...)
		end := bytes.Index(a.head, []byte("\r\n\r\n"))
		if end < 0 && len(a.head) < 16<<10 {
			return false, nil
		}
		if end < 0 || !bytes.HasPrefix(a.head, []byte("HTTP/1.1 200 ")) && !(refusals && bytes.HasPrefix(a.head, []byte("HTTP/1.1 503 "))) {
			return false, fmt.Errorf("the answer begins with %.200q", a.head)
		}
		if a.status, err = strconv.Atoi(string(a.head[9:12])); err != nil {
			return false, err
		}
		if a.length, err = bodyLength(a.head[:end+2]); err != nil {
			return false, err
		}
		if length := int64(a.length); a.status == 200 && (want.Length > 0 && length != want.Length || want.Body != nil && a.length != len(want.Body)) {
			return false, fmt.Errorf("the answer's body has %d bytes: %.200q", length, a.head)
		}
		data = a.head[end+4:]
	}
	if a.length < 0 {
		a.tail = append(a.tail, data...)
		a.tail = a.tail[max(0, len(a.tail)-len(lastChunk)):]
		return string(a.tail) == lastChunk, nil
	}
	if a.status == 200 && want.Body != nil {
		return a.is(want.Body, data)
	}
	if a.matched += len(data); a.matched > a.length {
		return false, fmt.Errorf("there are %d bytes behind the answer", a.matched-a.length)
	}
	return a.matched == a.length, nil
}

// is compares data, a piece of a body, with the next bytes of the expected body.
func (a *answer) is(wanted, data []byte) (done bool, err error) {
	if !bytes.HasPrefix(wanted[a.matched:], data) {
		return false, fmt.Errorf("the answer is %.200q, and not %.200q", data, wanted[a.matched:])
	}
	a.matched += len(data)
	return a.matched == len(wanted), nil
}

// bodyLength returns the length of the body that a head announces, or -1 if the body is chunked.
func bodyLength(head []byte) (int, error) {
	for line := range bytes.Lines(head) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if len(name) == len("Content-Length") && strings.EqualFold(string(name), "Content-Length") {
			return strconv.Atoi(string(value))
		}
		if len(name) == len("Transfer-Encoding") && strings.EqualFold(string(name), "Transfer-Encoding") {
			return -1, nil
		}
	}
	return 0, fmt.Errorf("the answer has no length: %.200q", head)
}

// ReadAnswer reads an answer, which must arrive within a minute, and compares it with the expected one.
func ReadAnswer(c net.Conn, want *row.Want) error {
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	var a answer
	for piece := make([]byte, 1024); ; {
		n, err := c.Read(piece)
		if err != nil {
			return err
		}
		if done, err := a.take(piece[:n], want, false); done || err != nil {
			return err
		}
	}
}

// upgrade turns a connection into a WebSocket. A fixed key and, below, a fixed mask suffice: both exist only to protect proxies.
func upgrade(conn io.ReadWriter, target, host string) error {
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", target, host)
	if err != nil {
		return err
	}
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) || !bytes.Contains(head, []byte("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")) {
		return fmt.Errorf("the upgrade is answered with %q", head)
	}
	return nil
}

// clientFrame returns a masked frame with a message of size zero bytes, so the payload is the repeated mask. serverFrame returns the frame of the
// echo.
func clientFrame(size int) []byte {
	frame := append(frameHeader(size, 0x80), 0x3a, 0xc5, 0x96, 0x0f)
	return append(frame, bytes.Repeat(frame[len(frame)-4:], size/4+1)[:size]...)
}

func serverFrame(size int) []byte { return append(frameHeader(size, 0), make([]byte, size)...) }

// frameHeader returns the header of a frame of fewer than 65,536 bytes (RFC 6455, section 5.2).
func frameHeader(size int, masked byte) []byte {
	if size < 126 {
		return []byte{0x82, masked | byte(size)}
	}
	return binary.BigEndian.AppendUint16([]byte{0x82, masked | 126}, uint16(size))
}
