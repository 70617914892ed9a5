package http3filo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/census"
)

// This file alone names the QUIC package.

const (
	// firstWindow is how many bytes a client may send ahead on a stream at first, and defaultWindow the default of the limit up to which that
	// grows: both as over HTTP/2.
	firstWindow, defaultWindow = 64 << 10, 4 << 20
	// uniStreams is how many one-way streams a client may have open: the control stream, two of QPACK, and some of kinds that are unknown here.
	uniStreams = 8
	// vanishedAfter is how long no packet may come from a client. After half of that it is asked whether it is there.
	vanishedAfter = 60 * time.Second

	errNone          = closeCode(http3.ErrCodeNoError)
	errExcessiveLoad = closeCode(http3.ErrCodeExcessiveLoad)
	// errRejected allows the client to send a request again on another connection (RFC 9114, section 4.1.1).
	errRejected = quic.StreamErrorCode(http3.ErrCodeRequestRejected)
	errInternal = quic.StreamErrorCode(http3.ErrCodeInternalError)
)

var errNoCertificate = errors.New("http3filo: Server.TLSConfig has neither Certificates nor GetCertificate nor GetConfigForClient")

// closeCode is the reason for the end of a connection.
type closeCode = quic.ApplicationErrorCode

// ListenAndServe is Serve on a UDP address, such as ":443".
func ListenAndServe(s *filo.Server, addr string) error {
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	return Serve(s, packets)
}

// Serve serves HTTP/3 on the datagrams of packets, with the server's Handler, limits and TLSConfig, which must have a certificate. It is called
// beside the server's own methods, such as Run, which serve HTTP/1.1 and HTTP/2. It closes packets when it returns.
//
// After Shutdown or Close of the server, Serve returns filo.ErrServerClosed when the last connection has ended, GracePeriod later at most.
// Clients are told to leave (GOAWAY), and running requests finish. Wait for Serve before the program exits.
func Serve(s *filo.Server, packets net.PacketConn) error {
	defer packets.Close()
	config := s.TLSConfig
	if config == nil || len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return errNoCertificate
	}
	l := newListener(s)
	transport := &quic.Transport{Conn: packets, VerifySourceAddress: l.suspects, ConnContext: l.admit}
	defer transport.Close()
	accepting, err := transport.Listen(http3.ConfigureTLSConfig(config), l.quicConfig())
	if err != nil {
		return fmt.Errorf("http3filo: %w", err)
	}
	s.RegisterOnShutdown(func() {
		close(l.draining)
		accepting.Close()
	})
	l.logger.Info("serving", "address", packets.LocalAddr().String(), "protocols", "h3", "max_conns", l.limits.MaxConns)
	for {
		q, err := accepting.Accept(context.Background())
		if err != nil && l.drains() {
			l.drain()
			return filo.ErrServerClosed
		}
		if err != nil {
			l.closeAll()
			return fmt.Errorf("http3filo: %w", err)
		}
		l.begin(q)
	}
}

// quicConfig returns the configuration of the connections. Their client certificates have been checked before a request is read, since 0-RTT
// is off.
func (l *listener) quicConfig() *quic.Config {
	window := func(most int) uint64 {
		if most <= 0 {
			most = defaultWindow
		}
		return uint64(max(most, firstWindow))
	}
	options := &l.server.HTTP2
	return &quic.Config{
		HandshakeIdleTimeout: l.limits.ReadHeaderTimeout / 2, // QUIC gives a handshake twice this time
		MaxIdleTimeout:       vanishedAfter, KeepAlivePeriod: vanishedAfter / 2,
		InitialStreamReceiveWindow: firstWindow, MaxStreamReceiveWindow: window(options.MaxStreamWindow),
		InitialConnectionReceiveWindow: 2 * firstWindow, MaxConnectionReceiveWindow: max(window(options.MaxConnWindow), 2*firstWindow),
		AllowConnectionWindowIncrease: func(q *quic.Conn, more uint64) bool { return admissionOf(q.Context()).widen(int64(more)) },
		MaxIncomingStreams:            int64(l.limits.MaxConcurrentStreams), MaxIncomingUniStreams: uniStreams,
	}
}

// suspects reports whether a new client must first show, by a Retry, that its address is its own.
func (l *listener) suspects(addr net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handshakes >= manyHandshakes || l.limits.MaxConns > 0 && l.open >= l.limits.MaxConns*3/4 ||
		l.limits.MaxConnsPerIP > 0 && l.clients.IsFull(client(addr), max(l.limits.MaxConnsPerIP/2, 1))
}

// admissionKey is the key of a connection's admission in its context.
type admissionKey struct{}

func admissionOf(ctx context.Context) *admission { return ctx.Value(admissionKey{}).(*admission) }

// admit counts a new connection, or refuses it. The context ends with the connection, also if the handshake fails.
func (l *listener) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	a := &admission{listener: l, client: client(info.RemoteAddr)}
	if err := l.enter(a); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, a.leave)
	return context.WithValue(ctx, admissionKey{}, a), nil
}

// begin serves a connection whose handshake is over.
func (l *listener) begin(q *quic.Conn) {
	c := &conn{listener: l, idle: time.Now(), resets: l.resets, resetsAt: time.Now()}
	c.close = func(code closeCode) { q.CloseWithError(code, "") }
	c.roundTrip = func() time.Duration { return q.ConnectionStats().SmoothedRTT }
	h := &http3.Server{Handler: c, MaxHeaderBytes: 2 * l.headBytes} // heads between one and two times the limit get filo's own answer
	c.goAway = func() { h.Shutdown(q.Context()) }
	l.add(c, admissionOf(q.Context()))
	go func() {
		h.ServeQUICConn(q)
		c.ended()
	}()
}

// stream is the stream of a request. Its QUICStream takes frames, unlike the Stream itself.
type stream struct{ *http3.Stream }

// take takes a request's stream over from the protocol, which then no longer answers.
func take(w http.ResponseWriter) (*stream, error) {
	s, err := w.(http3.HTTPStreamer).HTTPStream()
	return &stream{s}, err
}

// end ends an answer. If the client is still sending its request, it is told to stop.
func (s *stream) end() {
	s.CancelRead(quic.StreamErrorCode(http3.ErrCodeNoError))
	s.Close()
}

// reset cuts the request and its answer off.
func (s *stream) reset(code quic.StreamErrorCode) {
	s.CancelRead(code)
	s.CancelWrite(code)
}

// client returns the address under which MaxConnsPerIP counts a client.
func client(addr net.Addr) netip.Addr {
	if udp, ok := addr.(*net.UDPAddr); ok {
		return census.OfIP(udp.AddrPort().Addr())
	}
	return netip.Addr{}
}
