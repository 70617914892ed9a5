package websocket

import (
	"net"
	"testing"
	"time"
)

// piecesConn receives pieces. Each Read returns bytes of one piece. room records the sizes of the buffers that Read gets.
type piecesConn struct {
	net.Conn
	pieces [][]byte
	room   []int
}

func (c *piecesConn) Read(p []byte) (int, error) {
	c.room = append(c.room, len(p))
	n := copy(p, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

func (c *piecesConn) SetReadDeadline(time.Time) error { return nil }

// The read buffer of a connection opened by Accept is large only while a large message arrives.
func TestStreamBuffer(t *testing.T) {
	const size = 200 << 10
	header := []byte{0x82, 0x80 | 127, 0, 0, 0, 0, 0, size >> 16, size >> 8 & 0xff, size & 0xff, 0, 0, 0, 0}
	large := append(header, make([]byte, size)...)
	conn := &piecesConn{pieces: [][]byte{large, {0x82, 0x80, 0, 0, 0, 0}}}
	c := &Conn{net: conn, options: &shared{Options: one(nil).withDefaults()}}
	c.stream = newStream(c, nil)
	for _, want := range []int{size, 0} {
		if _, message, err := c.Read(); err != nil || len(message) != want {
			t.Fatalf("got a message of %d bytes, %v, want %d", len(message), err, want)
		}
	}
	before, last := conn.room[:len(conn.room)-1], conn.room[len(conn.room)-1]
	if conn.room[0] != streamBuffer || before[len(before)-1] != streamBufferMax || last != streamBuffer {
		t.Errorf("the buffers had %v bytes, want %d during the large message, and %d before and behind it", conn.room, streamBufferMax, streamBuffer)
	}
}
