package cache

import (
	"bytes"
	"crypto/rand"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/storelog"
)

// generation consists of the requests for a target that began since the target's answers were last removed. Their handlers may have read data
// from before the next removal, so their answers aren't stored after it.
type generation struct {
	running int  // the requests that may store an answer
	over    bool // the target's answers were removed, which has ended the generation
}

// generations has the generation of each target for which there are requests.
type generations struct {
	mu      sync.Mutex
	current map[string]*generation // the map and the generations are guarded by mu
}

// begin adds a request to the generation of its target.
func (g *generations) begin(key string) *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == nil {
		g.current = make(map[string]*generation)
	}
	own := g.current[key]
	if own == nil {
		own = new(generation)
		g.current[key] = own
	}
	own.running++
	return own
}

// end removes a request from its generation.
func (g *generations) end(key string, own *generation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.running--; own.running == 0 && !own.over {
		delete(g.current, key)
	}
}

// next ends the current generation, and calls remove before any request of the next generation can begin.
func (g *generations) next(key string, remove func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own := g.current[key]; own != nil {
		own.over = true
		delete(g.current, key)
	}
	remove()
}

// within calls store, unless the generation has ended, and reports whether it called store. The generation can't end until store returns.
func (g *generations) within(own *generation, store func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !own.over {
		store()
	}
	return !own.over
}

// fetching is a request whose answer may be stored.
type fetching struct {
	key        string // the target's key
	generation *generation
	mark       []byte // the mark in the Store when the request began; nil if there was none
	marked     bool   // the Store has returned the mark, or that there is none
	// sent has the request's fields as the lookup saw them: the middleware inside of the cache, or the handler, may change them.
	sent *filo.Header
}

func (m *cache) begin(c *filo.Ctx, key string) *fetching {
	f := &fetching{key: key, generation: m.generations.begin(key), marked: true, sent: new(filo.Header)}
	for name, value := range c.Request.Header.All() {
		f.sent.AddBytes(string(name), value)
	}
	if m.Store != nil {
		var err error
		f.mark, err = m.Store.Get(c, markKey(key))
		f.marked = err == nil
	}
	return f
}

// current reports whether no server with the same Store has removed the target's answers since the request began.
func (m *cache) current(c *filo.Ctx, f *fetching) bool {
	if !f.marked || !m.generations.within(f.generation, func() {}) {
		return false
	}
	if m.Store == nil {
		return true
	}
	mark, err := m.Store.Get(c, markKey(f.key))
	return err == nil && bytes.Equal(mark, f.mark)
}

// markTime is how long a Store keeps the mark that records a removal of a target's answers: no request should take longer.
const markTime = 5 * time.Minute

// markKey returns the key of this mark, given the target's key. No other key begins with the byte 1.
func markKey(key string) string { return "\x01" + key }

// remove removes the answers to a target, including answers that handlers are still making. If the Store fails, the error is only logged,
// since the handler has done its work.
func (m *cache) remove(c *filo.Ctx, key string) {
	m.generations.next(key, func() {
		m.entries.Remove([]byte(key))
		m.entries.Remove(appendQueries([]byte(key)))
	})
	m.flights.EndOf(key, key+" ")
	if m.Store != nil {
		storelog.Failure(c, "cache: removing a response failed", m.Store.Put(c, markKey(key), []byte(rand.Text()), time.Now().Add(markTime)))
		m.removeShared(c, key)
	}
}
