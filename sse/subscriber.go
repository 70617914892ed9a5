package sse

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// subscriber is a client of a hub.
type subscriber struct {
	hub    *Hub
	shard  *shard
	server *filo.Server     // immutable
	conn   *filo.ParkedConn // nil until the connection is parked
	seats  []seat           // one for each topic
	place  seat             // in the roster of all subscribers
	from   uint64           // the number of the hub's last event when the subscriber was admitted; immutable

	// after is the number of the last event that the client has received from another process, if the hub of that process was ahead of
	// this one; otherwise it is 0. It is set before the subscriber joins, and owned by the shard's goroutine afterwards.
	after uint64

	left     bool   // leave was called; guarded by Hub.mu
	heard    uint32 // the count of heartbeats when the subscriber last got a message; owned by the shard's goroutine
	limit    int    // the connection's queue limit since the missed events were queued, 0 before; owned by the shard's goroutine
	received int    // how many bytes the client has sent; only wake uses it
}

// maxReceived is how many bytes a client may send while it receives events. A client has no reason to send anything. The bytes are
// discarded, but a worker must read them.
const maxReceived = 4 << 10

// chunkFraming is an allowance, in bytes, for the chunk and the TLS record around a message.
const chunkFraming = 64

// Serve answers the request with the events of the topics. They start with the next event or, with a Last-Event-ID field that the hub
// knows, where the client left off. Serve parks the connection (see filo.Ctx.ParkStream) and returns at once; the handler must return its
// result. The client then gets the published events until it leaves, is too slow, or the server shuts down. A topic that is named twice
// counts once.
//
// The response has the status and the fields that the handler and its middleware have set. The hub first sends the client an ID
// for resuming, so that it misses nothing even if it has received no event. A request with the method HEAD gets only the head.
//
// The errors are HTTPErrors, and the errors of ParkStream. The status is 400 for no topic, too many topics, or a topic with more than 1,024
// bytes. It is 503 for too many subscribers or topics, after Close, and until a Broker has been reached for the first time: see Ready.
func (h *Hub) Serve(c *filo.Ctx, topics ...string) error {
	if len(h.shards) == 0 {
		return errZeroHub
	}
	if err := h.checkTopics(topics); err != nil {
		return err
	}
	if c.Method() == "HEAD" {
		setFields(c)
		return c.Stream().Flush()
	}
	s, err := h.admit(c.Server(), topics)
	if err != nil {
		return err
	}
	setFields(c)
	since := lastEventID(c)
	conn, err := c.ParkStream(s.wake)
	if err != nil {
		h.leave(s)
		return err
	}
	h.begin(s, conn, since)
	conn.OnClose(s.gone)
	return nil
}

func (h *Hub) checkTopics(topics []string) error {
	switch {
	case len(topics) == 0:
		return filo.Error(400, "no topic is asked for")
	case len(topics) > h.options.MaxTopicsPerSubscriber:
		return filo.Error(400, fmt.Sprintf("%d topics are asked for, %d are allowed", len(topics), h.options.MaxTopicsPerSubscriber))
	}
	for _, topic := range topics {
		if len(topic) > maxTopicBytes {
			return filo.Error(400, fmt.Sprintf("a topic has more than %d bytes", maxTopicBytes))
		}
	}
	return nil
}

// admit makes a subscriber that is counted in the limits but gets no events yet.
func (h *Hub) admit(server *filo.Server, topics []string) (*subscriber, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, filo.Error(503, "there are no events any more")
	case h.options.Broker != nil && !h.live:
		return nil, &filo.HTTPError{Status: 503, Detail: "there are no events yet", Err: errNotLive}
	case h.subscribers >= h.options.MaxSubscribers:
		return nil, filo.Error(503, "there are too many subscribers")
	}
	s := &subscriber{hub: h, shard: h.shards[h.next], server: server, seats: make([]seat, 0, len(topics)), from: h.last}
	h.next = (h.next + 1) % len(h.shards)
	s.place = seat{subscriber: s, roster: &s.shard.all, index: -1}
	h.subscribers++
	for _, name := range topics {
		t := h.topics[name]
		switch {
		case t != nil && slices.ContainsFunc(s.seats, func(taken seat) bool { return taken.topic == t }):
			continue
		case t == nil && len(h.topics) >= h.options.MaxTopics:
			h.leaveLocked(s)
			return nil, filo.Error(503, "there are too many topics")
		case t == nil:
			t = h.addTopicLocked(name)
		}
		t.subscribers++
		s.seats = append(s.seats, seat{subscriber: s, topic: t, roster: t.rosterIn(s.shard), index: -1})
	}
	return s, nil
}

