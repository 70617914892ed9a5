package sse

import (
	"context"
	"errors"
	"fmt"

	"github.com/filohttp/filo"
)

// Broker connects hubs in several processes: an event that one hub publishes reaches the subscribers of all hubs. Package
// github.com/filohttp/filo/contrib/redis has one, and docs/RECIPES.md another. The hubs of contrib/websocket use the same interface.
//
// A Broker numbers the messages of all topics together, and each hub gets them in the order of their numbers. The IDs of a hub's
// events are those numbers, so a client resumes at any instance.
type Broker interface {
	// Publish sends a message to the hubs of all processes, including this one, and returns its number. Numbers begin at 1 and always rise,
	// even if the broker itself has lost its data. The message is borrowed. Publish must return within a bounded time. After an error, the
	// message may or may not have been sent.
	Publish(ctx context.Context, topic string, message []byte) (number uint64, err error)
	// Follow calls receive for each Delivery, one after the other, until the context ends. It connects and reconnects by itself. The first
	// Delivery is a Gap. Then come the messages that the broker has kept from before, and then a Delivery with Live set.
	Follow(ctx context.Context, receive func(Delivery))
}

// Delivery is a message from a Broker, or says that messages are missing, or that all older ones were delivered.
type Delivery struct {
	// Number is the message's number. It is greater than the numbers of all messages before.
	Number uint64
	// Gap says that this isn't a message: messages with numbers up to Number that weren't delivered may be missing. No message with a
	// higher number is missing.
	Gap bool
	// Live says that this isn't a message: all messages from before Follow have been delivered. There is exactly one such Delivery.
	Live bool
	// Topic is the topic of the message.
	Topic string
	// Message is the message, which the hub owns from then on.
	Message []byte
}

// follow sends the broker's events to the subscribers until the hub is closed.
func (h *Hub) follow(b Broker) {
	ctx, cancel := context.WithCancel(context.Background())
	h.unfollow = cancel
	go b.Follow(ctx, h.receive)
}

var errNotLive = errors.New("sse: the hub's broker hasn't delivered its history yet")

// Ready returns an error until the hub can serve clients. Without a Broker the hub can serve at once, with a Broker when that has delivered
// the messages that it has kept. It is a check for health.Health.Add.
func (h *Hub) Ready(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.options.Broker != nil && !h.live {
		return errNotLive
	}
	return nil
}

// receive sends an event from the broker to the subscribers.
func (h *Hub) receive(d Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case d.Gap:
		h.gapLocked(d.Number)
		return
	case d.Live:
		h.live = true
		return
	}
	t, err := h.publishableLocked(d.Topic)
	if err != nil || d.Number <= h.last {
		return
	}
	h.last = d.Number
	h.spreadLocked(t, d.Message)
	h.tickLocked()
}

// gapLocked forgets all histories, and tells all subscribers that they may have missed events.
func (h *Hub) gapLocked(number uint64) {
	if h.closed {
		return
	}
	h.last = max(h.last, number)
	for h.kept.Len() > 0 {
		t := h.kept.Front().Value.(*topic)
		for len(t.history) > 0 {
			h.forgetLocked(t)
		}
	}
	h.forgotten = h.last
	for _, t := range h.topics {
		t.lost = h.last
	}
	message := h.gap(h.last)
	for _, s := range h.shards {
		s.post(task{do: (*shard).reset, message: message})
	}
}

// gap returns the message that replaces missing events, up to the event with this number.
func (h *Hub) gap(number uint64) *filo.PreparedMessage {
	text, err := h.options.Gap.appendForHub(nil)
	if err != nil {
		panic(fmt.Sprintf("sse: %v", err)) // NewHub has checked it
	}
	return filo.NewPreparedMessage(append(appendField(text, "id", h.id(number)), '\n'))
}

// reset tells all subscribers that they may have missed events.
func (s *shard) reset(t *task) {
	for i := len(s.all.members) - 1; i >= 0; i-- {
		to := s.all.members[i].subscriber
		to.after = 0
		s.queue(to, t.message)
	}
}
