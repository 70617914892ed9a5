package filo

import (
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/outbox"
)

// ErrQueueFull is returned by ParkedConn.Queue when a client is too slow and its queue is full.
var ErrQueueFull = outbox.ErrFull

// PreparedMessage is a message for many parked connections. It is rendered once, and exists once in memory no matter in how
// many queues it waits: see ParkedConn.Queue. It is immutable.
//
// Experimental: see Ctx.Park.
type PreparedMessage struct {
	payload []byte
	chunk   []byte // the payload as a chunk of a body: the same memory, and what is around it
}

// NewPreparedMessage makes a message from a copy of b.
func NewPreparedMessage(b []byte) *PreparedMessage {
	chunk := http1.AppendChunk(make([]byte, 0, len(b)+http1.ChunkOverhead), b)
	end := len(chunk) - len("\r\n")
	return &PreparedMessage{payload: chunk[end-len(b) : end : end], chunk: chunk}
}

// Len returns the size of the message's content in bytes.
func (m *PreparedMessage) Len() int { return len(m.payload) }

// framed returns the message as the connection sends it. An empty chunk would be the last.
func (m *PreparedMessage) framed(chunked bool) []byte {
	if chunked && len(m.payload) > 0 {
		return m.chunk
	}
	return m.payload
}
