// Package race has checks that run only in builds with the race detector.
package race

// Rank is the position of a lock in the order in which a goroutine may take locks. While a goroutine holds a lock, it may take only locks with later
// ranks.
type Rank interface{ rank() int }

// The ranks, in their order. No goroutine may hold two locks of the same rank, such as those of two connections. In the comments below, the text
// after a colon says why locks of later ranks are taken while a lock of this rank is held.
type (
	// OfTimeout: a time-out ends the request's context and sends the time-out's answer. A handler also holds the lock while it sends the answers to
	// earlier requests.
	OfTimeout struct{}
	// OfContext belongs to a request's context: the context starts to watch the client.
	OfContext struct{}
	// OfLifecycle: the pool, the clock and the sweep start with the server.
	OfLifecycle struct{}
	// OfParked: End wakes a parked connection's reader.
	OfParked struct{}
	// OfListener: a loop removes a listening socket that is closed.
	OfListener struct{}
	// OfBodies: the budget of bodies ends the wait of a silent body.
	OfBodies struct{}
	// OfWaking: the sweep wakes the owner of a connection.
	OfWaking struct{}
	// OfSeat: the goroutine that takes the seat from a worker also takes the connection that the worker serves.
	OfSeat struct{}
	// OfSealing: the records of TLS are queued in the order in which they were sealed.
	OfSealing struct{}
	// OfStream belongs to an outbox whose socket is an HTTP/2 stream: the outbox sends on the stream's connection.
	OfStream struct{}
	// OfHTTP2 belongs to an HTTP/2 connection.
	OfHTTP2 struct{}
	// OfHandshakes: the queue wakes the owner of a TLS handshake that may begin, or whose wait has ended.
	OfHandshakes struct{}
	// OfConns: the set of connections reads the clock to find out whether a sweep is due.
	OfConns struct{}
	// OfClock belongs to the coarse clock.
	OfClock struct{}
	// OfLoop belongs to an event loop: it keeps goroutines from writing to a closed file descriptor.
	OfLoop struct{}
	// OfRunning belongs to the set of running requests: each record in it has a lock of its own.
	OfRunning struct{}
	// OfLeaf is the rank of locks under which no other lock is taken.
	OfLeaf struct{}
)

func (OfTimeout) rank() int    { return 1 }
func (OfContext) rank() int    { return 2 }
func (OfLifecycle) rank() int  { return 3 }
func (OfParked) rank() int     { return 4 }
func (OfListener) rank() int   { return 5 }
func (OfBodies) rank() int     { return 6 }
func (OfWaking) rank() int     { return 7 }
func (OfSeat) rank() int       { return 8 }
func (OfSealing) rank() int    { return 9 }
func (OfStream) rank() int     { return 10 }
func (OfHTTP2) rank() int      { return 11 }
func (OfHandshakes) rank() int { return 12 }
func (OfConns) rank() int      { return 13 }
func (OfClock) rank() int      { return 14 }
func (OfLoop) rank() int       { return 15 }
func (OfRunning) rank() int    { return 16 }
func (OfLeaf) rank() int       { return 17 }

// Unranked is the rank of a lock whose holder calls methods of a net.Conn that the program provides. Such a connection may belong to another filo
// server, with locks of any rank. So an unranked lock may be taken under any lock, and any lock under an unranked one, without a check.
type Unranked struct{}

func (Unranked) rank() int { return 0 }