// rosterIn returns the roster of the topic's subscribers in a shard, and counts one more subscriber in it.
func (t *topic) rosterIn(s *shard) *roster {
	i := slices.IndexFunc(t.rosters, func(r *roster) bool { return r.shard == s })
	if i < 0 {
		i = len(t.rosters)
		t.rosters = append(t.rosters, &roster{shard: s})
	}
	t.rosters[i].count++
	return t.rosters[i]
}

// begin lets the subscriber receive events. The history provides the events that were published since it was admitted: the client may
// already have received the response's head, and then expects these events.
func (h *Hub) begin(s *subscriber, conn *filo.ParkedConn, lastEventID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.conn = conn
	s.shard.post(task{do: (*shard).join, subscriber: s, missed: h.greetLocked(s, lastEventID)})
	if h.closed { // the hub was closed after admit
		s.shard.post(task{do: (*shard).close})
	}
	h.tickLocked()
}

// greetLocked returns the messages that the client gets first, in no particular order. The greeting has the number 0, which no
// event has, so that it can be sorted to the front.
func (h *Hub) greetLocked(s *subscriber, lastEventID string) []past {
	var greeting []byte
	if h.options.Retry > 0 {
		greeting = appendRetry(greeting, h.options.Retry)
	}
	var missed []past
	number, known := s.from, lastEventID == ""
	if !known {
		number, known = h.parseID(lastEventID)
	}
	switch {
	case known && number > h.last && h.options.Broker != nil:
		s.after = number
	case known:
		missed, known = h.missedLocked(s, number)
	}
	switch {
	case !known:
		greeting, _ = h.options.Gap.appendForHub(greeting) // NewHub has checked it
		greeting = appendField(greeting, "id", h.id(h.last))
	case lastEventID == "":
		greeting = appendField(greeting, "id", h.id(number))
	}
	if len(greeting) == 0 {
		return missed
	}
	return append(missed, past{message: filo.NewPreparedMessage(append(greeting, '\n'))})
}

// lowerLimit lowers the queue limit, which join has raised for the missed events, as the client takes these events.
func (s *subscriber) lowerLimit() {
	most := s.hub.options.MaxQueueBytes
	if s.limit <= most {
		return
	}
	if limit := most + s.conn.Queued(); limit < s.limit {
		s.limit = limit
		s.conn.SetQueueLimit(limit)
	}
}

// wake is called when the client has sent something or closed its side, and when the server shuts down.
func (s *subscriber) wake(conn *filo.ParkedConn, why filo.Wake) error {
	if why == filo.WakeShutdown {
		// Wait until the events that were published before the shutdown are queued, since this client must get them, too.
		finished := make(chan struct{})
		s.shard.post(task{do: (*shard).finish, finished: finished})
		<-finished
		return nil
	}
	var buffer [512]byte
	n, err := conn.Read(buffer[:])
	if s.received += n; s.received > maxReceived {
		return fmt.Errorf("sse: a client has sent over %d bytes while it gets events", maxReceived)
	}
	return err
}

// gone is called when the connection has ended.
func (s *subscriber) gone() { s.hub.leave(s) }

// leave removes the subscriber, so that its place counts as free again. Further calls do nothing.
func (h *Hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaveLocked(s)
}

func (h *Hub) leaveLocked(s *subscriber) {
	if s.left {
		return
	}
	s.left = true
	h.subscribers--
	for i := range s.seats {
		t, r := s.seats[i].topic, s.seats[i].roster
		if r.count--; r.count == 0 {
			t.rosters = slices.DeleteFunc(t.rosters, func(other *roster) bool { return other == r })
		}
		t.subscribers--
		h.vanishLocked(t)
	}
	s.shard.post(task{do: (*shard).leave, subscriber: s})
}

// drop disconnects the client because it is too slow. The client may come back at once, so its place is free before its connection is closed.
func (s *subscriber) drop() {
	h := s.hub
	h.mu.Lock()
	h.dropped++
	h.leaveLocked(s)
	h.mu.Unlock()
	client := s.conn.RemoteAddr()
	s.conn.Close()
	if h.options.OnDrop == nil {
		return
	}
	topics := make([]string, len(s.seats))
	for i := range s.seats {
		topics[i] = s.seats[i].topic.name
	}
	defer s.recoverPanic()
	h.options.OnDrop(client, topics)
}

// recoverPanic logs a panic of OnDrop, which would otherwise end the process.
func (s *subscriber) recoverPanic() {
	if value := recover(); value != nil {
		logPanic(s.server, "sse: panic in OnDrop", value)
	}
}

// logPanic logs a panic that was recovered.
func logPanic(server *filo.Server, message string, value any) {
	cmp.Or(server.Logger, slog.Default()).Error(message,
		"value", syntax.Excerpt(fmt.Sprint(value), syntax.MaxLogged), "stack", string(debug.Stack()))
}
