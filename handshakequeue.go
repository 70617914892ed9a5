//go:build linux

package filo

import (
	"container/list"
	"net/netip"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// maxHandshakes is how many TLS handshakes compute at once, and how many wait for their clients. Each needs a worker meanwhile.
const maxHandshakes = 1024

// handshakeQueue limits how many TLS handshakes run at once. Nobody can keep others out by handshakes that never end: when too many wait
// for their clients, one of them is ousted, so a wait may be as long as there is room for it. Only how many compute makes others queue.
//
// Nobody gets more than a share by many connections: a handshake of the address with most waiting ones is ousted. Addresses that have only
// begun to queue come first, each with its newest handshake, whose client is the least likely to have given up.
type handshakeQueue struct {
	most int // 0: maxHandshakes; immutable

	mu        race.Mutex
	computing int                             // guarded by mu
	waiting   list.List                       // of *handshake: they wait for their clients, the first one for longest; guarded by mu
	all       map[*loopConn]*handshake        // all of them, a loopConn has no room for more than a flag; guarded by mu
	clients   map[netip.Addr]*handshakeClient // those that have a handshake here; guarded by mu
	turns     list.List                       // of *handshakeClient: those that have queued handshakes; guarded by mu
}

// handshake is a TLS handshake that runs or is queued. Its fields are guarded by the queue's mu.
type handshake struct {
	lc      *loopConn
	client  *handshakeClient
	stage   handshakeStage
	element *list.Element // in client.queued or waiting
}

type handshakeStage uint8

const (
	handshakeQueued handshakeStage = iota
	handshakeComputes
	handshakeWaits  // for its client, or it has done so
	handshakeOusted // it runs, but its waits are over
)

// handshakeClient has the handshakes of one address. Its fields are guarded by the queue's mu.
type handshakeClient struct {
	address    netip.Addr
	handshakes int           // in all
	waiting    int           // those that wait for their clients
	queued     list.List     // of *handshake, the newest last
	turn       *list.Element // in turns; nil if none is queued
}

// held returns how many places of the queue are in use.
func (q *handshakeQueue) held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.computing + q.waiting.Len() + len(q.all) + len(q.clients) + q.turns.Len()
}

func (q *handshakeQueue) limit() int {
	if q.most > 0 {
		return q.most
	}
	return maxHandshakes
}

// begin reports whether the connection's handshake may begin. If not it is queued, and the owner is woken when it may.
func (q *handshakeQueue) begin(lc *loopConn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.all[lc]
	if h == nil {
		h = q.addLocked(lc)
		lc.handshaking = true
		h.element = h.client.queued.PushBack(h)
		if h.client.turn == nil {
			h.client.turn = q.turns.PushFront(h.client)
		}
		q.goOnLocked()
	}
	if h.stage == handshakeQueued {
		return false
	}
	lc.SetReadDeadline(time.Time{}) // it may have been woken
	return true
}

// addLocked makes a handshake.
func (q *handshakeQueue) addLocked(lc *loopConn) *handshake {
	q.mu.AssertHeld()
	address := limitAddress(lc.RemoteAddr())
	client := q.clients[address]
	if client == nil {
		if q.clients == nil {
			q.all, q.clients = make(map[*loopConn]*handshake), make(map[netip.Addr]*handshakeClient)
		}
		client = &handshakeClient{address: address}
		q.clients[address] = client
	}
	client.handshakes++
	h := &handshake{lc: lc, client: client}
	q.all[lc] = h
	return h
}

// goOnLocked lets queued handshakes begin, as far as there is room.
func (q *handshakeQueue) goOnLocked() {
	q.mu.AssertHeld()
	for q.turns.Len() > 0 && q.computing < q.limit() {
		client := q.turns.Front().Value.(*handshakeClient)
		h := client.queued.Back().Value.(*handshake)
		q.turns.MoveToBack(client.turn)
		q.leaveLocked(h)
		h.stage = handshakeComputes
		q.computing++
		h.lc.SetReadDeadline(clock.Past) // it wakes the owner
	}
}

// wait records that the connection's handshake waits for its client.
func (q *handshakeQueue) wait(lc *loopConn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.all[lc]
	if h.stage != handshakeComputes {
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

// oustLocked ends the wait of the handshake that has waited for longest, of the address that has most of them.
func (q *handshakeQueue) oustLocked() {
	q.mu.AssertHeld()
	var ousted *handshake
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*handshake); ousted == nil || h.client.waiting > ousted.client.waiting {
			ousted = h
		}
	}
	q.leaveLocked(ousted)
	ousted.stage = handshakeOusted
	ousted.lc.SetDeadline(clock.Past)
}

// leaveLocked takes a handshake out of what it is in.
func (q *handshakeQueue) leaveLocked(h *handshake) {
	q.mu.AssertHeld()
	switch client := h.client; h.stage {
	case handshakeQueued:
		client.queued.Remove(h.element)
		if client.queued.Len() == 0 {
			q.turns.Remove(client.turn)
			client.turn = nil
		}
	case handshakeComputes:
		q.computing--
	case handshakeWaits:
		q.waiting.Remove(h.element)
		client.waiting--
	}
}

// end forgets the connection's handshake, which is over or won't begin. It reports whether the handshake was ousted.
func (q *handshakeQueue) end(lc *loopConn) (ousted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.all[lc]
	delete(q.all, lc)
	lc.handshaking = false
	q.leaveLocked(h)
	if h.client.handshakes--; h.client.handshakes == 0 {
		delete(q.clients, h.client.address)
	}
	if ousted = h.stage == handshakeOusted; ousted {
		lc.SetDeadline(time.Time{})
	}
	q.goOnLocked()
	return ousted
}
