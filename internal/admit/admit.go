// Package admit decides how many handlers may run at once, and in which order the others wait. It counts places, and doesn't depend on
// workers or connections.
package admit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/clock"
)

// Kind is a kind of place. Each kind has a limit of its own.
type Kind uint8

const (
	// None means that no place is taken. A handler that runs in the worker that has read its request needs no place.
	None Kind = iota
	// Ordinary is a place for any handler. It counts against Concurrency.
	Ordinary
	// Quick is a reserved place for a request whose handler may be quick. So quick handlers, for example of health checks, are called
	// whatever the load is.
	Quick
	// QuickConn is the counterpart of Quick for connections of the blocking driver. Such a connection holds the place from its acceptance
	// until its first request is refused or answered. QuickConn has a limit of its own, since clients of an overloaded machine take long to
	// send their requests. If their connections took Quick's few places, a probe would rarely find a free one.
	QuickConn
	// Always is a reserved place for handlers that must always answer, such as those of probes that wait for checks, and of operators'
	// pages. The limit bounds the cost of such a route when all clients request it.
	Always
	// Closing is the place of a worker that closes a connection, which may take long.
	Closing
	kinds
)

// The limits of the reserved kinds.
const (
	MaxQuick     = 32
	MaxQuickConn = 8 * MaxQuick
	MaxAlways    = 16
)

// Kinds is a set of kinds of places. Place.Enter tries them in the order of the constants.
type Kinds uint8

// Or returns the set, with the kind k added if add is true.
func (s Kinds) Or(k Kind, add bool) Kinds {
	if add {
		s |= k.Only()
	}
	return s
}

// Only returns the set that contains only this kind.
func (k Kind) Only() Kinds { return 1 << k }

func (s Kinds) has(k Kind) bool { return s&k.Only() != 0 }

// isQuick reports whether only a quick handler may run in a place of this kind.
func (k Kind) isQuick() bool { return k == Quick || k == QuickConn }

// Admission counts the taken places of a server, and implements its queue.
type Admission struct {
	most [kinds]int64 // immutable after Init
	queue

	// The counts change with each request that is handed to another worker, so they don't share a cache line with fields that are only read.
	_     apart.Lines
	taken [kinds]atomic.Int64 // only TakeBeyond and EnterBeyond may exceed a limit; the kind None isn't counted
}

// Config configures an Admission.
type Config struct {
	Concurrency int           // the limit of ordinary places
	Queue       int           // the maximum number of requests that wait for an ordinary place
	MaxWait     time.Duration // the maximum time for which a request waits
	Now         func() clock.Time
}

// Init makes the Admission ready for use.
func (a *Admission) Init(c Config) {
	n := int64(c.Concurrency)
	a.most = [kinds]int64{None: math.MaxInt64, Ordinary: n, Quick: MaxQuick, QuickConn: MaxQuickConn, Always: MaxAlways, Closing: n}
	a.queue.most, a.queue.maxWait, a.queue.now = int64(c.Queue), c.MaxWait, c.Now
}

// Taken returns how many places of the kind are taken.
func (a *Admission) Taken(k Kind) int { return int(a.taken[k].Load()) }

// IsFull reports whether no ordinary place is free.
func (a *Admission) IsFull() bool { return a.taken[Ordinary].Load() >= a.most[Ordinary] }

// Beyond returns by how much the number of taken ordinary places exceeds the limit.
func (a *Admission) Beyond() int { return int(max(0, a.taken[Ordinary].Load()-a.most[Ordinary])) }

// TakeBeyond takes an ordinary place, even if none is free, for a worker whose handler has begun without a place. Later the worker records
// the place in its Place by ReceiveLate.
func (a *Admission) TakeBeyond() { a.taken[Ordinary].Add(1) }

// take takes a place of kind k. It returns false if none is free.
func (a *Admission) take(k Kind) bool { return k == None || addBelow(&a.taken[k], a.most[k]) }

// addBelow adds one to a count, unless the count has reached its maximum, most.
func addBelow(count *atomic.Int64, most int64) bool {
	for {
		n := count.Load()
		if n >= most {
			return false
		}
		if count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// give gives back a place of kind k.
func (a *Admission) give(k Kind) {
	if k == None {
		return
	}
	if a.taken[k].Add(-1); k == Ordinary {
		a.freed()
	}
}

// freed wakes a waiter, since an ordinary place is free.
func (a *Admission) freed() {
	if a.waiting.Load() > 0 {
		a.queue.wake(a.now())
	}
}

// Place records which place, if any, one handler or one connection has taken. The zero value belongs to no Admission: it isn't counted, and
// Enter always succeeds. Only one goroutine at a time uses a Place.
type Place struct {
	of   *Admission
	kind Kind
	late bool // ReceiveLate was called, and neither Enter nor MayTakeLong has admitted the handler since
}

// NewPlace returns a Place of kind None.
func (a *Admission) NewPlace() Place { return Place{of: a} }

// Kind returns the kind of the taken place.
func (p *Place) Kind() Kind { return p.kind }

// IsReserved reports whether the place is of a reserved kind.
func (p *Place) IsReserved() bool { return p.kind.isQuick() || p.kind == Always }

// Enter returns true if the place already is of a wanted kind. Otherwise it takes a place of a wanted kind and gives back the previous
// place. If no such place is free, it returns false and keeps the previous place.
func (p *Place) Enter(wanted Kinds) bool {
	if p.of == nil {
		return true
	}
	if p.late = p.late && p.of.Beyond() > 0; p.late {
		wanted &^= Ordinary.Only()
	}
	if wanted.has(p.kind) || wanted.has(Quick) && p.kind == QuickConn {
		return true
	}
	for k := None; k < kinds; k++ {
		if wanted.has(k) && p.of.take(k) {
			p.of.give(p.kind)
			p.kind, p.late = k, false
			return true
		}
	}
	return false
}

// MayTakeLong reports whether the handler may go on although it turns out to take long. A place that is reserved for quick handlers must
// become an ordinary place for that. MayTakeLong returns false if no ordinary place is free.
func (p *Place) MayTakeLong() bool {
	p.late = false
	return !p.kind.isQuick() || p.Enter(Ordinary.Only())
}

// EnterBeyond gives back the previous place and takes a place of kind k, even if that exceeds the limit. The caller knows that another
// request is about to leave its place.
func (p *Place) EnterBeyond(k Kind) {
	p.Leave()
	if p.kind = k; k != None {
		p.of.taken[k].Add(1)
	}
}

// ReceiveLate makes p the place that TakeBeyond has taken. The handler has begun without being admitted. So as long as the limit is
// exceeded, Enter doesn't count p as an ordinary place.
func (p *Place) ReceiveLate() {
	p.Leave()
	p.kind, p.late = Ordinary, true
}

// Leave gives the place back.
func (p *Place) Leave() {
	if p.kind != None {
		k := p.kind
		p.kind, p.late = None, false
		p.of.give(k)
	}
}

// Refusal is the cause of the error of a request that got no place, so its handler wasn't called.
type Refusal struct {
	Cause error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Cause.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }
