package idempotency

import (
	"container/list"
	"sync"
	"time"

	"github.com/filohttp/filo"
)

// Store keeps the answers to requests by key, until they expire. Many goroutines call its methods at once. A method that waits
// for something must use the request's Context.
type Store interface {
	// Claim stores record under the key if the key is free. It returns the record that is then stored, and reports whether that is the
	// given record.
	Claim(c *filo.Ctx, key string, record Record) (Record, bool, error)
	// Complete puts record in place of the record that Claim has stored. If the claimed record has expired and the key holds another
	// request's record, Complete changes nothing and returns false. The records of different requests have different values in the field
	// Claim.
	Complete(c *filo.Ctx, key string, record Record) (bool, error)
	// Release removes the key's record if its field Claim equals claim.
	Release(c *filo.Ctx, key, claim string) error
}

// Record is the stored state of a key.
type Record struct {
	// Fingerprint is the hash of the request.
	Fingerprint [32]byte
	// Scope is the hash of the result of Options.Scope, for a store with a quota for each scope. A store needn't keep it.
	Scope [32]byte
	// Claim is a random value, different for each request that claims the key.
	Claim string
	// Response is the answer, in a private format of this package, or nil while the request runs. An empty, non-nil Response says
	// that the request was done, but that its answer isn't available. A store that needs room may empty a Response this way, but must not
	// remove a record before it expires: the request would be executed twice.
	Response []byte
	// Expires is when the record expires.
	Expires time.Time
}

// recordCost is about how much memory a record takes without its key and its answer.
const recordCost = 512

// memory is the store in memory. No record is dropped before it expires. The record of a running request is never dropped, since the request
// always settles its key. To make room, answers are removed; when none are left, further keys are refused. Each scope has a limit, so that one
// client can neither displace other clients' answers nor cause their keys to be refused.
type memory struct {
	maxBytes, maxScopeBytes int

	mu      sync.Mutex
	records map[string]*keptRecord // guarded by mu, as all below
	scopes  map[[32]byte]*keptRecords
	all     keptRecords
	done    list.List // *keptRecord elements, only complete ones: the one that expires first is in front
}

// keptRecords counts the memory of the records of one scope, or of all scopes.
type keptRecords struct {
	used     int // the memory of the records and their answers
	answered int // the memory of the answers alone
	// answers lists the records that have an answer, as elements of type *keptRecord, the oldest first.
	answers list.List
}

type keptRecord struct {
	Record
	key     string
	cost    int // the memory of the record without its answer
	scope   *keptRecords
	done    *list.Element    // nil while the request runs
	answers [2]*list.Element // the record's elements in the lists of answers of its scope and of the whole store; nil without an answer
}

func newMemory(maxBytes, maxScopeBytes int) *memory {
	return &memory{
		maxBytes: maxBytes, maxScopeBytes: maxScopeBytes,
		records: make(map[string]*keptRecord), scopes: make(map[[32]byte]*keptRecords),
	}
}

func (m *memory) Claim(_ *filo.Ctx, key string, record Record) (Record, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(time.Now())
	if r, ok := m.records[key]; ok {
		return r.Record, false, nil
	}
	scope := m.scopes[record.Scope]
	if scope == nil {
		scope = new(keptRecords)
	}
	r := &keptRecord{Record: record, key: key, cost: recordCost + len(key), scope: scope}
	if err := m.makeRoom(scope, r.cost); err != nil {
		return Record{}, false, err
	}
	m.scopes[record.Scope] = scope
	m.records[key] = r
	scope.used += r.cost
	m.all.used += r.cost
	return record, true, nil
}

func (m *memory) Complete(_ *filo.Ctx, key string, record Record) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[key]
	if r == nil || r.Claim != record.Claim || r.done != nil {
		return false, nil
	}
	r.Record = record
	r.done = m.done.PushBack(r)
	if len(record.Response) == 0 {
		return true, nil
	}
	r.Response = []byte{}
	if m.makeRoom(r.scope, len(record.Response)) == nil {
		r.Response = record.Response
		for i, kept := range [...]*keptRecords{r.scope, &m.all} {
			kept.used += len(r.Response)
			kept.answered += len(r.Response)
			r.answers[i] = kept.answers.PushBack(r)
		}
	}
	return true, nil
}

func (m *memory) Release(_ *filo.Ctx, key, claim string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.records[key]; r != nil && r.Claim == claim && r.done == nil {
		m.remove(r)
	}
	return nil
}

// makeRoom removes answers until the scope and the store have room for this number of bytes. It removes the scope's own answers first, and
// then the oldest answers of all scopes. mu is held, as for all functions below.
func (m *memory) makeRoom(scope *keptRecords, bytes int) error {
	if scope.used-scope.answered+bytes > m.maxScopeBytes {
		return errScopeFull
	}
	if m.all.used-m.all.answered+bytes > m.maxBytes {
		return errKeysFull
	}
	for scope.used+bytes > m.maxScopeBytes {
		m.dropAnswer(scope.answers.Front().Value.(*keptRecord))
	}
	for m.all.used+bytes > m.maxBytes {
		m.dropAnswer(m.all.answers.Front().Value.(*keptRecord))
	}
	return nil
}

func (m *memory) dropAnswer(r *keptRecord) {
	for i, kept := range [...]*keptRecords{r.scope, &m.all} {
		kept.used -= len(r.Response)
		kept.answered -= len(r.Response)
		kept.answers.Remove(r.answers[i])
		r.answers[i] = nil
	}
	r.Response = []byte{}
}

func (m *memory) expire(now time.Time) {
	for first := m.done.Front(); first != nil; first = m.done.Front() {
		r := first.Value.(*keptRecord)
		if now.Before(r.Expires) {
			return
		}
		m.remove(r)
	}
}

func (m *memory) remove(r *keptRecord) {
	if r.answers[0] != nil {
		m.dropAnswer(r)
	}
	if r.done != nil {
		m.done.Remove(r.done)
	}
	delete(m.records, r.key)
	m.all.used -= r.cost
	if r.scope.used -= r.cost; r.scope.used == 0 {
		delete(m.scopes, r.Scope)
	}
}
