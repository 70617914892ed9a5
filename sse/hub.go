package sse

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"github.com/valyala/bytebufferpool"
)

var (
	// ErrHubClosed is the error of Publish after Close.
	ErrHubClosed = errors.New("sse: hub closed")
	// ErrEventTooLarge is wrapped by the error for an event over HubOptions.MaxEventBytes.
	ErrEventTooLarge = errors.New("sse: event over its limit")

	errZeroHub = errors.New("sse: a Hub is made by NewHub; this one is a zero value")
)

// maxBacklog is how many events may wait for one shard. Beyond that, Publish waits: not for clients, but until the shard's goroutine has
// caught up.
const maxBacklog = 256

// Hub sends the events of topics to all their subscribers: see Publish and Serve. Several goroutines may call its methods at
// once. Make one with NewHub.
//
// An event is rendered only once. Subscribers are spread over shards. Each shard queues events for its subscribers in the order
// of their IDs, on a goroutine that runs only while there is work. So no client waits for another, and Publish waits for no
// client: bytes that a client doesn't accept at once wait in its connection, up to HubOptions.MaxQueueBytes.
//
// Heartbeats are queued in the same way, for all subscribers at once. A timer for each subscriber would wake a worker for every
// heartbeat, and an event couldn't postpone the timer.
type Hub struct {
	options HubOptions
	epoch   string // the prefix of all IDs; immutable
	shards  []*shard
	waiting atomic.Int32 // callers that wait in Publish
	// unfollow ends Broker.Follow; nil without a broker. Immutable.
	unfollow context.CancelFunc

	mu          sync.Mutex // locked before a shard's mu
	room        sync.Cond  // uses mu; signaled when a shard has caught up, or the hub is closed
	closed      bool       // guarded by mu, as are all the following
	live        bool       // the broker has delivered its stored messages
	topics      map[string]*topic
	kept        list.List // has an element for each *topic with a history; the topic with the latest event is at the end
	keptBytes   int
	forgotten   uint64 // the number of an event: a topic without an entry in topics has had no later event
	last        uint64 // the number of the last event
	subscribers int
	next        int // the index of the shard for the next subscriber
	published   uint64
	dropped     uint64
	timer       *time.Timer
	ticking     bool
}

// HubStats holds the counters of a Hub.
type HubStats struct {
	// Subscribers is the number of subscribers. Topics is the number of topics with subscribers or a history.
	Subscribers, Topics int
	// HistoryBytes is the size of all histories.
	HistoryBytes int
	// Events is the number of events published since the start. Dropped is the number of subscribers disconnected because more
	// than MaxQueueBytes waited for them.
	Events, Dropped uint64
}

// NewHub returns a hub. It panics if the options are wrong. A hub that is no longer used needn't be closed, since it holds no goroutine.
// The exception is a hub with a Broker, which it follows until Close.
func NewHub(options ...HubOptions) *Hub {
	o := setup.One("sse: NewHub", options)
	o.check()
	h := &Hub{options: o, topics: make(map[string]*topic)}
	h.room.L = &h.mu
	// With this number of shards, half of the processors are left to serve requests while an event is sent to very many
	// subscribers.
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		h.shards = append(h.shards, newShard(h))
	}
	if o.Broker != nil {
		h.follow(o.Broker)
	} else {
		h.epoch = newEpoch()
	}
	return h
}

// Publish sends an event to the subscribers of a topic. The event must not have an ID: the hub assigns one, which only the hub can
// interpret, and Publish returns it. Events that one goroutine publishes to a topic arrive in the order of the calls. Each subscriber gets
// the events of all its topics in the order of their IDs.
//
// Publish doesn't wait for clients: when it returns, the event may still be on its way. The error wraps ErrInvalidEvent or
// ErrEventTooLarge, or is ErrHubClosed. With a Broker, Publish waits for Broker.Publish, and may return its error; in that case the event
// may or may not have been published.
func (h *Hub) Publish(topic string, e Event) (id string, err error) {
	if len(h.shards) == 0 {
		return "", errZeroHub
	}
	if len(e.Data) > h.options.MaxEventBytes {
		return "", fmt.Errorf("%w: %d bytes of data, %d are allowed", ErrEventTooLarge, len(e.Data), h.options.MaxEventBytes)
	}
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	if buffer.B, err = e.appendForHub(buffer.B); err != nil {
		return "", err
	}
	if size := len(buffer.B); size > h.options.MaxEventBytes {
		return "", fmt.Errorf("%w: %d bytes, %d are allowed", ErrEventTooLarge, size, h.options.MaxEventBytes)
	}
	if h.options.Broker != nil {
		return h.publishThrough(h.options.Broker, topic, buffer.B)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.publishableLocked(topic)
	if err != nil {
		return "", err
	}
	h.last++
	buffer.B = h.spreadLocked(t, buffer.B)
	h.tickLocked()
	return h.id(h.last), nil
}

// publishThrough sends a rendered event to the hubs of all processes. This process's hub sends the event to its subscribers when the broker
// delivers it.
func (h *Hub) publishThrough(b Broker, topic string, event []byte) (id string, err error) {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return "", ErrHubClosed
	}
	number, err := b.Publish(context.Background(), topic, event)
	if err != nil {
		return "", fmt.Errorf("sse: publishing an event: %w", err)
	}
	return h.id(number), nil
}

