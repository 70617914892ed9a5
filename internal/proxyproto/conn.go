package proxyproto

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// Errors of connections whose header doesn't arrive.
var (
	ErrCut  = errors.New("the connection ended within the header")
	ErrSlow = errors.New("the header didn't arrive within ReadHeaderTimeout")
)

// ToldAddr returns told, an address from the proxy's header, as the net.Addr that RemoteAddr and LocalAddr return. If told is invalid, the proxy sent
// no address, and ToldAddr returns fallback().
func ToldAddr(told netip.AddrPort, fallback func() net.Addr) net.Addr {
	if !told.IsValid() {
		return fallback()
	}
	return net.TCPAddrFromAddrPort(told)
}

// Conn is a connection that package net or the program's own listener has accepted, and that begins with a header. After the header it works like the
// wrapped connection, except that the server uses no raw system calls for it even if the wrapped connection is a plain socket.
type Conn struct {
	net.Conn
	mu     sync.Mutex
	header *Header // guarded by mu
}

// NewConn returns a connection. header is nil if the header hasn't arrived yet.
func NewConn(netConn net.Conn, header *Header) *Conn { return &Conn{Conn: netConn, header: header} }

// ProxyHeader returns the header, or nil if it hasn't arrived yet. Any goroutine may call it.
func (p *Conn) ProxyHeader() *Header {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.header
}

// RemoteAddr implements net.Conn.
func (p *Conn) RemoteAddr() net.Addr {
	if h := p.ProxyHeader(); h != nil {
		return ToldAddr(h.Source(), p.Conn.RemoteAddr)
	}
	return p.Conn.RemoteAddr()
}

// LocalAddr implements net.Conn.
func (p *Conn) LocalAddr() net.Addr {
	if h := p.ProxyHeader(); h != nil {
		return ToldAddr(h.Destination(), p.Conn.LocalAddr)
	}
	return p.Conn.LocalAddr()
}

// SyscallConn implements syscall.Conn, so that the server can watch whether the client leaves.
func (p *Conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := p.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite shuts down the sending side, so that the client can still read the last answer.
func (p *Conn) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger is for package linger, which sets 0 so that Close resets the connection.
func (p *Conn) SetLinger(seconds int) error {
	if tcp, ok := p.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// Receive reads the header, and no byte that follows. some is false if the connection ended or failed before its first byte. When the deadline has
// passed, Receive calls the function look once. If look returns true, Receive reads once more.
func (p *Conn) Receive(look func() bool) (some bool, err error) {
	h, some, err := readHeader(p.Conn, look)
	if err != nil {
		return some, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.header = h
	return true, nil
}

// readHeader reads the header for Receive, whose comment explains look and some.
func readHeader(r io.Reader, look func() bool) (h *Header, some bool, err error) {
	b, looked := make([]byte, 0, 256), false
	for want := MinSize; ; want = 1 {
		if version2 := len(b) == MinSize+1 && b[0] == '\r'; version2 {
			want = int(b[14])<<8 | int(b[15])
		}
		start := len(b)
		b = append(b, make([]byte, want)...)
		n, err := io.ReadFull(r, b[start:])
		b = b[:start+n]
		h, size, fault := Parse(b)
		switch {
		case fault != nil:
			return nil, true, fault
		case size > 0:
			return h, true, nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, len(b) > 0, ErrCut
		case errors.Is(err, os.ErrDeadlineExceeded) && !looked && look():
			looked = true
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, len(b) > 0, ErrSlow
		case err != nil:
			return nil, len(b) > 0, err
		}
	}
}
