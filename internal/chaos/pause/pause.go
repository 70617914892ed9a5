// Package pause delays goroutines at random. Command chaos makes each statement in a copy of filo call At first.
//
// The environment variable FILO_CHAOS contains the seed. The seed determines at which sites (statements), and at which visits of a site, a
// goroutine pauses, and for how long. Everything else depends on the system's scheduler. Without FILO_CHAOS, At returns at once.
package pause

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	// active is the ratio of all sites to those that ever pause in a run. Only one site in 6 pauses, so that it can pause often enough to
	// disturb another goroutine.
	active = 6
	// At a site that pauses, visit number n pauses with the probability 1/(often + n/rarer). If the pauses didn't become rarer, a site that is
	// visited for each byte would take all of the run's time.
	often, rarer = 24, 64
	// sites is the maximum number of sites.
	sites = 1 << 16
	// remembered is the number of pauses that Report can list.
	remembered = 4096
)

var (
	seed   uint64
	on     bool
	visits [sites]atomic.Uint32
	began  = time.Now()
	last   log
	step   atomic.Int64 // by how many seconds Now is ahead of the wall clock
)

func init() {
	text, ok := os.LookupEnv("FILO_CHAOS")
	if !ok {
		return
	}
	var err error
	if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
		panic("FILO_CHAOS isn't a number: " + text)
	}
	on = true
}

// At is called before the statement with this number, and may pause.
func At(site uint32) {
	if !on || mix(seed, uint64(site))%active != 0 {
		return
	}
	visit := uint64(visits[site].Add(1))
	choice, every := mix(seed^uint64(site)<<32, visit), often+visit/rarer
	if choice%every != 0 {
		return
	}
	last.add(site)
	choice /= every
	switch kind := choice % 16; {
	case kind < 9:
		for range 1 + kind/3 {
			runtime.Gosched()
		}
	case kind < 15:
		time.Sleep(time.Duration(choice>>8%200) * time.Microsecond)
	default:
		time.Sleep(time.Duration(1+choice>>8%20) * time.Millisecond)
	}
}

// mix hashes two numbers, with the finalizer of SplitMix64.
func mix(a, b uint64) uint64 {
	x := a + b*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Step moves the wall clock that Now returns, as if an administrator or a time server had set it. The monotonic clock isn't changed.
func Step(by time.Duration) { step.Add(int64(by / time.Second)) }

// Now replaces time.Now, and returns the time of the clock that Step moves. In the Time that it returns, it changes the internal bits that
// hold the seconds since 1885 if there is a monotonic clock reading. A test checks this layout.
func Now() time.Time {
	t := time.Now()
	if by := step.Load(); by != 0 {
		*(*uint64)(unsafe.Pointer(&t)) += uint64(by) << 30
	}
	return t
}

// log holds the latest pauses.
type log struct {
	mu     sync.Mutex
	pauses [remembered]record // guarded by mu
	n      int                // the number of all pauses; guarded by mu
}

type record struct {
	goroutine string
	at        time.Duration
	site      uint32
}

func (l *log) add(site uint32) {
	var buffer [64]byte
	name, _, _ := strings.Cut(string(buffer[:runtime.Stack(buffer[:], false)]), " [")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pauses[l.n%remembered] = record{name, time.Since(began), site}
	l.n++
}

// Report describes where goroutines paused last, after a failure. The argument text contains goroutine stacks: Report lists the pauses of the
// goroutines in it, or the pauses of all goroutines if text contains no stacks. A site is written as {number}.
func Report(text string) string {
	last.mu.Lock()
	defer last.mu.Unlock()
	var b, all strings.Builder
	for i := max(0, last.n-remembered); i < last.n; i++ {
		p := &last.pauses[i%remembered]
		line := fmt.Sprintf("%12v %s {%d}\n", p.at.Round(time.Microsecond), p.goroutine, p.site)
		if strings.Contains(text, p.goroutine+" [") {
			b.WriteString(line)
		}
		if i >= last.n-100 {
			all.WriteString(line)
		}
	}
	if b.Len() > 0 {
		return b.String()
	}
	return all.String()
}
