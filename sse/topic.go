package sse

import (
	"container/list"
	"sort"
	"time"

	"github.com/filohttp/filo"
)

// topic exists while it has subscribers or a history. It is guarded by Hub.mu.
type topic struct {
	name        string
	subscribers int
	rosters     []*roster // one for each shard that has subscribers of the topic
	history     []past    // the oldest first
	bytes       int       // the size of history
	lost        uint64    // the number of an event: all later events of the topic are in history
	lastEvent   time.Time
	place       *list.Element // in Hub.kept; nil without a history
}

// past is an event that was published.
type past struct {
	number  uint64
	message *filo.PreparedMessage
}

func (h *Hub) addTopicLocked(name string) *topic {
	t := &topic{name: name, lost: h.forgotten}
	h.topics[name] = t
	return t
}

// rememberLocked adds the hub's last event to the topic's history. It then drops the oldest events of histories that exceed their
// limits, perhaps even the new event.
func (h *Hub) rememberLocked(t *topic, message *filo.PreparedMessage) {
	t.history = append(t.history, past{h.last, message})
	t.bytes += message.Len()
	h.keptBytes += message.Len()
	t.lastEvent = time.Now()
	if t.place == nil {
		t.place = h.kept.PushBack(t)
	} else {
		h.kept.MoveToBack(t.place)
	}
	for len(t.history) > h.options.HistoryEvents || t.bytes > h.options.HistoryBytes {
		h.forgetLocked(t)
	}
	for h.keptBytes > h.options.MaxHistoryBytes {
		h.forgetLocked(h.kept.Front().Value.(*topic))
	}
}

// forgetLocked drops the oldest event of the topic's history. The history must not be empty.
func (h *Hub) forgetLocked(t *topic) {
	oldest := &t.history[0]
	size := oldest.message.Len()
	t.bytes -= size
	h.keptBytes -= size
	t.lost = oldest.number
	*oldest = past{}
	if t.history = t.history[1:]; len(t.history) > 0 {
		return
	}
	t.history = nil
	h.kept.Remove(t.place)
	t.place = nil
	h.vanishLocked(t)
}

// vanishLocked removes the topic if it has neither subscribers nor a history.
func (h *Hub) vanishLocked(t *topic) {
	if t.subscribers == 0 && len(t.history) == 0 && h.topics[t.name] == t {
		delete(h.topics, t.name)
		h.forgotten = max(h.forgotten, t.lost)
	}
}

// expireLocked forgets the histories of topics that have had no event since the given time.
func (h *Hub) expireLocked(since time.Time) {
	for h.kept.Len() > 0 {
		t := h.kept.Front().Value.(*topic)
		if t.lastEvent.After(since) {
			return
		}
		for len(t.history) > 0 {
			h.forgetLocked(t)
		}
	}
}

// missedLocked returns the events of the subscriber's topics after the given one, topic by topic: the shard puts them in order without
// holding the hub's lock. It reports false if the histories no longer hold one of these events, or if the given event hasn't been published
// yet.
func (h *Hub) missedLocked(s *subscriber, number uint64) (missed []past, known bool) {
	if number > h.last {
		return nil, false
	}
	for _, seat := range s.seats {
		if seat.topic.lost > number {
			return nil, false
		}
		history := seat.topic.history
		first := sort.Search(len(history), func(i int) bool { return history[i].number > number })
		missed = append(missed, history[first:]...)
	}
	return missed, true
}
