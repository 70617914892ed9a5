// Package handshakes limits how many TLS handshakes run at once. All that it knows about a connection is how to wake its owner, by a
// deadline, and whether its client is silent.
package handshakes

import (
	"container/list"
	"math"
	"net/netip"
	"runtime"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

const (
	// maxHandshakes is the maximum number of TLS handshakes that compute and, separately, of those that wait for their clients. Each holds
	// a worker.
	maxHandshakes = 1024
	// PerProc is how many of them compute at once, for each processor. More would only take the processors from other requests: a
	// handshake computes as long as a thousand quick requests, and the leaders of the loops wait for processors behind it.
	PerProc = 2
	// longHandshake is how long a handshake counts as one that computes. Afterwards it most likely waits for a function of the program, such as
	// tls.Config.GetCertificate.
	longHandshake = 100 * time.Millisecond
	// unknown is a patience that no handshake's wait reaches.
	unknown time.Duration = math.MaxInt64
)

// Conn is a connection whose handshake is limited. A deadline in the past wakes its owner, or makes the owner's read or write fail.
type Conn interface {
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	// IsSilent reports whether the owner has read everything that has arrived from the client; the end of the client's side counts as
	// unread. It doesn't wait. It is called between Wait and End, by any goroutine: so the owner calls End before it closes the connection.
	IsSilent() bool
}

// Queue lets handshakes begin, in turns. Its zero value is ready for use. Nobody can keep others out by handshakes that never end: when too
// many wait for their clients, one of them is ousted. Until then this queue doesn't limit a wait. Handshakes queue only because too many
// others compute.
//
// Nobody gets more than a fair share by opening many connections: the ousted handshake is one of the address with the most waiting
// handshakes, and the addresses take turns. An address that had no queued handshakes comes first. An address's turn is for its oldest
// handshake, so a burst loses none. If more arrive than can be served, the client of the oldest one would always be about to give up. So
// when a handshake leaves the queue unserved, half of its wait becomes the patience of its address. Handshakes of that address that have
// waited for longer than the patience are served after the others, the newest of them first.
type Queue struct {
	Most int           // 0: maxHandshakes; immutable
	Long time.Duration // 0: longHandshake; immutable

	mu        race.Mutex[race.OfHandshakes]
	computing list.List                       // of *handshake, the first one for longest; guarded by mu
	held      int                             // handshakes that have computed for too long to count; guarded by mu
	looks     bool                            // a timer that looks for such handshakes is set; guarded by mu
	waiting   list.List                       // of *handshake: they wait for their clients, the first one for longest; guarded by mu
	all       map[Conn]*handshake             // all of them, since a connection has no room for more than a flag; guarded by mu
	clients   map[netip.Addr]*handshakeClient // those that have a handshake here; guarded by mu
	turns     list.List                       // of *handshakeClient: those that have queued handshakes; guarded by mu
}

// handshake is a TLS handshake that runs or is queued. Its fields are guarded by the queue's mu.
type handshake struct {
	conn    Conn
	client  *handshakeClient
	stage   handshakeStage
	since   clock.Nanos   // when it began to queue, then when it began to compute
	element *list.Element // in client.queued, client.late, computing or waiting
}

type handshakeStage uint8

const (
	handshakeQueued handshakeStage = iota
	handshakeComputes
	handshakeHeld   // by a function of the program, it seems
	handshakeWaits  // for its client, or it has done so
	handshakeOusted // it runs, but its waits are over
)

// handshakeClient has the handshakes of one address. Its fields are guarded by the queue's mu.
type handshakeClient struct {
	address    netip.Addr
	handshakes int           // in all
	waiting    int           // those that wait for their clients
	queued     list.List     // of *handshake, the newest last
	late       list.List     // of *handshake, the newest last: they are queued, too, and have waited for longer than patience
	patience   time.Duration // how long a handshake waits in the order of arrival
	turn       *list.Element // in turns; nil if none is queued
}

// next returns the queued handshake that begins next. There must be one.
func (c *handshakeClient) next(now clock.Nanos) *handshake {
	for e := c.queued.Front(); e != nil; e = c.queued.Front() {
		h := e.Value.(*handshake)
		if now.Sub(h.since) < c.patience {
			return h
		}
		c.queued.Remove(e)
		h.element = c.late.PushBack(h)
	}
	return c.late.Back().Value.(*handshake)
}

// Used returns how many places of the queue are in use.
func (q *Queue) Used() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.computing.Len() + q.held + q.waiting.Len() + len(q.all) + len(q.clients) + q.turns.Len()
}

func (q *Queue) limit() int {
	if q.Most > 0 {
		return q.Most
	}
	return maxHandshakes
}

func (q *Queue) long() time.Duration {
	if q.Long > 0 {
		return q.Long
	}
	return longHandshake
}

// Begin reports whether the connection's handshake may begin. Otherwise the handshake is queued; the owner is woken when it may begin, and
// calls Begin again. The handshake counts for the address client. The owner must call End in any case.
func (q *Queue) Begin(conn Conn, client netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.all[conn]
	if h == nil {
		h = q.addLocked(conn, client)
		h.since = clock.Nanotime()
		h.element = h.client.queued.PushBack(h)
		if h.client.turn == nil {
			h.client.turn = q.turns.PushFront(h.client)
		}
		q.goOnLocked()
	}
	if h.stage == handshakeQueued {
		return false
	}
	conn.SetReadDeadline(time.Time{}) // it may have been woken
	return true
}

