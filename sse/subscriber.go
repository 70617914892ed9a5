package sse

import (
	"fmt"
	"slices"

	"github.com/filohttp/filo"
)

// subscriber is a client of a hub.
type subscriber struct {
	hub   *Hub
	shard *shard
	conn  *filo.ParkedConn // nil until the connection is parked
	seats []seat           // one for each topic
	place seat             // in the roster of all subscribers
	from  uint64           // the hub's last event when it was admitted; immutable

	// after is not 0 if the client comes from the hub of another process that was ahead of this one. It is the last event that the client
	// has got from that process. It is set before the subscriber joins, and owned by the shard's goroutine afterwards.
	after uint64

	heard    uint32 // the count of heartbeats when the subscriber last got a message; owned by the shard's goroutine
	received int    // bytes that the client has sent; only the connection's function uses it
}

// maxReceived is how many bytes a client may send while it is served events. It should send nothing, and its bytes are thrown away, but
// each time a worker has to read them.
const maxReceived = 4 << 10

// chunkFraming is the least number of bytes by which a chunk and a TLS record enlarge a message.
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
	s, err := h.admit(topics)
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
func (h *Hub) admit(topics []string) (*subscriber, error) {
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
	s := &subscriber{hub: h, shard: h.shards[h.next], seats: make([]seat, 0, len(topics)), from: h.last}
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

// begin lets the subscriber receive events. The history provides the events that were published since it was admitted: the client may have
// seen the head since then, and expects these events.
func (h *Hub) begin(s *subscriber, conn *filo.ParkedConn, lastEventID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.conn = conn
	missed, limit := h.greetLocked(s, lastEventID), h.options.MaxQueueBytes
	for i := range missed {
		limit += missed[i].message.Len() + chunkFraming
	}
	conn.SetQueueLimit(limit)
	s.shard.post(task{do: (*shard).join, subscriber: s, missed: missed})
	if h.closed { // since it was admitted
		s.shard.post(task{do: (*shard).close})
	}
	h.tickLocked()
}

// greetLocked returns the events that the client gets first, in no order; the greeting has the number 0, which no event has.
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

// wake is called when the client has sent something or closed its side, and when the server shuts down.
func (s *subscriber) wake(conn *filo.ParkedConn, why filo.Wake) error {
	if why == filo.WakeShutdown {
		// Events that were published before the shutdown are for this client too.
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

// leave frees the subscriber's places for others. It is called once for each subscriber.
func (h *Hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaveLocked(s)
}

func (h *Hub) leaveLocked(s *subscriber) {
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

// drop disconnects the client because it is too slow.
func (s *subscriber) drop() {
	h := s.hub
	h.mu.Lock()
	h.dropped++
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
	h.options.OnDrop(client, topics)
}
