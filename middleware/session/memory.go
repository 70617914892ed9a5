package session

import (
	"cmp"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/lru"
)

// Memory is a Store in memory; its zero value is ready to use. When it is full, it removes the least recently used sessions: first sessions
// that only their first request has used, then sessions that were used again, and last those that were renewed, as at a login. So thousands
// of visitors don't end the sessions of logged-in users. The sessions are lost when the process ends. A Memory must not be copied.
type Memory struct {
	// MaxBytes is the memory for all sessions together, 64 MB if 0. Don't change it once the Memory is in use.
	MaxBytes int

	once    sync.Once // sets the capacity of records
	records lru.Map[Record]
}

// recordCost is about how much memory a record takes without its id and its data.
const recordCost = 256

// Load returns the record stored under the id.
func (m *Memory) Load(_ *filo.Ctx, id string) (Record, error) {
	record, _ := m.records.Get([]byte(id), time.Now())
	return record, nil
}

// Save stores the record if the stored record of the id has the same version.
func (m *Memory) Save(_ *filo.Ctx, id string, record Record) (saved bool, err error) {
	m.once.Do(func() { m.records.Capacity = cmp.Or(m.MaxBytes, 64<<20) })
	rank := lru.Unused
	if record.Renewed {
		rank = lru.Kept
	}
	m.records.Update(id, rank, time.Now(), func(old Record, _ bool) (Record, int, time.Time, bool) {
		saved = old.Version == record.Version
		record.Version++
		return record, recordCost + len(id) + len(record.Data), record.Expires, saved
	})
	return saved, nil
}

// Delete removes the record stored under the id.
func (m *Memory) Delete(_ *filo.Ctx, id string) error {
	m.records.Remove([]byte(id))
	return nil
}
