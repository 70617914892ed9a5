package sse

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo"
)

// shard serves a part of a hub's subscribers. Tasks for these subscribers are posted, with Hub.mu held where their order matters, and a
// single goroutine runs them in that order. Therefore a subscriber gets all events that are published after it joined, and none from
// before.
type shard struct {
	hub     *Hub
	backlog atomic.Int32 // events that were posted but not yet delivered

	mu      sync.Mutex
	posted  []task // guarded by mu
	running bool   // a goroutine runs the posted tasks; guarded by mu

	// The following fields belong to that goroutine.
	all   roster
	beats uint32 // heartbeats so far
	done  []task // an empty slice, for reuse as posted
}

// roster is a list of subscribers in a shard: either a topic's, or all.
type roster struct {
	shard   *shard
	count   int     // the number of subscribers with a seat for the roster, even if they haven't joined yet; guarded by Hub.mu
	members []*seat // the seats of subscribers that have joined and not left; owned by the shard's goroutine
}

// seat is a subscriber's place in a roster.
type seat struct {
	subscriber *subscriber
	topic      *topic
	roster     *roster
	index      int // in the roster's members, -1 if it isn't there; owned by the shard's goroutine
}

// task is a function for the shard's goroutine to call, with its arguments.
type task struct {
	do         func(*shard, *task)
	roster     *roster
	message    *filo.PreparedMessage
	number     uint64 // the number of the event, or of the hub's last event
	subscriber *subscriber
	missed     []past
	finished   chan<- struct{}
}

// maxKeptTasks is the capacity up to which a slice of tasks is kept for reuse.
const maxKeptTasks = 2 * maxBacklog

func newShard(h *Hub) *shard {
	s := &shard{hub: h}
	s.all.shard = s
	return s
}

func (s *shard) post(t task) {
	if t.roster != nil {
		s.backlog.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posted = append(s.posted, t)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// run runs the posted tasks until none is left.
func (s *shard) run() {
	for tasks := s.take(); len(tasks) > 0; tasks = s.take() {
		for i := range tasks {
			t := &tasks[i]
			t.do(s, t)
			if t.roster != nil && s.backlog.Add(-1) == maxBacklog/2 {
				s.hub.caughtUp()
			}
			*t = task{}
		}
		s.hub.caughtUp()
		if s.done = tasks[:0]; cap(tasks) > maxKeptTasks {
			s.done = nil
		}
	}
}

// take returns the posted tasks. If there is none, it ends the goroutine.
func (s *shard) take() []task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.posted) == 0 {
		s.running = false
		return nil
	}
	tasks := s.posted
	s.posted, s.done = s.done, nil
	return tasks
}

// deliver queues a message for the members of a roster.
func (s *shard) deliver(t *task) {
	members := t.roster.members
	// Backwards, because dropping a subscriber moves the last member to its index.
	for i := len(members) - 1; i >= 0; i-- {
		if to := members[i].subscriber; t.number > to.after {
			s.queue(to, t.message)
		}
	}
}

// beat queues a heartbeat for the subscribers that got nothing since beat was last called. A subscriber that is still ahead of the hub has
// sent the ID of an event that doesn't exist, so it gets the gap message.
func (s *shard) beat(t *task) {
	for i := len(s.all.members) - 1; i >= 0; i-- {
		subscriber := s.all.members[i].subscriber
		switch {
		case subscriber.after > t.number:
			subscriber.after = 0
			s.queue(subscriber, s.hub.gap(t.number))
		case subscriber.heard != s.beats:
			s.queue(subscriber, t.message)
		}
	}
	s.beats++
}

// queue queues a message for a subscriber. A subscriber whose queue is full is dropped; if queuing fails for another reason, the
// subscriber is about to leave.
func (s *shard) queue(to *subscriber, message *filo.PreparedMessage) {
	to.heard = s.beats
	to.lowerLimit()
	err := to.conn.Queue(message)
	if err == nil {
		return
	}
	s.remove(to)
	if errors.Is(err, filo.ErrQueueFull) {
		go to.drop()
	}
}

// join adds a subscriber, and queues the events that it has missed, in order. The queue limit is raised for these events.
func (s *shard) join(t *task) {
	slices.SortFunc(t.missed, func(a, b past) int { return cmp.Compare(a.number, b.number) })
	limit := s.hub.options.MaxQueueBytes
	for i := range t.missed {
		limit += t.missed[i].message.Len() + chunkFraming
	}
	t.subscriber.conn.SetQueueLimit(limit)
	for i := range t.subscriber.seats {
		t.subscriber.seats[i].sit()
	}
	t.subscriber.place.sit()
	for i := range t.missed {
		if t.subscriber.place.index < 0 {
			return
		}
		s.queue(t.subscriber, t.missed[i].message)
	}
	t.subscriber.limit = limit
}

// leave removes a subscriber that has left.
func (s *shard) leave(t *task) { s.remove(t.subscriber) }

func (s *shard) remove(subscriber *subscriber) {
	for i := range subscriber.seats {
		subscriber.seats[i].rise()
	}
	subscriber.place.rise()
}

// close disconnects all subscribers.
func (s *shard) close(*task) {
	for _, place := range s.all.members {
		place.subscriber.conn.End()
	}
}

// finish closes t.finished, which shows that all tasks posted earlier have run.
func (s *shard) finish(t *task) { close(t.finished) }

func (s *seat) sit() {
	s.index = len(s.roster.members)
	s.roster.members = append(s.roster.members, s)
}

// rise takes the seat out of its roster, if it is there, and puts the last seat in its place.
func (s *seat) rise() {
	if s.index < 0 {
		return
	}
	members := s.roster.members
	last := len(members) - 1
	members[s.index] = members[last]
	members[s.index].index = s.index
	members[last] = nil
	s.roster.members = members[:last]
	s.index = -1
}
