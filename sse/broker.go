package sse

import (
	"context"
	"errors"
	"fmt"

	"github.com/filohttp/filo"
)

// Broker connects hubs in several processes: an event that one hub publishes reaches the subscribers of all hubs. Package
// github.com/filohttp/filo/contrib/redis implements a Broker, and docs/RECIPES.md shows another one. The hubs of contrib/websocket
// use the same interface.
//
// A Broker numbers the messages of all topics in a single sequence, and delivers them to each hub in that order. The numbers are
// the IDs of a hub's events, so a client can resume at any process.
type Broker interface {
	// Publish sends a message to the hubs of all processes, including this one, and returns its number. Numbers begin at 1 and always rise,
	// even if the broker itself has lost its data. The Broker must not use the message after Publish has returned. Publish must return
	// within a bounded time. After an error, the message may or may not have been sent.
	Publish(ctx context.Context, topic string, message []byte) (number uint64, err error)
	// Follow calls receive for each Delivery, one after the other, until the context ends. It connects and reconnects by itself. The first
	// Delivery is a Gap. Then come the messages that the broker has stored from before Follow began, and then a Delivery with Live set.
	Follow(ctx context.Context, receive func(Delivery))
}

// Delivery is a message from a Broker, or a notice that messages may be missing or that all older messages were delivered.
type Delivery struct {
	// Number is the message's number. It is greater than the numbers of all messages before.
	Number uint64
	// Gap says that this isn't a message but a notice: messages with numbers up to Number that weren't delivered may be missing. No
	// message with a higher number is missing.
	Gap bool
	// Live says that this isn't a message but a notice: all messages from before Follow began have been delivered. There is
	// exactly one such Delivery.
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

// Ready returns an error until the hub can serve clients. Without a Broker, the hub can serve at once; with one, as soon as the Broker has
// delivered the messages that it has stored. Ready is a check for health.Health.Add.
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
		panic(fmt.Sprintf("sse: %v", err)) // can't happen, since NewHub has checked Gap
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
