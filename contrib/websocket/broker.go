package websocket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"

	"github.com/filohttp/filo/sse"
)

// HubOptions configures NewHub.
type HubOptions struct {
	// Broker connects the hub with the hubs of other processes: a message that one hub broadcasts reaches the members of all hubs.
	// Required.
	Broker sse.Broker
	// Stamp inserts a message's ID into the message, in the application's format, such as a member of a JSON object. The message is borrowed.
	// A page stores the ID of the last message that it has received, and sends this ID when it reconnects: see Hub.Resume. If Stamp is nil,
	// messages have no IDs. A text must remain UTF-8, or the message is sent without its ID, as it is when Stamp panics.
	Stamp func(kind MessageType, id string, message []byte) []byte
	// Gap is the text message that members get when they may have missed messages, so that they fetch their state anew. If Gap is nil, they
	// get no such message.
	Gap []byte
	// HistoryMessages and HistoryBytes limit the history that is kept for Resume, for all topics together. They are 10,000 and 16 MB if 0.
	HistoryMessages, HistoryBytes int
}

// brokered is the additional state of a hub with a broker. Hub.mu guards it, except immutable fields.
type brokered struct {
	options  HubOptions         // immutable
	gap      *PreparedMessage   // immutable; nil if there is none
	unfollow context.CancelFunc // immutable

	live    bool   // the broker has delivered the stored messages
	last    uint64 // the number of the last message
	lost    uint64 // all messages after the one with this number are in history
	history []past // the oldest first
	bytes   int    // the size of history
}

// past is a message that was broadcast.
type past struct {
	number  uint64
	topic   string
	message *PreparedMessage
}

// NewHub returns a hub that works across several processes. The hub follows its Broker until Stop is called. NewHub panics without a Broker,
// and if an option is wrong.
func NewHub(options HubOptions) *Hub {
	switch {
	case options.Broker == nil:
		panic("websocket: NewHub needs a Broker; a hub without one is new(Hub)")
	case options.HistoryMessages < 0 || options.HistoryBytes < 0:
		panic("websocket: HubOptions.HistoryMessages and HistoryBytes must not be negative")
	}
	options.HistoryMessages = cmp.Or(options.HistoryMessages, 10_000)
	options.HistoryBytes = cmp.Or(options.HistoryBytes, 16<<20)
	b := &brokered{options: options}
	if options.Gap != nil {
		var err error
		if b.gap, err = NewPreparedMessage(Text, options.Gap); err != nil {
			panic(fmt.Sprintf("websocket: HubOptions.Gap: %v", err))
		}
	}
	h := &Hub{brokered: b}
	ctx, cancel := context.WithCancel(context.Background())
	b.unfollow = cancel
	go options.Broker.Follow(ctx, h.receive)
	return h
}

// Stop disconnects the hub from the Broker. After that, members get no messages. Call it when the server has shut down.
func (h *Hub) Stop() {
	if h.brokered != nil {
		h.brokered.unfollow()
	}
}

var errNotLive = errors.New("websocket: the hub's broker hasn't delivered its history yet")

// Ready returns an error until the hub's Broker has delivered its stored messages. Pass it to health.Health.Add as a check. A hub without a
// Broker is always ready.
func (h *Hub) Ready(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.brokered != nil && !h.brokered.live {
		return errNotLive
	}
	return nil
}

// Resume makes the connection a member of the topic, as Join does. First it sends the topic's messages after the one with lastID, which the
// client may have received from the hub of another process. If the hub no longer has some of these messages, or if they exceed the
// connection's MaxQueuedBytes, Resume sends HubOptions.Gap instead. For a client that connects for the first time, lastID is empty, and
// Resume does the same as Join. Resume panics if the hub has no Broker.
func (h *Hub) Resume(name string, c *Conn, lastID string) error {
	if h.brokered == nil {
		panic("websocket: Resume is a method of hubs with a Broker")
	}
	if lastID == "" {
		return h.Join(name, c)
	}
	if c.parked == nil {
		return errAccepted
	}
	t, member := h.enter(name, c, nobody) // keeps the topic from being removed, and a second topic with its name from being created
	if member {
		return errMember
	}
	t.sending.Lock()
	defer t.sending.Unlock()
	missed, after := h.missed(name, lastID, c.options.MaxQueuedBytes)
	for _, m := range missed {
		if err := c.Send(m); err != nil {
			t.remove(c)
			return err
		}
	}
	t.mu.Lock()
	t.members[c] = after
	t.mu.Unlock()
	if !c.joined(t) {
		t.remove(c)
		return c.closedError()
	}
	return nil
}

var errMember = errors.New("websocket: the connection is a member of the topic already")

// nobody is the number that enter records for a member that must not get any message yet: it is higher than all messages' numbers.
const nobody = ^uint64(0)

