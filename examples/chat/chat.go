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
	// maxRooms is how many rooms are kept. A further room replaces the one that has been empty for the longest time.
	maxRooms = 1000
	// maxPeople is how many people may be in a room.
	maxPeople = 500
	// maxWatchers is how many feeds of server-sent events there may be.
	maxWatchers = 10_000
)

var (
	errRooms  = errors.New("there are too many rooms")
	errPeople = errors.New("the room is full")
)

// chat holds the rooms and the people in them.
//
// While it holds the lock, say gives a message its ID and queues it for all recipients, without waiting for them. So recipients get a room's messages
// in the order of the IDs, and a person who enters the room gets each message once: in the history, or after it.
type chat struct {
	now     func() time.Time
	sockets websocket.Hub // the WebSockets of the people who talk, by room
	feed    *sse.Hub      // the event streams of the people who watch, by room

	mu     sync.Mutex
	rooms  map[string]*room
	lastID int64 // of a message
	// forgotten is at least the highest ID of the messages in rooms that were dropped.
	forgotten int64
}

func newChat(now func() time.Time) *chat {
	// IDs start at the current time in microseconds, so that they keep rising when the program restarts. Numbers in a browser are exact up to 2^53,
	// which IDs reach in the year 2255.
	start := now().UnixMicro()
	return &chat{
		now:       now,
		feed:      sse.NewHub(sse.HubOptions{Retry: time.Second, MaxSubscribers: maxWatchers, MaxTopics: 2 * maxRooms}),
		rooms:     make(map[string]*room),
		lastID:    start,
		forgotten: start,
	}
}

// The messages to pages. The field type tells a page which message it is.
type (
	// welcome is the first message to a socket.
	welcome struct {
		Type     string    `json:"type"` // "welcome"
		You      person    `json:"you"`
		People   []person  `json:"people"`
		Messages []message `json:"messages"`
		Gap      bool      `json:"gap"` // there may be further messages, after the last message that the page has and before Messages
	}
	// said is a new message.
	said struct {
		Type string `json:"type"` // "message"
		message
	}
	// change says that a person has entered or left the room, or has another name.
	change struct {
		Type   string  `json:"type"` // "people"
		Room   string  `json:"room"`
		Count  int     `json:"count"`
		Joined *person `json:"joined,omitempty"` // the person who has joined, or who has changed their name
		Left   *person `json:"left,omitempty"`
	}
	// refusal says that a message wasn't accepted.
	refusal struct {
		Type   string `json:"type"` // "refused"
		Key    string `json:"key"`
		Reason string `json:"reason"`
	}
)

// enter adds a connection to a room, and sends it the room's messages whose IDs are higher than the given one (after).
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
	// Join doesn't add a connection that has already ended. In that case leave is about to be called.
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
	r := c.rooms[name] // it exists, since a room with people in it isn't dropped
	if r.leave(p.ID) {
		r.left = c.now()
		c.tellLocked(r, change{Type: "people", Room: name, Count: len(r.people), Left: &p})
	}
}

// say sends a message to everyone who is in a room or watches it. A page that doesn't know whether its message has arrived sends it again. say drops
// the duplicate.
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

// tellLocked sends a change to everyone who is in a room or watches it.
func (c *chat) tellLocked(r *room, news change) {
	b := encode(news)
	c.sockets.Broadcast(r.name, websocket.Text, b)
	c.feed.Publish(r.name, sse.Event{Type: "people", Data: string(b)})
}

// look returns the messages of a room whose IDs are higher than the given one (after), and how many people are in the room.
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

// openLocked returns the room with the name, and creates it if there is none.
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

// forgetLocked drops an empty room to make space for a new one. It reports false if no room is empty.
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

// send sends one of the messages above to a page's socket.
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
		panic(err) // all of these types can be encoded
	}
	return b
}
