package websocket

import "time"

// Tests may run on a busy machine, so their clients get more time to answer and to read.
func init() { lingerTime, goodbyeTime = 30*time.Second, 10*time.Second }

// Now returns the time from which the limits of silence are counted.
func Now() time.Duration { return now() }

// Hold makes the goroutines wait that want to send on the connection, until release is called.
func (c *Conn) Hold() (release func()) {
	c.mu.Lock()
	return c.mu.Unlock
}

// Waits reports whether a Write waits for the client.
func (c *Conn) Waits() bool { return c.busy.Load() != notBusy }

// LookSilence does what the connection's reader does about a silent client at this time. Only the reader may call it.
func (c *Conn) LookSilence(at time.Duration) error { return c.lookSilence(at) }

// Pinged returns when the client was last pinged, 0 if it has sent something since. Only the reader may call it.
func (c *Conn) Pinged() time.Duration { return c.pinged }
