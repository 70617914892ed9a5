package filo

import (
	"time"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/http2"
)

// http2Scratch is what a worker keeps for HTTP/2.
type http2Scratch struct {
	http2Turn
	exchange http2Exchange // of the request whose handler the worker runs
	_        apart.Lines
}

// clientGone ends the context, if there is one, since its stream has ended.
func (r *requestContext) clientGone() {
	if r != nil {
		r.cancel(ErrClientGone)
	}
}

// HTTP2Options configure HTTP/2. Over TLS the server speaks it with clients that ask for it (ALPN "h2"). The zero value suits servers on the
// open internet.
type HTTP2Options struct {
	// Disabled leaves HTTP/1.1 as the only protocol.
	Disabled bool

	// Unencrypted also accepts HTTP/2 without TLS from clients that begin with it (prior knowledge), such as a proxy's or gRPC's, on the
	// same port as HTTP/1.1. Default off.
	Unencrypted bool

	// ExtendedConnect accepts requests that make a tunnel of their stream, as browsers do for WebSockets (RFC 8441). Ctx.Upgrade and
	// Ctx.Park serve them as they serve an Upgrade of HTTP/1.1. Default off: browsers that see the offer open all their WebSockets in
	// this way, and handlers that need Ctx.Hijack would refuse them. docs/HTTP2.md has the details.
	ExtendedConnect bool

	// MaxConcurrentStreams is how many requests a client may have open on one connection. Further ones are refused in a way that lets the
	// client try again. Default 128; it can't be unlimited.
	MaxConcurrentStreams int

	// MaxStreamWindow and MaxConnWindow limit how many bytes of request bodies a client may send ahead of what the handler reads, for a
	// stream and for all streams of a connection. The window of each stream begins at 64 KB, and grows up to the limit while the handler
	// reads the body as fast as it comes: all windows of a connection together by at most MaxConnWindow. A client sends at most a window
	// in each round trip. A body that nobody reads doesn't hold up the others, so a connection's unread bodies take up to
	// MaxConcurrentStreams times 64 KB, 8 MB by default. Default 4 MB each; at least 64 KB. See Server.MaxBufferedBodies, too.
	MaxStreamWindow, MaxConnWindow int

	// PingInterval is how long a connection may be silent before the server asks with a PING whether the client is still there. If nothing
	// comes within 15 seconds the connection ends, and with it the contexts of its requests. Default 0, never: SocketOptions.KeepAlive
	// finds clients that have vanished, unless there is a proxy in between.
	PingInterval time.Duration

	// MaxGlitches is how many frames a client may send at once that serve no purpose, or cause errors. A reset of its own request is one,
	// unless the client has let another request be answered for it. It may send 33 more in each second. Beyond that the connection ends with ENHANCE_YOUR_CALM. Default 1,000, which is enough for a
	// proxy with many users; negative: no limit.
	MaxGlitches int
}

// http2Config is HTTP2Options with the defaults applied, and what is prepared for all connections.
type http2Config struct {
	unencrypted              bool
	extendedConnect          bool
	maxStreams               int
	streamWindow, connWindow int32
	glitches                 http2.GlitchLimits
	pingInterval             time.Duration  // 0: never
	settings                 []byte         // the SETTINGS that a connection begins with
	name                     *http2.Literal // the Server field; nil for none
}

// defaultMaxStreams is the default of MaxConcurrentStreams.
const defaultMaxStreams = 128

func (s *Server) newHTTP2Config(c *serverConfig) http2Config {
	o := &s.HTTP2
	h := http2Config{
		unencrypted: o.Unencrypted && !o.Disabled, extendedConnect: o.ExtendedConnect,
		maxStreams:   defaultMaxStreams,
		streamWindow: http2Window(o.MaxStreamWindow), connWindow: http2Window(o.MaxConnWindow),
		glitches: http2.DefaultGlitches, pingInterval: max(o.PingInterval, 0),
	}
	if o.MaxConcurrentStreams > 0 {
		h.maxStreams = o.MaxConcurrentStreams
	}
	if o.MaxGlitches != 0 {
		h.glitches.Burst = o.MaxGlitches
	}
	settings := http2.Settings{MaxStreams: uint32(h.maxStreams), MaxHeaderList: uint32(c.head.Bytes), ExtendedConnect: o.ExtendedConnect}
	h.settings = settings.Append(nil)
	if len(c.serverLine) > 0 {
		name := http2.NewLiteral("server", string(c.serverLine[len("Server: "):len(c.serverLine)-len("\r\n")]))
		h.name = &name
	}
	return h
}

// http2Window returns a limit for a window.
func http2Window(n int) int32 {
	switch {
	case n <= 0:
		return http2.MaxReceiveWindow
	case n < http2.DefaultWindow:
		return http2.DefaultWindow
	}
	return int32(min(n, 1<<30))
}
