package websocket

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// Defaults of Options.
const (
	DefaultMaxMessageBytes    = 1 << 20
	DefaultMaxBufferedBytes   = 128 << 20
	DefaultMaxQueuedBytes     = 256 << 10
	DefaultReadTimeout        = 30 * time.Second
	DefaultWriteTimeout       = 10 * time.Second
	DefaultCloseTimeout       = 5 * time.Second
	DefaultPingInterval       = 30 * time.Second
	DefaultPongTimeout        = 10 * time.Second
	DefaultCompressionMinimum = 512
)

// Compression is the way in which messages are compressed (permessage-deflate, RFC 7692), for clients that offer it.
type Compression int

const (
	// CompressionOff compresses nothing.
	CompressionOff Compression = iota
	// CompressionPerMessage compresses each message separately, and keeps nothing between messages.
	CompressionPerMessage
	// CompressionContext lets messages refer to earlier ones, which makes many small, similar messages much smaller. It keeps up to 40 KB
	// for each connection. Don't use it for messages that mix secrets with data that others may choose.
	CompressionContext
)

// Options set which WebSockets are accepted and how they are handled. The zero value has safe defaults. For limits and times,
// zero means the default and a negative value means none.
type Options struct {
	// OnOpen is called in the request's handler when Serve has opened a connection, before anything is read from it. It may read the request,
	// which ends when OnOpen returns, and may write to the connection. If OnOpen returns an error, the connection is closed as after an error
	// of OnMessage.
	OnOpen func(c *filo.Ctx, conn *Conn) error
	// OnMessage is called with each message of a connection opened by Serve, one message at a time. It may block; meanwhile it occupies a
	// worker. The message is lent until OnMessage returns. If OnMessage returns a *CloseError, the connection is closed with that code and
	// reason; after any other error, with StatusInternalError. Required for Serve: New panics if OnOpen or OnClose is set without it.
	OnMessage func(conn *Conn, kind MessageType, message []byte) error
	// OnClose is called once when a connection opened by Serve has ended. err is a *CloseError if either side sent a close frame, else the
	// error of OnOpen or OnMessage if that ended the connection, else the connection's error. No function is called after OnClose.
	OnClose func(conn *Conn, err error)

	// Origins are further origins whose pages may connect, such as "https://app.example.com". "https://*.example.com" allows all hosts one
	// label below example.com, such as a.example.com, but not a.b.example.com, as in middleware.CORS. Pages of the host that the client has
	// asked for (see middleware.Host) may always connect. Clients that send no Origin may always connect, too, since they aren't browsers.
	// "*" lets every page on the web act as its visitor, with the visitor's cookies.
	Origins []string
	// Subprotocols are the server's subprotocols, in order of preference. A client that offers none of them is still accepted,
	// without a subprotocol.
	Subprotocols []string

	// Compression is off by default.
	Compression Compression
	// CompressionMinimum is the size in bytes from which messages are compressed. Default 512.
	CompressionMinimum int

	// MaxMessageBytes limits the size of a client's message, after decompression (StatusMessageTooBig). Default 1 MB.
	MaxMessageBytes int64
	// MaxBufferedBytes limits the memory of incomplete messages, as received, of all connections of the Upgrader together. A connection that
	// would exceed it is closed (StatusTryAgainLater). A message that is read from a Reader doesn't count. Default 128 MB.
	MaxBufferedBytes int64
	// MaxQueuedBytes limits the bytes that wait for a slow client of a connection opened by Serve. Beyond the limit, Write waits, Send
	// returns an error, and a Hub drops the client. Default 256 KB; there is always a limit.
	MaxQueuedBytes int

	// ReadTimeout limits the time from a message's first byte to its last. The time in which the application handles the message before it
	// doesn't count. Default 30 s.
	ReadTimeout time.Duration
	// WriteTimeout limits the time of a Write; when it is exceeded, the connection ends. Default 10 s.
	WriteTimeout time.Duration
	// CloseTimeout limits the wait for the client's close frame after this side has sent one. Default 5 s; there is always a
	// limit.
	CloseTimeout time.Duration
	// PingInterval is the time of silence after which a client gets a ping, and PongTimeout the further time of silence after
	// which its connection ends. Defaults 30 s and 10 s.
	PingInterval, PongTimeout time.Duration
}

// withDefaults returns the options with their defaults set, and panics if an option is wrong.
func (o Options) withDefaults() Options {
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.MaxBufferedBytes = cmp.Or(o.MaxBufferedBytes, DefaultMaxBufferedBytes)
	o.MaxQueuedBytes = cmp.Or(o.MaxQueuedBytes, DefaultMaxQueuedBytes)
	o.CompressionMinimum = cmp.Or(o.CompressionMinimum, DefaultCompressionMinimum)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, DefaultReadTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, DefaultCloseTimeout)
	o.PingInterval = cmp.Or(o.PingInterval, DefaultPingInterval)
	o.PongTimeout = cmp.Or(o.PongTimeout, DefaultPongTimeout)
	switch {
	case o.OnMessage == nil && (o.OnOpen != nil || o.OnClose != nil):
		panic("websocket: OnOpen and OnClose are functions of Serve, which needs OnMessage, too")
	case o.MaxQueuedBytes < 0:
		panic("websocket: MaxQueuedBytes must not be negative")
	case o.CloseTimeout < 0:
		panic("websocket: CloseTimeout must not be negative")
	case o.Compression < CompressionOff || o.Compression > CompressionContext:
		panic(fmt.Sprintf("websocket: unknown Compression: %d", o.Compression))
	}
	for i, name := range o.Subprotocols {
		if !isToken(name) {
			panic(fmt.Sprintf("websocket: the subprotocol %q isn't a token", name))
		}
		for _, other := range o.Subprotocols[:i] {
			if name == other {
				panic(fmt.Sprintf("websocket: the subprotocol %q is listed twice", name))
			}
		}
	}
	return o
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
