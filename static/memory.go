package static

import "sync"

// memory caches entries up to a limit in bytes. To make room, it drops entries with the CLOCK algorithm: those that weren't used since the
// hand last passed them. With this algorithm, get needs only a read lock.
type memory struct {
	limit int64

	mu      sync.RWMutex
	entries map[string]*entry // guarded by mu
	ring    []*entry          // the same entries, each at its slot; guarded by mu
	hand    int               // guarded by mu
	bytes   int64             // the total cost of the entries; guarded by mu
}

// get returns the entry of a name, nil if there is none.
func (m *memory) get(name []byte) *entry {
	m.mu.RLock()
	e := m.entries[string(name)]
	m.mu.RUnlock()
	if e != nil && !e.used.Load() {
		e.used.Store(true)
	}
	return e
}

// put stores an entry in place of the old one with the same name. It doesn't store an entry that is larger than the limit.
func (m *memory) put(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.entries[e.name]; old != nil {
		m.dropLocked(old)
	}
	cost := e.cost()
	if cost > m.limit {
		return
	}
	for m.bytes+cost > m.limit {
		if m.hand >= len(m.ring) {
			m.hand = 0
		}
		if candidate := m.ring[m.hand]; candidate.used.Swap(false) {
			m.hand++
		} else {
			m.dropLocked(candidate)
		}
	}
	if m.entries == nil {
		m.entries = make(map[string]*entry)
	}
	e.slot = len(m.ring)
	m.ring = append(m.ring, e)
	m.entries[e.name] = e
	m.bytes += cost
}

// drop removes an entry if it is still stored. For nil, it does nothing.
func (m *memory) drop(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e != nil && m.entries[e.name] == e {
		m.dropLocked(e)
	}
}

func (m *memory) dropLocked(e *entry) {
	delete(m.entries, e.name)
	last := len(m.ring) - 1
	m.ring[e.slot] = m.ring[last]
	m.ring[e.slot].slot = e.slot
	m.ring[last] = nil
	m.ring = m.ring[:last]
	m.bytes -= e.cost()
}
