package servertest

import (
	"cmp"
	"io"
	"net"
	"time"
)

// A Conn is one end of an in-memory connection. It behaves like a *net.TCPConn over a fast network. Each direction buffers up
// to 64 KB and then blocks its writer. Deadlines may be moved at any time and wake blocked calls. Errors other than io.EOF are
// *net.OpError values. They wrap net.ErrClosed after a Close of this end, os.ErrDeadlineExceeded, io.ErrClosedPipe (which is
// EPIPE too) if the other end is closed, or ECONNRESET after a [Conn.Reset] of the other end.
//
// Several goroutines may call all methods at once. A Conn that was dialed in a testing/synctest bubble blocks durably there.
type Conn struct {
	in, out       *stream // the peer's out and in
	local, remote net.Addr
}

// Pipe returns the two ends of a new connection that belongs to no listener.
func Pipe() (client, server *Conn) {
	return newPair(address{host: "client.test", port: 1}, address{host: serverHost, port: 80})
}

func newPair(clientAddr, serverAddr net.Addr) (client, server *Conn) {
	up, down := newStream(), newStream()
	client = &Conn{in: down, out: up, local: clientAddr, remote: serverAddr}
	server = &Conn{in: up, out: down, local: serverAddr, remote: clientAddr}
	return client, server
}

// Read reads received bytes, at least one, and waits if there are none. If the peer has closed its end or its writing half,
// Read returns io.EOF after the last byte.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write writes all of p, and waits for the peer to read when 64 KB are in transit. The bytes of concurrent calls don't mix.
// Even with an error, it returns the correct number of written bytes.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

// Close closes both directions. The peer can still read the bytes that were written before; the bytes that the peer wrote and c
// didn't read are lost. Blocked calls on c return at once.
func (c *Conn) Close() error {
	return c.close(false)
}

// Reset closes c as a TCP reset would: the bytes in transit are lost in both directions, and the peer's calls fail with
// ECONNRESET.
func (c *Conn) Reset() error {
	return c.close(true)
}

func (c *Conn) close(reset bool) error {
	if !c.in.closeReader(reset) {
		return c.wrap("close", net.ErrClosed)
	}
	c.out.closeWriter(reset)
	return nil
}

// CloseWrite closes the writing half: the peer reads io.EOF after the bytes that were written before, and may still answer.
func (c *Conn) CloseWrite() error {
	return c.wrap("close", c.out.finish())
}

// WaitRead waits until the peer has read everything, so that no Read of the peer returns bytes of both earlier and later writes.
// The write deadline applies.
func (c *Conn) WaitRead() error {
	return c.wrap("wait", c.out.waitRead())
}

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets the read and the write deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	return cmp.Or(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline makes Read calls fail from t on, including a blocked one, even if there are bytes to read. A later or zero t
// makes Read work again.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set", c.in.setDeadline(&c.in.readDeadline, &c.in.readerClosed, t))
}

// SetWriteDeadline makes Write calls fail from t on, including a blocked one.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.wrap("set", c.out.setDeadline(&c.out.writeDeadline, &c.out.writerClosed, t))
}

func (c *Conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}
