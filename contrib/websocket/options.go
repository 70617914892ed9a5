package websocket

import (
	"fmt"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// Defaults of Options.
const (
	DefaultMaxMessageBytes    = 1 << 20
	DefaultMaxQueuedBytes     = 256 << 10
	DefaultReadTimeout        = 30 * time.Second
	DefaultWriteTimeout       = 10 * time.Second
	DefaultCloseTimeout       = 5 * time.Second
	DefaultPingInterval       = 30 * time.Second
	DefaultPongTimeout        = 10 * time.Second
	DefaultCompressionMinimum = 512
)

// Compression says whether and how messages are compressed (permessage-deflate, RFC 7692), with clients that offer it.
type Compression int

const (
	// CompressionOff compresses nothing.
	CompressionOff Compression = iota
	// CompressionPerMessage compresses each message for itself, so that nothing is kept from one to the next.
	CompressionPerMessage
	// CompressionContext lets messages refer to those before them, which makes many small ones of a kind much smaller. It
	// keeps up to 40 KB for each connection. Don't use it where a message has secrets beside what others may choose.
	CompressionContext
)

// Options say which WebSockets are accepted, and what becomes of them. The zero value has safe defaults. For limits and
// times, zero is the default and a negative value is none.
type Options struct {
	// OnOpen is called in the request's handler when a connection of Serve was accepted, before anything is read from it. It
	// can take what it needs from the request, which is over when it returns, and may write. An error closes the connection as
	// one of OnMessage does.
	OnOpen func(c *filo.Ctx, conn *Conn) error
	// OnMessage is called with each message of a connection of Serve, one after the other. It may block, and holds a worker
	// meanwhile. The message is lent until it returns. A *CloseError that it returns closes the connection with its code and
	// reason, another error with StatusInternalError. Required for Serve.
	OnMessage func(conn *Conn, kind MessageType, message []byte) error
	// OnClose is called once when a connection of Serve is over: with a *CloseError if one of the sides has sent a close
	// frame, with the error of OnOpen or OnMessage if that was the reason, or else with what happened to the connection. None
	// of the functions is called after it.
	OnClose func(conn *Conn, err error)

	// Origins are further origins whose pages may connect, such as "https://app.example.com" or "https://*.example.com",
	// which stands for every subdomain. Always allowed are the origin that the request is for, and clients that send none
	// since they aren't browsers. "*" allows every page of the web to act as its visitor, with the cookies of that.
	Origins []string
	// Subprotocols are those that the server speaks, the ones that it likes best first. A client that offers none of them is
	// accepted all the same, without one.
	Subprotocols []string

	// Compression is off by default.
	Compression Compression
	// CompressionMinimum is how many bytes a message must have to be compressed. Default 512.
	CompressionMinimum int

	// MaxMessageBytes is how long a client's message may be, also when it was compressed before (StatusMessageTooBig).
	// Default 1 MB.
	MaxMessageBytes int64
	// MaxQueuedBytes is how much may wait for a client of Serve that doesn't take what it is sent. A Write waits with more, and
	// Send and a Hub drop the client. Default 256 KB; there is always a limit.
	MaxQueuedBytes int

	// ReadTimeout is how long a message may take from its first byte to its last. Default 30 s.
	ReadTimeout time.Duration
	// WriteTimeout is how long a Write may take before the connection is given up. Default 10 s.
	WriteTimeout time.Duration
	// CloseTimeout is how long the client's close frame is waited for when this side has sent one. Default 5 s; there is always
	// a limit.
	CloseTimeout time.Duration
	// PingInterval is how long a client is silent until it is sent a ping, and PongTimeout how long it may then go on being
	// silent before it is taken for gone. Defaults 30 s and 10 s.
	PingInterval, PongTimeout time.Duration
}

// withDefaults returns the options with defaults, and panics if one is wrong.
func (o Options) withDefaults() Options {
	or(&o.MaxMessageBytes, DefaultMaxMessageBytes)
	or(&o.MaxQueuedBytes, DefaultMaxQueuedBytes)
	or(&o.CompressionMinimum, DefaultCompressionMinimum)
	or(&o.ReadTimeout, DefaultReadTimeout)
	or(&o.WriteTimeout, DefaultWriteTimeout)
	or(&o.CloseTimeout, DefaultCloseTimeout)
	or(&o.PingInterval, DefaultPingInterval)
	or(&o.PongTimeout, DefaultPongTimeout)
	switch {
	case o.MaxQueuedBytes < 0:
		panic("websocket: MaxQueuedBytes must not be negative")
	case o.CloseTimeout < 0:
		panic("websocket: CloseTimeout must not be negative")
	case o.Compression < CompressionOff || o.Compression > CompressionContext:
		panic(fmt.Sprintf("websocket: no such Compression: %d", o.Compression))
	}
	for i, name := range o.Subprotocols {
		if !isToken(name) {
			panic(fmt.Sprintf("websocket: the subprotocol %q isn't a token", name))
		}
		for _, other := range o.Subprotocols[:i] {
			if name == other {
				panic(fmt.Sprintf("websocket: the subprotocol %q is there twice", name))
			}
		}
	}
	return o
}

// or sets a value that is zero to its default.
func or[T int | int64 | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}
