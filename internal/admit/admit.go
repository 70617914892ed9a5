// Package admit decides how many handlers may run at once, and which ones wait until another one has ended. It counts places, and doesn't
// know workers or connections.
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
	// None means that there is no place. A handler that runs where its request was read needs none.
	None Kind = iota
	// Ordinary is the place of any handler. It counts against Concurrency.
	Ordinary
	// Quick is reserved for finding out whether a handler is quick. So quick handlers, such as a health check's, are called whatever the
	// load.
	Quick
	// QuickConn is Quick for a connection of the blocking driver. The connection holds the place from its acceptance until its first
	// request is refused or answered. Clients of an overloaded machine take long to send their requests. If these connections used Quick's
	// few places, a probe would rarely find one.
	QuickConn
	// Always is reserved for handlers that must always answer, such as those of probes that wait for checks, and of operators' pages. The
	// limit bounds the cost of such a route when all clients call it.
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

// Kinds is a set of kinds of places. They are tried in the order of the constants above.
type Kinds uint8

// Or returns the set, with the kind k added if add is true.
func (s Kinds) Or(k Kind, add bool) Kinds {
	if add {
		s |= k.Only()
	}
	return s
}

// Only returns the set with this kind alone.
func (k Kind) Only() Kinds { return 1 << k }

func (s Kinds) has(k Kind) bool { return s&k.Only() != 0 }

// isQuick reports whether only a quick handler may run in a place of this kind.
func (k Kind) isQuick() bool { return k == Quick || k == QuickConn }

// Admission counts the places of a server, and has its queue.
type Admission struct {
	most [kinds]int64 // immutable after Init
	queue

	// The counts are written for each request that is handed over, so they don't share a cache line with fields that are only read.
	_     apart.Lines
	taken [kinds]atomic.Int64 // only TakeBeyond and EnterBeyond exceed a limit; places of the kind None aren't counted
}

// Config configures an Admission.
type Config struct {
	Concurrency int           // the limit of ordinary places
	Queue       int           // the maximum number of waiters for an ordinary place
	MaxWait     time.Duration // the maximum time that one of them waits
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

// Beyond returns how many ordinary places are taken beyond the limit.
func (a *Admission) Beyond() int { return int(max(0, a.taken[Ordinary].Load()-a.most[Ordinary])) }

// TakeBeyond takes an ordinary place, whether or not one is free, for a worker whose handler has begun without one. The Place whose
// ReceiveLate is called gets it.
func (a *Admission) TakeBeyond() { a.taken[Ordinary].Add(1) }

// take takes a place of the kind. It returns false if none is free.
func (a *Admission) take(k Kind) bool { return k == None || addBelow(&a.taken[k], a.most[k]) }

// addBelow adds one to a count, unless that has reached most.
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

// give gives a place of the kind back.
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

// Place is the place of one handler or one connection, which has at most one at a time. The zero value counts nowhere and is never refused.
// A Place belongs to one goroutine at a time.
type Place struct {
	of   *Admission
	kind Kind
	late bool // it was received, and Enter hasn't admitted its handler since: see ReceiveLate
}

// NewPlace returns a Place of the kind None.
func (a *Admission) NewPlace() Place { return Place{of: a} }

// Kind returns which kind of place this is now.
func (p *Place) Kind() Kind { return p.kind }

// IsReserved reports whether the place is of a reserved kind, which is available whatever the load.
func (p *Place) IsReserved() bool { return p.kind.isQuick() || p.kind == Always }

// Enter does nothing if the place already is of one of the wanted kinds. Otherwise it takes a place of one of them and gives back the
// previous one. It returns false, and keeps the previous one, if none is free.
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

// MayTakeLong makes sure that a handler that was admitted to the place may wait for something. The place of a quick handler must become an
// ordinary one. It returns false if none is free.
func (p *Place) MayTakeLong() bool {
	p.late = false
	return !p.kind.isQuick() || p.Enter(Ordinary.Only())
}

// EnterBeyond gives back the previous place and takes one of the kind k, even beyond the limit: another request is about to leave its
// place.
func (p *Place) EnterBeyond(k Kind) {
	p.Leave()
	if p.kind = k; k != None {
		p.of.taken[k].Add(1)
	}
}

// ReceiveLate turns the place into the one that TakeBeyond has taken. Its handler began without a place: while places are taken beyond
// the limit, Enter would have refused it.
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
