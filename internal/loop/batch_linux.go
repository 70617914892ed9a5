//go:build !386

package loop

import "sync/atomic"

// loopEvent is an event and what it is for.
type loopEvent struct {
	guest    *Loop
	socket   *Socket
	listener *listenerEntry
	events   uint32
}

// batchEntry is a loopEvent in a batch. Its fields are atomic: a leader may read an entry just before another leader takes that entry.
type batchEntry struct {
	socket   atomic.Pointer[Socket]
	listener atomic.Pointer[listenerEntry]
	events   atomic.Uint32
}

// put adds an event to the batch that is being filled.
func (l *Loop) put(e loopEvent) {
	entry := &l.batch[l.filled]
	entry.socket.Store(e.socket)
	if entry.listener.Load() != e.listener {
		entry.listener.Store(e.listener)
	}
	entry.events.Store(e.events)
	l.filled++
}

// publish makes the entries that were put the new batch. The batch before is used up.
func (l *Loop) publish() {
	l.cursor.Store((l.cursor.Load()>>32+1)<<32 | uint64(l.filled)<<16)
	l.filled = 0
}

// take takes an event out of the batch. Any goroutine may call it.
func (l *Loop) take() (e loopEvent, ok bool) {
	for {
		cursor := l.cursor.Load()
		next, count := cursor&0xffff, cursor>>16&0xffff
		if next >= count {
			return e, false
		}
		entry := &l.batch[next]
		e = loopEvent{socket: entry.socket.Load(), listener: entry.listener.Load(), events: entry.events.Load()}
		if l.cursor.CompareAndSwap(cursor, cursor+1) {
			return e, true
		}
	}
}

// requeue puts the claimed connections into the batch, behind the events.
func (l *Loop) requeue() {
	if len(l.queue) == 0 {
		return
	}
	for ; l.queued < len(l.queue) && l.filled < len(l.batch); l.queued++ {
		l.put(loopEvent{socket: l.queue[l.queued], events: claimedEvent})
		l.queue[l.queued] = nil
	}
	// The rest is moved to the front only when it is the smaller part, so a long queue isn't moved each time.
	if rest := len(l.queue) - l.queued; rest <= l.queued {
		copy(l.queue, l.queue[l.queued:])
		clear(l.queue[rest:])
		l.queue, l.queued = l.queue[:rest], 0
	}
}
