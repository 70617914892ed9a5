package http3filo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/census"
)

// Only this file uses the QUIC package directly.

const (
	// firstWindow is a stream's initial flow-control window, in bytes, and defaultWindow the default of the maximum window. Both are the same as
	// over HTTP/2.
	firstWindow, defaultWindow = 64 << 10, 4 << 20
	// uniStreams is how many one-way streams a client may have open: the control stream, two QPACK streams, and some streams of unknown kinds.
	uniStreams = 8
	// vanishedAfter is the time without any packet from a client after which its connection ends. After half of it, QUIC pings the client.
	vanishedAfter = 60 * time.Second

	errNone            = closeCode(http3.ErrCodeNoError)
	errStreamCreation  = closeCode(http3.ErrCodeStreamCreationError)
	errClosedCritical  = closeCode(http3.ErrCodeClosedCriticalStream)
	errBadFrame        = closeCode(http3.ErrCodeFrameError)
	errFrameUnexpected = closeCode(http3.ErrCodeFrameUnexpected)
	errID              = closeCode(http3.ErrCodeIDError)
	errSettings        = closeCode(http3.ErrCodeSettingsError)
	errMissingSettings = closeCode(http3.ErrCodeMissingSettings)
	errExcessiveLoad   = closeCode(http3.ErrCodeExcessiveLoad)
	errBadBlock        = closeCode(http3.ErrCodeQPACKDecompressionFailed)
	errEncoderStream   = closeCode(0x201) // RFC 9204, section 6
	errDecoderStream   = closeCode(0x202)
	// errRejected allows the client to send a request again on another connection (RFC 9114, section 4.1.1).
	errRejected = quic.StreamErrorCode(http3.ErrCodeRequestRejected)
)

var errNoCertificate = errors.New("http3filo: Server.TLSConfig has neither Certificates nor GetCertificate nor GetConfigForClient")

// closeCode is the error code with which a connection is closed. A closeCode that is returned as an error means that the client broke the protocol.
type closeCode quic.ApplicationErrorCode

// Error implements error.
func (c closeCode) Error() string { return fmt.Sprintf("http3filo: the client's fault %#x", uint64(c)) }

type (
	quicConn   = quic.Conn
	stream     = quic.Stream
	sendStream = quic.SendStream
)

// ListenAndServe is Serve on a UDP address, such as ":443".
func ListenAndServe(s *filo.Server, addr string) error {
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	return Serve(s, packets)
}

// Serve serves HTTP/3 on a UDP socket, with the server's Handler, limits and TLSConfig, which must have a certificate. Call Serve in addition to a
// method of the server, such as Run, that serves HTTP/1.1 and HTTP/2. Serve closes the socket when it returns.
//
// After Shutdown or Close of the server, clients get GOAWAY, and running requests finish. When the last connection has ended, Serve returns
// filo.ErrServerClosed. That takes at most the GracePeriod and two seconds. If GracePeriod is negative, it takes two seconds at most once
// Close was called, or Shutdown has returned. Wait for Serve before the program exits.
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
		l.draining.Store(true)
		accepting.Close()
	})
	l.logger.Info("serving", "address", packets.LocalAddr().String(), "protocols", "h3", "max_conns", l.limits.MaxConns)
	for {
		q, err := accepting.Accept(context.Background())
		if err != nil && l.draining.Load() {
			l.drain()
			return filo.ErrServerClosed
		}
		if err != nil {
			l.closeAll()
			return fmt.Errorf("http3filo: %w", err)
		}
		go connOf(q.Context()).run(q)
	}
}

// quicConfig returns the configuration of the connections. It leaves 0-RTT off, so client certificates are verified before any request is read.
func (l *listener) quicConfig() *quic.Config {
	window := func(most int) uint64 {
		if most <= 0 {
			most = defaultWindow
		}
		return uint64(max(most, firstWindow))
	}
	options := &l.server.HTTP2
	return &quic.Config{
		HandshakeIdleTimeout: l.limits.ReadHeaderTimeout / 2, // quic-go allows a handshake twice this time
		MaxIdleTimeout:       vanishedAfter, KeepAlivePeriod: vanishedAfter / 2,
		InitialStreamReceiveWindow: firstWindow, MaxStreamReceiveWindow: window(options.MaxStreamWindow),
		InitialConnectionReceiveWindow: 2 * firstWindow, MaxConnectionReceiveWindow: max(window(options.MaxConnWindow), 2*firstWindow),
		AllowConnectionWindowIncrease: func(q *quic.Conn, more uint64) bool { return connOf(q.Context()).widen(int64(more)) },
		MaxIncomingStreams:            int64(l.limits.MaxConcurrentStreams), MaxIncomingUniStreams: uniStreams, RequireStreamCreditRelease: true,
	}
}