// missed returns the messages to send to a client whose last message had lastID. If this hub hasn't received that message yet, because the
// client comes from a hub that is ahead, missed returns the message's number instead.
func (h *Hub) missed(name, lastID string, limit int) (missed []*PreparedMessage, after uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.brokered
	number, err := strconv.ParseUint(lastID, 10, 64)
	if err != nil || !b.live || number < b.lost || number == nobody {
		return b.gaps(), 0
	}
	if number > b.last {
		return nil, number
	}
	first := sort.Search(len(b.history), func(i int) bool { return b.history[i].number > number })
	size := 0
	for _, p := range b.history[first:] {
		if p.topic == name {
			missed = append(missed, p.message)
			size += len(p.message.payload) + maxServerHeader
		}
	}
	if size > limit/2 {
		return b.gaps(), 0
	}
	return missed, 0
}

// gaps returns the message that tells a client that messages may be missing.
func (b *brokered) gaps() []*PreparedMessage {
	if b.gap == nil {
		return nil
	}
	return []*PreparedMessage{b.gap}
}

// publish sends a message to the hubs of all processes. This process's hub sends the message to its own members only when the broker delivers it.
func (b *brokered) publish(name string, kind MessageType, message []byte) error {
	if err := checkMessage(kind, message); err != nil {
		return err
	}
	_, err := b.options.Broker.Publish(context.Background(), name, append([]byte{byte(kind)}, message...))
	if err != nil {
		return fmt.Errorf("websocket: broadcasting a message: %w", err)
	}
	return nil
}

// receive sends a message from the broker to the members of its topic.
func (h *Hub) receive(d sse.Delivery) {
	b := h.brokered
	switch {
	case d.Gap || d.Live:
		h.mu.Lock()
		if d.Live {
			b.live = true
		} else {
			b.last = max(b.last, d.Number)
			b.lost, b.history, b.bytes = b.last, nil, 0
		}
		h.mu.Unlock()
		h.sendGap()
		return
	case len(d.Message) == 0:
		return
	}
	m := b.prepare(d)
	if m == nil {
		return
	}
	h.messages.Add(1)
	for {
		h.mu.Lock()
		t := h.topics[d.Topic]
		if t == nil {
			b.remember(d, m)
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		// Resume locks t.sending, too. So a resuming connection gets the message exactly once: among the missed messages, or from here as a member.
		t.sending.Lock()
		h.mu.Lock()
		current := h.topics[d.Topic] == t
		if current {
			b.remember(d, m)
		}
		live := b.live
		h.mu.Unlock()
		if current && live {
			t.sendLocked(m, d.Number)
		}
		t.sending.Unlock()
		if current {
			return
		}
	}
}

// prepare returns a message in the form that members get, or nil if the message is invalid.
func (b *brokered) prepare(d sse.Delivery) *PreparedMessage {
	kind, message := MessageType(d.Message[0]), d.Message[1:]
	if b.options.Stamp != nil {
		if m := b.stamp(kind, d.Number, message); m != nil {
			return m
		}
	}
	m, err := NewPreparedMessage(kind, message)
	if err != nil {
		return nil
	}
	return m
}

// stamp returns a message with its ID, or nil if Stamp has panicked or its result is invalid.
func (b *brokered) stamp(kind MessageType, number uint64, message []byte) *PreparedMessage {
	defer recoverPanic("Stamp", nil)
	m, err := NewPreparedMessage(kind, b.options.Stamp(kind, strconv.FormatUint(number, 10), message))
	if err != nil {
		return nil
	}
	return m
}

// remember adds a message to the history, and drops the oldest messages beyond the limits. Hub.mu is held.
func (b *brokered) remember(d sse.Delivery, m *PreparedMessage) {
	b.last = d.Number
	b.history = append(b.history, past{d.Number, d.Topic, m})
	b.bytes += len(m.payload)
	for len(b.history) > b.options.HistoryMessages || b.bytes > b.options.HistoryBytes {
		b.lost = b.history[0].number
		b.bytes -= len(b.history[0].message.payload)
		b.history[0] = past{}
		b.history = b.history[1:]
	}
}

// sendGap tells the members of all topics that messages may be missing.
func (h *Hub) sendGap() {
	h.mu.Lock()
	topics := make([]*topic, 0, len(h.topics))
	for _, t := range h.topics {
		topics = append(topics, t)
	}
	gap := h.brokered.gap
	h.mu.Unlock()
	for _, t := range topics {
		t.sending.Lock()
		t.mu.Lock()
		for c, after := range t.members {
			if after != nobody {
				t.members[c] = 0
			}
		}
		t.mu.Unlock()
		if gap != nil {
			t.sendLocked(gap, nobody-1)
		}
		t.sending.Unlock()
	}
}
