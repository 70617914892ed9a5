package http2

import (
	"math/bits"
	"slices"

	"github.com/filohttp/filo/internal/syntax"
)

const (
	urgencies      = 8
	defaultUrgency = 3
)

// Priority says how urgently a client needs an answer, and whether a part of the answer is useful to it (RFC 9218, section 4).
type Priority struct {
	Urgency     uint8 // 0 is the most urgent, 7 the least
	Incremental bool  // the client can use a part of the answer before the rest arrives
}

var (
	// DefaultPriority has the defaults of RFC 9218 for members that are missing in a Priority field.
	DefaultPriority = Priority{Urgency: defaultUrgency}
	// UnsaidPriority is the priority of a request that states none. The answers to such requests are sent in turns. With the default of RFC
	// 9218 they would be sent one after the other, and a long answer, such as a stream of messages, would hold up all later answers.
	UnsaidPriority = Priority{Urgency: defaultUrgency, Incremental: true}
)

// ParsePriority reads the value of a Priority field or of PRIORITY_UPDATE: a dictionary of RFC 9651, section 3.2. Unknown and invalid
// members are ignored, as is a value that isn't a dictionary.
func ParsePriority(value []byte) Priority {
	p := DefaultPriority
	for d := syntax.NewDictionary(value); ; {
		key, item, ok := d.Next()
		switch {
		case d.Bad():
			return DefaultPriority
		case !ok:
			return p
		case string(key) == "u" && len(item) == 1 && item[0] >= '0' && item[0] < '0'+urgencies:
			p.Urgency = item[0] - '0'
		case string(key) == "i" && len(item) == 2 && item[0] == '?':
			p.Incremental = item[1] == '1'
		}
	}
}

// Prioritized holds the priorities that clients send by PRIORITY_UPDATE for streams that they haven't opened yet (RFC 9218, section 7.1).
// The zero value is empty, and has no memory.
type Prioritized struct{ entries []prioritized }

type prioritized struct {
	id       uint32
	priority Priority
}

// Empty reports whether no priority is stored.
func (q *Prioritized) Empty() bool { return len(q.entries) == 0 }

// Put stores the priority of an idle stream. room limits how many idle streams may have a priority: "The number of streams that have been
// prioritized but remain in the "idle" state plus the number of active streams MUST NOT exceed the value of the
// SETTINGS_MAX_CONCURRENT_STREAMS parameter." A client that hasn't acknowledged SETTINGS yet may not know this limit, so the caller ignores
// FaultPrioritized until then.
func (q *Prioritized) Put(id uint32, p Priority, room int) Fault {
	if id&1 == 0 {
		return FaultPrioritized // the connection, or a stream that only a server opens
	}
	for i := range q.entries {
		if q.entries[i].id == id {
			q.entries[i].priority = p
			return NoFault
		}
	}
	if len(q.entries) >= room {
		return FaultPrioritized
	}
	q.entries = append(q.entries, prioritized{id, p})
	return NoFault
}

// Take returns the stored priority of a stream that the client opens, if there is one. It removes the priorities of this stream and of all
// streams with lower numbers, since they are no longer idle.
func (q *Prioritized) Take(id uint32) (p Priority, ok bool) {
	if len(q.entries) == 0 {
		return p, false
	}
	q.entries = slices.DeleteFunc(q.entries, func(e prioritized) bool {
		if e.id == id {
			p, ok = e.priority, true
		}
		return e.id <= id
	})
	if len(q.entries) == 0 {
		q.entries = nil
	}
	return p, ok
}

// Sender is a stream's entry in a Schedule. Call Init first.
type Sender[S any] struct {
	stream     *S
	next, prev *Sender[S] // neighbors in the ring of its urgency; used if the stream is incremental
	id         uint32
	at         int32 // position in the heap, from 1 on; used if the stream isn't incremental
	priority   Priority
}

// Init makes n the entry of a stream, which isn't in a schedule yet.
func (n *Sender[S]) Init(stream *S, id uint32, p Priority) {
	*n = Sender[S]{stream: stream, id: id, priority: p}
}

// Waits reports whether the stream is in a schedule.
func (n *Sender[S]) Waits() bool { return n.next != nil || n.at > 0 }

// less reports whether n sends before m, if neither is incremental. At the same urgency, the earlier request comes first (RFC 9218, section
// 10).
func (n *Sender[S]) less(m *Sender[S]) bool {
	if n.priority.Urgency != m.priority.Urgency {
		return n.priority.Urgency < m.priority.Urgency
	}
	return n.id < m.id
}

// Schedule is the order in which streams send DATA (RFC 9218, section 10). More urgent streams come first. Among streams of the same
// urgency, the incremental ones take turns, frame by frame, and the others are sent one after the other. If there are both kinds, they
// alternate: every second frame belongs to a stream that isn't incremental. The RFC leaves that open; in this way neither kind starves. The
// time of an operation is at most logarithmic in the number of streams. An operation allocates only when the heap grows. The zero value is
// empty, and has no memory.
type Schedule[S any] struct{ *agenda[S] }