// addLocked makes a handshake.
func (q *Queue) addLocked(conn Conn, address netip.Addr) *handshake {
	q.mu.AssertHeld()
	client := q.clients[address]
	if client == nil {
		if q.clients == nil {
			q.all, q.clients = make(map[Conn]*handshake), make(map[netip.Addr]*handshakeClient)
		}
		client = &handshakeClient{address: address, patience: unknown}
		q.clients[address] = client
	}
	client.handshakes++
	h := &handshake{conn: conn, client: client}
	q.all[conn] = h
	return h
}

// goOnLocked lets queued handshakes begin, as far as there is room.
func (q *Queue) goOnLocked() {
	q.mu.AssertHeld()
	if q.turns.Len() == 0 {
		return
	}
	now := clock.Nanotime()
	q.setHeldLocked(now)
	for most := PerProc * runtime.GOMAXPROCS(0); q.turns.Len() > 0 && q.computing.Len() < min(most, q.limit()-q.held); {
		client := q.turns.Front().Value.(*handshakeClient)
		h := client.next(now)
		q.turns.MoveToBack(client.turn)
		q.leaveLocked(h)
		h.stage, h.since = handshakeComputes, now
		h.element = q.computing.PushBack(h)
		h.conn.SetReadDeadline(clock.Past) // it wakes the owner
	}
	if q.turns.Len() > 0 && !q.looks {
		q.looks = true
		time.AfterFunc(q.long(), q.look)
	}
}

// setHeldLocked finds the handshakes that have computed for too long to count.
func (q *Queue) setHeldLocked(now clock.Nanos) {
	q.mu.AssertHeld()
	for e := q.computing.Front(); e != nil; e = q.computing.Front() {
		h := e.Value.(*handshake)
		if now.Sub(h.since) < q.long() {
			return
		}
		q.leaveLocked(h)
		h.stage = handshakeHeld
		q.held++
	}
}

// look no longer counts the handshakes that have computed for too long, so queued ones may begin beside them.
func (q *Queue) look() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks = false
	q.goOnLocked()
}

// Wait records that the connection's handshake waits for its client.
func (q *Queue) Wait(conn Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.all[conn]
	if h.stage != handshakeComputes && h.stage != handshakeHeld {
		return
	}
	q.leaveLocked(h)
	h.stage = handshakeWaits
	h.element = q.waiting.PushBack(h)
	h.client.waiting++
	if q.waiting.Len() > q.limit() {
		q.oustLocked()
	}
	q.goOnLocked()
}

// maxLooks is how many connections oustLocked asks whether they are silent.
const maxLooks = 16

// oustLocked ends a wait of the address with the most waits: the longest wait whose client is silent or, if it finds no silent client, the
// longest wait of all. A client that has sent its part waits for this server.
func (q *Queue) oustLocked() {
	q.mu.AssertHeld()
	var crowded *handshakeClient
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		if client := e.Value.(*handshake).client; crowded == nil || client.waiting > crowded.waiting {
			crowded = client
		}
	}
	var ousted *handshake
	for e, looks := q.waiting.Front(), 0; e != nil && looks < maxLooks; e = e.Next() {
		h := e.Value.(*handshake)
		if h.client != crowded {
			continue
		}
		if looks++; ousted == nil {
			ousted = h
		}
		if h.conn.IsSilent() {
			ousted = h
			break
		}
	}
	q.leaveLocked(ousted)
	ousted.stage = handshakeOusted
	ousted.conn.SetDeadline(clock.Past)
}

// leaveLocked takes a handshake out of the list that it is in.
func (q *Queue) leaveLocked(h *handshake) {
	q.mu.AssertHeld()
	switch client := h.client; h.stage {
	case handshakeQueued:
		client.queued.Remove(h.element)
		client.late.Remove(h.element) // a list ignores an element of another one
		if client.queued.Len()+client.late.Len() == 0 {
			q.turns.Remove(client.turn)
			client.turn, client.patience = nil, unknown
		}
	case handshakeComputes:
		q.computing.Remove(h.element)
	case handshakeHeld:
		q.held--
	case handshakeWaits:
		q.waiting.Remove(h.element)
		client.waiting--
	}
}

// End forgets the connection's handshake, which is over or won't begin. It reports whether the handshake was ousted.
func (q *Queue) End(conn Conn) (ousted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.all[conn]
	delete(q.all, conn)
	if h.stage == handshakeQueued {
		h.client.patience = min(h.client.patience, clock.Nanotime().Sub(h.since)/2)
	}
	q.leaveLocked(h)
	if h.client.handshakes--; h.client.handshakes == 0 {
		delete(q.clients, h.client.address)
	}
	if ousted = h.stage == handshakeOusted; ousted {
		conn.SetDeadline(time.Time{})
	}
	q.goOnLocked()
	return ousted
}
