// Package handshakes limits how many TLS handshakes run at once. It sees a connection only as a Conn: it can set deadlines, which wake the
// connection's owner, and ask whether the client is silent.
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
	// maxHandshakes is the maximum number of TLS handshakes that compute and, separately, of those that wait for their clients. Each of these
	// handshakes occupies a worker.
	maxHandshakes = 1024
	// PerProc is how many handshakes compute at once, for each processor. More would only take processor time from requests: a handshake computes for
	// as long as a thousand quick requests, and the leaders of the event loops wait for a processor until it is done.
	PerProc = 2
	// longHandshake is how long a handshake counts as one that computes. A handshake that takes longer is most likely waiting in a function of the
	// program, such as tls.Config.GetCertificate.
	longHandshake = 100 * time.Millisecond
	// unknown is the patience of an address whose handshakes have never given up: no wait is longer.
	unknown time.Duration = math.MaxInt64
)

// Conn is a connection whose handshake is limited. A deadline in the past wakes the goroutine that owns the connection, or makes that goroutine's
// read or write fail.
type Conn interface {
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	// IsSilent reports whether the owner has read everything that has arrived from the client, including the end of the stream if that has
	// arrived. IsSilent doesn't block. Any goroutine may call it between Wait and End, so the owner must call End before it closes the connection.
	IsSilent() bool
}

// Queue decides which handshake begins next. Its zero value is ready for use. A client can't keep others out with handshakes that never end: when too
// many handshakes wait for their clients, the queue ousts one of them. Until then the queue doesn't limit how long a handshake waits for its client.
// A handshake is queued only because too many others compute.
//
// A client doesn't get more than a fair share by opening many connections: the queue ousts a handshake of the address with the most waiting
// handshakes, and the addresses take turns. An address that had no queued handshakes comes first. In an address's turn its oldest handshake begins,
// so none is lost in a burst. But if more handshakes arrive than can be served, the client of the oldest handshake would always be about to give up.
// So when a handshake leaves the queue unserved, half of its wait becomes the patience of its address. Handshakes of that address that have waited
// for longer than the patience are served after the others, the newest of them first.
type Queue struct {
	Most int           // 0: maxHandshakes; immutable
	Long time.Duration // 0: longHandshake; immutable

	mu        race.Mutex[race.OfHandshakes]
	computing list.List                       // of *handshake; the front one has computed for the longest; guarded by mu
	held      int                             // how many handshakes are in stage handshakeHeld; guarded by mu
	looks     bool                            // a timer that will call look is set; guarded by mu
	waiting   list.List                       // of *handshake, those that wait for their clients; the front one has waited for the longest; guarded by mu
	all       map[Conn]*handshake             // every handshake by its connection; guarded by mu
	clients   map[netip.Addr]*handshakeClient // by address: the clients that have a handshake in the map all; guarded by mu
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
	handshakeHeld   // it has computed for too long, so a function of the program is probably waiting
	handshakeWaits  // it waits for its client, or has waited for its client before
	handshakeOusted // it still runs, but its reads and writes fail
)

// handshakeClient holds the handshakes of one address. Its fields are guarded by the queue's mu.
type handshakeClient struct {
	address    netip.Addr
	handshakes int           // how many handshakes of the address are in Queue.all
	waiting    int           // those that wait for their clients
	queued     list.List     // of *handshake, the newest last
	late       list.List     // of *handshake, the newest last: they are still queued, but have waited for longer than patience
	patience   time.Duration // how long a handshake may wait before it moves to late
	turn       *list.Element // the element in Queue.turns; nil if no handshake of the address is queued
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

// Used returns how many entries the queue's lists and maps hold, for tests that check that none is left.
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

// Begin reports whether the connection's handshake may begin. Otherwise the handshake is queued; when the handshake may begin, the queue wakes the
// owner, which must call Begin again. client is the address for which the handshake counts. The owner must call End whatever Begin returns.
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
	conn.SetReadDeadline(time.Time{}) // undo the deadline that may have woken the owner
	return true
}

// addLocked adds a handshake for the connection.
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

// setHeldLocked moves handshakes that have computed for at least q.long() to the stage handshakeHeld, where they no longer count against PerProc.
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

// look runs on a timer while handshakes are queued. It lets queued handshakes begin in place of those that have computed for too long.
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

// maxLooks is the maximum number of connections that oustLocked checks for silence.
const maxLooks = 16

// oustLocked ends the wait of one handshake, of the address with the most waiting handshakes. It ends the longest wait whose client is silent or, if
// it finds no silent client, the longest wait of all. A client that isn't silent has sent its part, and is waiting for this server.
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
		client.late.Remove(h.element) // a list ignores an element of another list
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

// End removes the connection's handshake, which has ended or won't begin. It reports whether the handshake was ousted.
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
