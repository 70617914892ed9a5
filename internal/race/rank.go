// Package race holds the checks that only builds with the race detector make.
package race

// Rank is the place of a lock in the order in which a goroutine may take locks: while it holds one, it takes only locks that come later.
type Rank interface{ rank() int }

// The ranks, in their order. No goroutine holds two locks of one rank, such as those of two connections. In the comments below, the text
// after a colon says why locks of later ranks are taken under this one.
type (
	// OfTimeout: a time-out ends the request's context and sends its answer. A handler holds it while it sends the answers to earlier requests.
	OfTimeout struct{}
	// OfContext belongs to a request's context: its watch begins.
	OfContext struct{}
	// OfLifecycle: the pool, the clock and the sweep start with the server.
	OfLifecycle struct{}
	// OfParked: End wakes a parked connection's reader.
	OfParked struct{}
	// OfListener: a loop forgets a listening socket when it is closed.
	OfListener struct{}
	// OfBodies: the budget of bodies ends the silent one's wait.
	OfBodies struct{}
	// OfWaking: the sweep wakes the owner of a connection.
	OfWaking struct{}
	// OfSeat: the goroutine that takes the seat from a worker also takes the connection that the worker serves.
	OfSeat struct{}
	// OfSealing: the records of TLS are queued in the order in which they were sealed.
	OfSealing struct{}
	// OfStream belongs to an outbox whose socket is a stream of HTTP/2: it sends by the connection.
	OfStream struct{}
	// OfHTTP2 belongs to a connection of HTTP/2.
	OfHTTP2 struct{}
	// OfHandshakes: the owner of a TLS handshake is woken when its turn comes, or its wait is over.
	OfHandshakes struct{}
	// OfConns: a sweep is due by the clock.
	OfConns struct{}
	// OfClock belongs to the coarse clock.
	OfClock struct{}
	// OfLoop: no goroutine writes to a closed descriptor.
	OfLoop struct{}
	// OfRunning belongs to the set of running requests, each of which has a lock.
	OfRunning struct{}
	// OfLeaf is the rank of locks under which no other is taken.
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

// Unranked is the rank of a lock whose holder calls one of the program's connections. Such a connection may belong to another server, with
// locks of any rank. So an unranked lock may be taken under any lock, and any lock under it, without a check.
type Unranked struct{}

func (Unranked) rank() int { return 0 }
