package cache

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/replay"
	"github.com/filohttp/filo/internal/storelog"
)

// Store keeps answers, and can be shared by several servers. It may forget any answer. Many goroutines call its methods at once. A method that
// waits for something must use the request's Context.
type Store interface {
	// Get returns the value stored under the key, or nil if there is none or it has expired. The cache never modifies the value. If the error
	// wraps ErrUnknown, the request is passed to its handler.
	Get(c *filo.Ctx, key string) ([]byte, error)
	// Put stores a value, which is borrowed, until it expires.
	Put(c *filo.Ctx, key string, value []byte, expires time.Time) error
	// Remove removes the value stored under the key, if there is one.
	Remove(c *filo.Ctx, key string) error
}

// ErrUnknown is wrapped by errors of Store.Get that mustn't fail the request, because the store doesn't know whether there is a value. A nil value
// instead would say that nobody has removed the target's answers.
var ErrUnknown = errors.New("cache: the store doesn't know whether there is a value")

// The kinds of entries in a Store, and the flags of a response. A value has these parts: the kind; the number or the flags; the times at
// which the entry was stored, expires and is dropped, in nanoseconds since 1970; its age; the two durations for which it may answer when it
// is stale; and the response or the names. Each time, age and duration has 8 bytes. Earlier formats, without some of the times, had the kinds
// 1 and 2.
const (
	storedResponse = 3
	storedRule     = 4

	flagShared  = 1
	flagCookies = 2

	storedTimes = 6 * 8
)

// appendTo appends the entry in the form that a Store keeps.
func (e *entry) appendTo(dst []byte) []byte {
	if e.vary != nil {
		dst = binary.AppendUvarint(append(dst, storedRule), e.vary.number)
	} else {
		flags := uint64(0)
		if e.shared {
			flags |= flagShared
		}
		if e.cookies {
			flags |= flagCookies
		}
		dst = binary.AppendUvarint(append(dst, storedResponse), flags)
	}
	for _, n := range [...]int64{
		e.stored.UnixNano(), e.expires.UnixNano(), e.until.UnixNano(), int64(e.age), int64(e.whileRevalidated), int64(e.ifError),
	} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	if e.vary != nil {
		return append(dst, strings.Join(e.vary.names, ",")...)
	}
	return e.response.AppendTo(dst)
}

// parseEntry reads what appendTo has written. It reports false for anything else, and for an entry whose storage time has ended.
func parseEntry(value []byte, now time.Time) (e entry, ok bool) {
	if len(value) == 0 {
		return e, false
	}
	number, size := binary.Uvarint(value[1:])
	if size <= 0 || len(value) < 1+size+storedTimes {
		return e, false
	}
	kind, rest := value[0], value[1+size:]
	var times [6]int64
	for i := range times {
		times[i] = int64(binary.BigEndian.Uint64(rest[8*i:]))
	}
	e.stored, e.expires, e.until = time.Unix(0, times[0]), time.Unix(0, times[1]), time.Unix(0, times[2])
	e.age, e.whileRevalidated, e.ifError = time.Duration(times[3]), time.Duration(times[4]), time.Duration(times[5])
	rest = rest[storedTimes:]
	switch kind {
	case storedResponse:
		var err error
		e.shared, e.cookies = number&flagShared != 0, number&flagCookies != 0
		e.response, err = replay.Parse(rest)
		ok = err == nil
	case storedRule:
		e.vary = &varyRule{number: number, names: strings.Split(string(rest), ",")}
		ok = true
	}
	return e, ok && now.Before(e.until)
}

// get returns the entry of a key. With a Store, m.entries contains only the notes about responses that aren't stored.
func (m *cache) get(c *filo.Ctx, key []byte, now time.Time) (entry, bool, error) {
	e, ok := m.entries.Get(key, now)
	if ok || m.Store == nil {
		return e, ok, nil
	}
	value, err := m.Store.Get(c, string(key))
	if errors.Is(err, ErrUnknown) {
		return entry{}, false, nil
	}
	if err != nil {
		return entry{}, false, err
	}
	e, ok = parseEntry(value, now)
	return e, ok, nil
}

// keepShared stores the response in the Store. It removes the response again if another server has removed the target's answers at the same
// time.
func (m *cache) keepShared(c *filo.Ctx, f *fetching, q *query, names []string, e entry) bool {
	if !m.current(c, f) {
		return false
	}
	key, ok := m.ruled(c, f, q, names, &e)
	if ok {
		m.entries.Remove(key) // removes the note that an earlier answer wasn't kept
		ok = m.share(c, string(key), e)
	}
	if !m.current(c, f) { // ruled may have stored the rule again, even if a later step has failed
		m.removeShared(c, f.key)
		return false
	}
	return ok
}

// removeShared removes the answers to a target from the Store: the answer to GET, and the rules by which other answers are found.
func (m *cache) removeShared(c *filo.Ctx, key string) {
	storelog.Failure(c, "cache: removing a response failed", m.Store.Remove(c, key))
	storelog.Failure(c, "cache: removing a response failed", m.Store.Remove(c, string(appendQueries([]byte(key)))))
}

// share puts an entry into the Store, and reports whether the entry is there.
func (m *cache) share(c *filo.Ctx, key string, e entry) bool {
	err := m.Store.Put(c, key, e.appendTo(nil), e.until)
	storelog.Failure(c, "cache: storing a response failed", err)
	return err == nil
}

// sharedRule does what rule does, for a cache with a Store. The number of a new rule is random, so that no two servers choose the same.
func (m *cache) sharedRule(c *filo.Ctx, key string, names []string, now, until time.Time) (*varyRule, bool) {
	value, err := m.Store.Get(c, key)
	if err != nil {
		return nil, false
	}
	old, ok := parseEntry(value, now)
	rule := old.vary
	if !ok || rule == nil || !slices.Equal(rule.names, names) {
		rule = &varyRule{number: rand.Uint64(), names: names}
	} else if old.until.After(until) {
		return rule, true
	}
	return rule, m.share(c, key, entry{vary: rule, stored: now, expires: until, until: until})
}