// agenda holds the streams of a schedule. It is allocated when the first stream is added.
type agenda[S any] struct {
	heap  []*Sender[S]          // the streams that aren't incremental; heap[0] is the first to send
	rings [urgencies]*Sender[S] // for each urgency the ring of its incremental streams, beginning with the one whose turn is next
	used  uint8                 // a bit for each urgency that has a ring
	whole uint8                 // a bit for each urgency at which the next frame should be of a stream that isn't incremental
}

// Empty reports whether the schedule has no streams.
func (q *Schedule[S]) Empty() bool { return q.agenda == nil || len(q.heap) == 0 && q.used == 0 }

// Trim releases the memory of an empty schedule.
func (q *Schedule[S]) Trim() {
	if q.Empty() {
		q.agenda = nil
	}
}

// Add adds a stream, unless it is in the schedule already. The stream must have something to send, and an open window.
func (q *Schedule[S]) Add(n *Sender[S]) {
	if n.Waits() {
		return
	}
	if q.agenda == nil {
		q.agenda = new(agenda[S])
	}
	if n.priority.Incremental {
		q.join(n)
		return
	}
	q.heap = append(q.heap, n)
	n.at = int32(len(q.heap))
	q.up(int(n.at))
}

// Remove removes a stream, if it is in the schedule.
func (q *Schedule[S]) Remove(n *Sender[S]) {
	switch {
	case n.next != nil:
		q.leave(n)
	case n.at > 0:
		q.pull(n)
	}
}

// SetPriority changes a stream's priority.
func (q *Schedule[S]) SetPriority(n *Sender[S], p Priority) {
	if p == n.priority {
		return
	}
	waits := n.Waits()
	q.Remove(n)
	if n.priority = p; waits {
		q.Add(n)
	}
}

// Next returns the stream that may send the next frame, or nil if the schedule is empty.
func (q *Schedule[S]) Next() *S {
	if n := q.next(); n != nil {
		return n.stream
	}
	return nil
}

func (q *Schedule[S]) next() *Sender[S] {
	if q.agenda == nil {
		return nil
	}
	urgency := bits.TrailingZeros8(q.used) // 8 for no ring
	if len(q.heap) > 0 {
		first := q.heap[0]
		u := int(first.priority.Urgency)
		if u < urgency || u == urgency && q.whole&(1<<u) != 0 {
			return first
		}
	}
	if q.used == 0 {
		return nil
	}
	return q.rings[urgency]
}

// Sent ends the turn of the stream that Next has returned, after the stream has sent a frame. The stream stays in the schedule until Remove.
func (q *Schedule[S]) Sent(n *Sender[S]) {
	u := n.priority.Urgency
	if n.next == nil {
		q.whole &^= 1 << u
		return
	}
	q.rings[u] = n.next
	q.whole |= 1 << u
}

// join adds an incremental stream at the end of the ring of its urgency.
func (q *Schedule[S]) join(n *Sender[S]) {
	u := n.priority.Urgency
	first := q.rings[u]
	if first == nil {
		n.next, n.prev = n, n
		q.rings[u] = n
		q.used |= 1 << u
		return
	}
	n.next, n.prev = first, first.prev
	n.prev.next, first.prev = n, n
}

// leave removes an incremental stream from its ring.
func (q *Schedule[S]) leave(n *Sender[S]) {
	u := n.priority.Urgency
	if n.next == n {
		q.rings[u] = nil
		q.used &^= 1 << u
	} else {
		if q.rings[u] == n {
			q.rings[u] = n.next
		}
		n.prev.next, n.next.prev = n.next, n.prev
	}
	n.next, n.prev = nil, nil
}

// pull removes a stream from the heap.
func (q *Schedule[S]) pull(n *Sender[S]) {
	at, last := int(n.at), len(q.heap)
	q.swap(at, last)
	q.heap[last-1] = nil
	q.heap = q.heap[:last-1]
	n.at = 0
	if at < last {
		q.up(at)
		q.down(at)
	}
}

func (q *Schedule[S]) swap(i, j int) {
	h := q.heap
	h[i-1], h[j-1] = h[j-1], h[i-1]
	h[i-1].at, h[j-1].at = int32(i), int32(j)
}

// up moves the stream at position i up the heap while it comes before its parent. Positions begin at 1.
func (q *Schedule[S]) up(i int) {
	for ; i > 1 && q.heap[i-1].less(q.heap[i/2-1]); i /= 2 {
		q.swap(i, i/2)
	}
}

// down moves the stream at position i down the heap while one of its children comes before it.
func (q *Schedule[S]) down(i int) {
	for {
		child := 2 * i
		if child > len(q.heap) {
			return
		}
		if child < len(q.heap) && q.heap[child].less(q.heap[child-1]) {
			child++
		}
		if !q.heap[child-1].less(q.heap[i-1]) {
			return
		}
		q.swap(i, child)
		i = child
	}
}
