package main

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/sse"
)

const (
	// maxRooms is how many rooms are kept. When there are more, those are forgotten that nobody was in for the longest time.
	maxRooms = 1000
	// maxPeople is how many people may be in one.
	maxPeople = 500
	// maxWatchers is how many feeds there may be.
	maxWatchers = 10_000
)

var (
	errRooms  = errors.New("there are too many rooms")
	errPeople = errors.New("the room is full")
)

// chat is the rooms, and who is in them.
//
// Under its lock a message gets its ID, and is queued for all whom it is for; that waits for none of them. So they get the
// messages of a room in the order of the IDs, and who enters gets each of them once: in the history, or later.
type chat struct {
	now     func() time.Time
	sockets websocket.Hub // of those who talk, by room
	feed    *sse.Hub      // of those who watch, by room

	mu     sync.Mutex
	rooms  map[string]*room
	lastID int64 // of a message
	// forgotten is an ID: a room that isn't there has had no message after it.
	forgotten int64
}

func newChat(now func() time.Time) *chat {
	// Beginning with the time, in microseconds, makes IDs go on rising when the program starts again. A browser's numbers are
	// exact up to 2^53, which is in the year 2255.
	start := now().UnixMicro()
	return &chat{
		now:       now,
		feed:      sse.NewHub(sse.HubOptions{Retry: time.Second, MaxSubscribers: maxWatchers, MaxTopics: 2 * maxRooms}),
		rooms:     make(map[string]*room),
		lastID:    start,
		forgotten: start,
	}
}

// What pages are sent. Each has a type by which they tell it.
type (
	// welcome is the first message to a socket.
	welcome struct {
		Type     string    `json:"type"` // "welcome"
		You      person    `json:"you"`
		People   []person  `json:"people"`
		Messages []message `json:"messages"`
		Gap      bool      `json:"gap"` // messages between the last one that the page has, and these, may be missing
	}
	// said is a new message.
	said struct {
		Type string `json:"type"` // "message"
		message
	}
	// change is that somebody has entered or left the room.
	change struct {
		Type   string  `json:"type"` // "people"
		Room   string  `json:"room"`
		Count  int     `json:"count"`
		Joined *person `json:"joined,omitempty"` // or has another name
		Left   *person `json:"left,omitempty"`
	}
	// refusal is that a message wasn't taken.
	refusal struct {
		Type   string `json:"type"` // "refused"
		Key    string `json:"key"`
		Reason string `json:"reason"`
	}
)

// enter makes the connection one of those in a room, and sends it what was said there after the message with the ID.
func (c *chat) enter(name string, p person, after int64, conn *websocket.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.openLocked(name)
	if err != nil {
		return err
	}
	if len(r.people) >= maxPeople && r.people[p.ID] == nil {
		return errPeople
	}
	news := r.enter(p)
	messages, gap := r.since(after)
	if err := send(conn, welcome{"welcome", p, r.present(), messages, gap}); err != nil {
		c.leaveLocked(name, p)
		return err
	}
	if news {
		c.tellLocked(r, change{Type: "people", Room: name, Count: len(r.people), Joined: &p})
	}
	// If it is over by now it is no member, and leave is about to be called.
	c.sockets.Join(name, conn)
	return nil
}

// leave undoes enter.
func (c *chat) leave(name string, p person) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(name, p)
}

func (c *chat) leaveLocked(name string, p person) {
	r := c.rooms[name] // it is there as long as somebody is in it
	if r.leave(p.ID) {
		r.left = c.now()
		c.tellLocked(r, change{Type: "people", Room: name, Count: len(r.people), Left: &p})
	}
}

// say tells all in a room, and all who watch it, what somebody says. What a page says again, since it doesn't know whether it
// was heard, is said once.
func (c *chat) say(name string, from person, text, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rooms[name]
	if r.has(from.ID, key) {
		return
	}
	c.lastID++
	m := message{Room: name, ID: c.lastID, At: c.now().UnixMilli(), From: from, Text: text, Key: key}
	r.add(m)
	b := encode(said{"message", m})
	c.sockets.Broadcast(name, websocket.Text, b)
	c.feed.Publish(name, sse.Event{Data: string(b)})
}

// tellLocked tells all in a room, and all who watch it, of a change.
func (c *chat) tellLocked(r *room, news change) {
	b := encode(news)
	c.sockets.Broadcast(r.name, websocket.Text, b)
	c.feed.Publish(r.name, sse.Event{Type: "people", Data: string(b)})
}

// look returns what was said in a room after the message with the ID, and how many people are there.
func (c *chat) look(name string, after int64) (messages []message, gap bool, people int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rooms[name]
	if r == nil {
		r = &room{forgotten: c.forgotten}
	}
	messages, gap = r.since(after)
	return messages, gap, len(r.people)
}

// openLocked returns a room, a new one if there is none.
func (c *chat) openLocked(name string) (*room, error) {
	if r := c.rooms[name]; r != nil {
		return r, nil
	}
	if len(c.rooms) >= maxRooms && !c.forgetLocked() {
		return nil, errRooms
	}
	r := &room{name: name, people: make(map[string]*presence), forgotten: c.forgotten}
	c.rooms[name] = r
	return r, nil
}

// forgetLocked makes place for a room. It reports false if there are people in all of them.
func (c *chat) forgetLocked() bool {
	var oldest *room
	for _, r := range c.rooms {
		if len(r.people) == 0 && (oldest == nil || r.left.Before(oldest.left)) {
			oldest = r
		}
	}
	if oldest == nil {
		return false
	}
	c.forgotten = max(c.forgotten, oldest.newest())
	delete(c.rooms, oldest.name)
	return true
}

// send sends what a page must know to its socket.
func send(conn *websocket.Conn, v any) error {
	m, err := websocket.NewPreparedMessage(websocket.Text, encode(v))
	if err != nil {
		return err
	}
	return conn.Send(m)
}

// encode returns one of the types above as JSON.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // they can all be
	}
	return b
}
