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

// ToldAddr returns the address that the proxy has told, in the form of RemoteAddr and LocalAddr. If the proxy told none, ToldAddr returns
// what the function fallback returns.
func ToldAddr(told netip.AddrPort, fallback func() net.Addr) net.Addr {
	if !told.IsValid() {
		return fallback()
	}
	return net.TCPAddrFromAddrPort(told)
}

// Conn is a connection that package net or the user has accepted, and that begins with a header. After the header it works like the
// connection below, except that plain sockets aren't read and written by raw system calls.
type Conn struct {
	net.Conn
	mu     sync.Mutex
	header *Header // guarded by mu
}

// NewConn returns a connection whose header is nil as long as it hasn't arrived.
func NewConn(netConn net.Conn, header *Header) *Conn { return &Conn{Conn: netConn, header: header} }

// ProxyHeader returns the header, nil as long as it hasn't arrived. Any goroutine may call it.
func (p *Conn) ProxyHeader() *Header {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.header
}

// RemoteAddr is net.Conn's.
func (p *Conn) RemoteAddr() net.Addr {
	if h := p.ProxyHeader(); h != nil {
		return ToldAddr(h.Source(), p.Conn.RemoteAddr)
	}
	return p.Conn.RemoteAddr()
}

// LocalAddr is net.Conn's.
func (p *Conn) LocalAddr() net.Addr {
	if h := p.ProxyHeader(); h != nil {
		return ToldAddr(h.Destination(), p.Conn.LocalAddr)
	}
	return p.Conn.LocalAddr()
}

// SyscallConn lets the client be watched.
func (p *Conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := p.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends the sending side, which gives the client time to read the last answer.
func (p *Conn) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger lets a close be a reset.
func (p *Conn) SetLinger(seconds int) error {
	if tcp, ok := p.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// Receive reads the header, and no byte that follows. some is false if the connection ended or failed before its first byte. When the
// deadline has passed, Receive calls look once. If look returns true, one last read follows.
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

// readHeader reads the header for Receive, with the same look and some.
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
			return nil, true, ErrSlow
		case err != nil:
			return nil, len(b) > 0, err
		}
	}
}
