package websocket

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

// Hub sends messages to the connections that have joined a topic, such as a chat room. The zero value is ready for use with the connections
// of one process; NewHub makes a hub for several. A Hub must not be copied.
//
// A message is rendered once, and compressed once, for all connections. Sending never waits for a client. A slow client is disconnected when
// more than MaxQueuedBytes wait for it, and never delays other clients.
type Hub struct {
	brokered *brokered // nil without a Broker; immutable

	messages, dropped atomic.Uint64 // counters for Stats

	mu     sync.Mutex // locked before topic.mu
	topics map[string]*topic
}

// topic is a topic and its members.
type topic struct {
	hub  *Hub
	name string

	sending sync.Mutex // held while a message is sent, to keep the order; locked before Hub.mu

	mu sync.Mutex
	// members maps each member to the number of the last message that it already has, perhaps from another hub. Guarded by mu.
	members map[*Conn]uint64
}

// Join makes a connection opened by Serve a member of the topic, until it leaves or ends. Joining again has no effect. Join returns an
// error if the connection has ended.
func (h *Hub) Join(name string, c *Conn) error {
	if c.parked == nil {
		return errAccepted
	}
	t, member := h.enter(name, c, 0)
	if !member && !c.joined(t) {
		t.remove(c)
		return c.closedError()
	}
	return nil
}

// enter adds a connection to the members of a topic. The connection gets the topic's messages after the one with this number. If it is a
// member already, enter changes nothing and reports true.
func (h *Hub) enter(name string, c *Conn, after uint64) (t *topic, member bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topics[name]
	if t == nil {
		t = &topic{hub: h, name: name, members: make(map[*Conn]uint64)}
		if h.topics == nil {
			h.topics = make(map[string]*topic)
		}
		h.topics[name] = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, member = t.members[c]; !member {
		t.members[c] = after
	}
	return t, member
}

// Leave ends the connection's membership of the topic.
func (h *Hub) Leave(name string, c *Conn) {
	if t := h.topic(name); t != nil {
		c.left(t)
		t.remove(c)
	}
}

// Len returns the number of the topic's members.
func (h *Hub) Len(name string) int {
	t := h.topic(name)
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.members)
}

// Broadcast sends a message to the members of a topic. All members get the topic's messages in the same order. Broadcast returns the number
// of connections for which the message was sent or queued. It returns an error only for an invalid message: a text that isn't UTF-8. With a
// Broker, Broadcast waits until the Broker has accepted the message, and returns 0; the members get the message soon afterwards. If the
// Broker fails, Broadcast returns its error, and the message may or may not have been sent.
func (h *Hub) Broadcast(name string, kind MessageType, message []byte) (sent int, err error) {
	if h.brokered != nil {
		return 0, h.brokered.publish(name, kind, message)
	}
	t := h.topic(name)
	if t == nil {
		if err := checkMessage(kind, message); err != nil {
			return 0, err
		}
		h.messages.Add(1)
		return 0, nil
	}
	m, err := NewPreparedMessage(kind, message)
	if err != nil {
		return 0, err
	}
	h.messages.Add(1)
	return t.send(m), nil
}

// Stats returns the hub's counters, in the type of package sse. Subscribers are the members of all topics: a connection that has joined two
// topics counts twice. Events counts messages; a message from a Broker counts when it arrives.
func (h *Hub) Stats() sse.HubStats {
	stats := sse.HubStats{Events: h.messages.Load(), Dropped: h.dropped.Load()}
	h.mu.Lock()
	defer h.mu.Unlock()
	stats.Topics = len(h.topics)
	for _, t := range h.topics {
		t.mu.Lock()
		stats.Subscribers += len(t.members)
		t.mu.Unlock()
	}
	if h.brokered != nil {
		stats.HistoryBytes = h.brokered.bytes
	}
	return stats
}

// Close closes the connections of the topic's members: see Conn.Close.
func (h *Hub) Close(name string, code StatusCode, reason string) error {
	if !code.sendable() {
		return fmt.Errorf("websocket: a close frame can't have status %d", code)
	}
	t := h.topic(name)
	if t == nil {
		return nil
	}
	var slow sync.WaitGroup
	for _, c := range t.snapshot() {
		if c.busy.Load() == notBusy {
			c.Close(code, reason)
		} else { // waits for a slow client, so the other members must not wait for it
			slow.Go(func() { c.Close(code, reason) })
		}
	}
	slow.Wait()
	return nil
}

func (h *Hub) topic(name string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[name]
}

// send sends the message to all members.
func (t *topic) send(m *PreparedMessage) (sent int) {
	t.sending.Lock()
	defer t.sending.Unlock()
	return t.sendLocked(m, 1)
}

// sendLocked sends the message to all members that don't have it already, judging by its number.
func (t *topic) sendLocked(m *PreparedMessage, number uint64) (sent int) {
	for _, c := range t.lacking(number) {
		switch err := c.Send(m); {
		case err == nil:
			sent++
		case errors.Is(err, filo.ErrQueueFull):
			if c.over(fmt.Errorf("websocket: a client is behind: %w", err)) {
				t.hub.dropped.Add(1)
			}
		}
	}
	return sent
}

// lacking returns the members that don't have the message with this number.
func (t *topic) lacking(number uint64) []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	conns := make([]*Conn, 0, len(t.members))
	for c, after := range t.members {
		if number > after {
			conns = append(conns, c)
		}
	}
	return conns
}

// snapshot returns the members.
func (t *topic) snapshot() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.AppendSeq(make([]*Conn, 0, len(t.members)), maps.Keys(t.members))
}

// remove removes a connection from the topic, and the topic from the hub if it has no members left.
func (t *topic) remove(c *Conn) {
	h := t.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.members, c)
	if len(t.members) == 0 && h.topics[t.name] == t {
		delete(h.topics, t.name)
	}
}

// joined records that the connection is a member of the topic. It reports false if the connection has ended.
func (c *Conn) joined(t *topic) bool {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.told {
		return false
	}
	c.topics = append(c.topics, t)
	return true
}

// left undoes joined.
func (c *Conn) left(t *topic) {
	c.gate.Lock()
	defer c.gate.Unlock()
	if i := slices.Index(c.topics, t); i >= 0 {
		c.topics = slices.Delete(c.topics, i, i+1)
	}
}
