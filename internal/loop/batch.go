//go:build linux

package loop

import "sync/atomic"

// loopEvent is an event of a socket or a listener.
type loopEvent struct {
	socket   *Socket
	listener *listenerEntry
	events   uint32
}

// batchEntry is a loopEvent in a batch. Its fields are atomic, since a leader may read an entry while another leader takes the entry and the
// filler overwrites it.
type batchEntry struct {
	socket   atomic.Pointer[Socket]
	listener atomic.Pointer[listenerEntry]
	events   atomic.Uint32
}

// put adds an event to the batch. The caller is the filler.
func (l *Loop) put(e loopEvent) {
	entry := &l.batch[l.filled]
	entry.socket.Store(e.socket)
	if entry.listener.Load() != e.listener {
		entry.listener.Store(e.listener)
	}
	entry.events.Store(e.events)
	l.filled++
}

// Loop.cursor holds a count of the batches in its high half. The lowest 16 bits hold the index of the next entry, the 15 bits above them
// the number of entries, and the bit above those is the flag beingFilled.
const beingFilled = 1 << 31

// isUsedUp reports whether all entries of the batch have been taken.
func isUsedUp(cursor uint64) bool { return cursor&0xffff >= cursor>>16&0x7fff }

// beginFilling makes the caller the filler, the leader that fills the batch. It reports false if another leader is the filler, or if the
// batch isn't used up: its remaining entries would be lost.
func (l *Loop) beginFilling() bool {
	cursor := l.cursor.Load()
	return isUsedUp(cursor) && cursor&beingFilled == 0 && l.cursor.CompareAndSwap(cursor, cursor|beingFilled)
}

// fill fills a new batch with the events of the epoll set and the claimed connections, and returns its size. The caller is the filler until
// fill returns.
func (l *Loop) fill() (n int) {
	l.poll()
	l.requeue()
	return l.endFilling()
}

// endFilling publishes the entries that put has added as the new batch, and returns their number. Afterwards the caller isn't the filler
// any more.
func (l *Loop) endFilling() (n int) {
	n, l.filled = l.filled, 0
	l.cursor.Store((l.cursor.Load()>>32+1)<<32 | uint64(n)<<16)
	return n
}

// isFirst reports whether the first entry of the batch belongs to the connection in the slot.
func (l *Loop) isFirst(slot uint32) bool {
	socket := l.batch[0].socket.Load()
	return socket != nil && socket.slot == slot
}

// hasBatch reports whether the batch isn't used up.
func (l *Loop) hasBatch() bool { return !isUsedUp(l.cursor.Load()) }

// take takes an event out of the batch. Any leader may call it.
func (l *Loop) take() (e loopEvent, ok bool) {
	for {
		cursor := l.cursor.Load()
		if isUsedUp(cursor) {
			return e, false
		}
		entry := &l.batch[cursor&0xffff]
		e = loopEvent{socket: entry.socket.Load(), listener: entry.listener.Load(), events: entry.events.Load()}
		if l.cursor.CompareAndSwap(cursor, cursor+1) {
			return e, true
		}
	}
}

// requeue puts the claimed connections into the batch, after the events.
func (l *Loop) requeue() {
	if len(l.queue) == 0 {
		return
	}
	for ; l.queued < len(l.queue) && l.filled < len(l.batch); l.queued++ {
		l.put(loopEvent{socket: l.queue[l.queued], events: claimedEvent})
		l.queue[l.queued] = nil
	}
	// Move the rest to the front only if it isn't longer than the part before it, so that a long queue isn't moved each time.
	if rest := len(l.queue) - l.queued; rest <= l.queued {
		copy(l.queue, l.queue[l.queued:])
		clear(l.queue[rest:])
		l.queue, l.queued = l.queue[:rest], 0
	}
}