// suspects reports whether a new client must first validate its address by a Retry, since attackers may be opening connections with forged
// addresses.
func (l *listener) suspects(addr net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handshakes >= manyHandshakes || l.limits.MaxConns > 0 && len(l.conns) >= l.limits.MaxConns*3/4 ||
		l.limits.MaxConnsPerIP > 0 && l.clients.IsFull(client(addr), max(l.limits.MaxConnsPerIP/2, 1))
}

// connKey is the key of a connection in its context.
type connKey struct{}

func connOf(ctx context.Context) *conn { return ctx.Value(connKey{}).(*conn) }

// admit counts a new connection, or refuses it. The context ends with the connection, even if its handshake fails.
func (l *listener) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	c := &conn{listener: l, client: client(info.RemoteAddr), idle: time.Now(), heads: make(chan struct{}, maxHeads)}
	if err := l.enter(c); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { l.leave(c) })
	return context.WithValue(ctx, connKey{}, c), nil
}

// run serves a connection from the end of its handshake until it ends.
func (c *conn) run(q *quic.Conn) {
	c.quicConn, c.tls, c.local = q, q.ConnectionState().TLS, q.LocalAddr()
	control, err := q.OpenUniStream()
	if err != nil { // the client's fault: it must allow at least three one-way streams (RFC 9114, section 6.2)
		c.close(errStreamCreation)
		return
	}
	size := appendInt(appendInt(nil, settingMaxFields), uint64(c.listener.headBytes))
	control.Write(append(appendFrame([]byte{streamControl}, frameSettings, len(size)), size...))
	c.control = control
	if c.listener.established(c); c.listener.draining.Load() {
		c.leave()
	}
	go c.acceptOneWay()
	for {
		c.heads <- struct{}{}
		s, err := q.AcceptStream(context.Background())
		switch {
		case err != nil:
			return
		case c.begin():
			go c.handle(s)
		default:
			<-c.heads
			reset(s, errRejected)
			s.ReleaseStreamCredit()
		}
	}
}

// acceptOneWay reads the client's one-way streams.
func (c *conn) acceptOneWay() {
	seen := new([streamDecoder + 1]atomic.Bool)
	for {
		s, err := c.AcceptUniStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			if code := c.readOneWay(bufio.NewReaderSize(s, 64), seen); code != errNone {
				c.close(code)
			}
			s.CancelRead(quic.StreamErrorCode(http3.ErrCodeStreamCreationError))
			s.ReleaseStreamCredit()
		}()
	}
}

func (c *conn) close(code closeCode) { c.CloseWithError(quic.ApplicationErrorCode(code), "") }

func (c *conn) roundTrip() time.Duration { return c.ConnectionStats().SmoothedRTT }

// finish ends an answer. If the client is still sending its request, it is told to stop.
func finish(s *stream) {
	s.CancelRead(quic.StreamErrorCode(http3.ErrCodeNoError))
	s.Close()
}

// reset aborts a request and its answer.
func reset(s *stream, code quic.StreamErrorCode) {
	s.CancelRead(code)
	s.CancelWrite(code)
}

// fail resets a request that has failed with err. If err is a closeCode, it also closes the connection.
func (c *conn) fail(s *stream, err error) {
	if ends, ok := err.(closeCode); ok {
		c.close(ends)
	}
	code := http3.ErrCodeInternalError
	switch {
	case err == errBadMessage:
		code = http3.ErrCodeMessageError
	case err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded):
		code = http3.ErrCodeRequestIncomplete
	}
	reset(s, quic.StreamErrorCode(code))
}

// client returns the address by which MaxConnsPerIP counts a client.
func client(addr net.Addr) netip.Addr {
	if udp, ok := addr.(*net.UDPAddr); ok {
		return census.OfIP(udp.AddrPort().Addr())
	}
	return netip.Addr{}
}