// spreadLocked adds the ID to the hub's last event, stores the event in the topic's history, and sends it to the topic's subscribers. It
// returns the extended event. If t is nil, the topic has no subscribers, and its events needn't be stored.
func (h *Hub) spreadLocked(t *topic, event []byte) []byte {
	h.published++
	if t == nil {
		h.forgotten = h.last
		return event
	}
	event = append(appendField(event, "id", h.id(h.last)), '\n')
	message := filo.NewPreparedMessage(event)
	h.rememberLocked(t, message)
	for _, r := range t.rosters {
		r.shard.post(task{do: (*shard).deliver, roster: r, message: message, number: h.last})
	}
	return event
}

// publishableLocked returns the topic as soon as there is room for one more event. It returns nil if the topic has no subscribers and the
// event needn't be kept.
func (h *Hub) publishableLocked(name string) (*topic, error) {
	for {
		if h.closed {
			return nil, ErrHubClosed
		}
		t := h.topics[name]
		if t == nil && h.options.HistoryEvents > 0 && len(h.topics) < h.options.MaxTopics {
			t = h.addTopicLocked(name)
		}
		if t == nil || !h.crowdedLocked(t) {
			return t, nil
		}
	}
}

// crowdedLocked reports whether too many events were waiting for a shard that has subscribers of the topic. In that case, it returns only
// when there may be room again.
func (h *Hub) crowdedLocked(t *topic) bool {
	h.waiting.Add(1) // before the backlogs are read, so that shard.run doesn't miss this caller
	defer h.waiting.Add(-1)
	for _, r := range t.rosters {
		if r.shard.backlog.Load() >= maxBacklog {
			h.room.Wait()
			return true
		}
	}
	return false
}

// caughtUp wakes the callers that wait in Publish.
func (h *Hub) caughtUp() {
	if h.waiting.Load() > 0 {
		h.mu.Lock()
		h.room.Broadcast()
		h.mu.Unlock()
	}
}

// LastEventID returns the ID of the last event of all topics. If a client loads its state after this call, and subscribes with
// this ID as its Last-Event-ID, it misses no later event.
func (h *Hub) LastEventID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id(h.last)
}

// Stats returns the hub's counters.
func (h *Hub) Stats() HubStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return HubStats{
		Subscribers: h.subscribers, Topics: len(h.topics), HistoryBytes: h.keptBytes, Events: h.published, Dropped: h.dropped,
	}
}

// Close ends the streams of all subscribers after their queued events have been sent, and forgets all events. Afterwards Serve
// fails with 503, and Publish with ErrHubClosed. The server's Shutdown doesn't need Close: it disconnects subscribers itself. Hub
// and server may be shut down in any order.
func (h *Hub) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	if h.unfollow != nil {
		h.unfollow()
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	h.topics, h.keptBytes = nil, 0
	h.kept.Init()
	for _, s := range h.shards {
		s.post(task{do: (*shard).close})
	}
	h.room.Broadcast()
	return nil
}

// tickLocked starts the timer, if heartbeats or histories need it.
func (h *Hub) tickLocked() {
	if h.ticking || h.closed || h.subscribers == 0 && h.kept.Len() == 0 {
		return
	}
	h.ticking = true
	if h.timer == nil {
		h.timer = time.AfterFunc(h.options.tick(), h.tick)
	} else {
		h.timer.Reset(h.options.tick())
	}
}

// tick sends heartbeats, and forgets histories that are too old.
func (h *Hub) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ticking = false
	if h.closed {
		return
	}
	h.expireLocked(time.Now().Add(-h.options.HistoryTime))
	if h.options.Heartbeat > 0 && h.subscribers > 0 {
		for _, s := range h.shards {
			s.post(task{do: (*shard).beat, message: heartbeatMessage, number: h.last})
		}
	}
	h.tickLocked()
}

var heartbeatMessage = filo.NewPreparedMessage([]byte(heartbeat))
