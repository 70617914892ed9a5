package main

import (
	"cmp"
	"slices"
	"time"
)

// maxHistory is how many messages of a room are kept for visitors who enter it, for the first time or again.
const maxHistory = 100

// person is a visitor in a room.
type person struct {
	// ID is derived from a secret of the visitor's page. So it stays the same when the page connects again, and no other visitor can use it.
	ID   string `json:"id"`
	Name string `json:"name"`
}

// message is one line of a conversation.
type message struct {
	Room string `json:"room"`
	// ID is greater than the IDs of all earlier messages, even those of an earlier run of the program.
	ID int64 `json:"id"`
	// At is when the message was sent, in milliseconds of Unix time.
	At   int64  `json:"at"`
	From person `json:"from"`
	Text string `json:"text"`
	// Key is chosen by the page that sends the message, which recognizes its own message by the key.
	Key string `json:"key"`
}

// room is where people talk. It is guarded by the lock of its chat.
type room struct {
	name    string
	people  map[string]*presence // by person.ID
	history []message            // the last messages, in the order of their IDs
	// forgotten is an ID: there may have been messages with IDs up to this one that are no longer in the history.
	forgotten int64
	left      time.Time // when the last person left
}

// presence is a person and the number of their connections. A page may connect again before the server notices that its old connection is dead.
type presence struct {
	person
	conns int
}

// enter adds a connection of a person. It reports whether the person is new in the room, or has another name.
func (r *room) enter(p person) (news bool) {
	there := r.people[p.ID]
	if there == nil {
		there = new(presence)
		r.people[p.ID] = there
	}
	news = there.person != p
	there.person = p
	there.conns++
	return news
}

// leave removes a connection of a person. It reports whether that was the person's last connection.
func (r *room) leave(id string) (gone bool) {
	there := r.people[id]
	there.conns--
	if there.conns > 0 {
		return false
	}
	delete(r.people, id)
	return true
}

// present returns the people in the room, sorted by name.
func (r *room) present() []person {
	people := make([]person, 0, len(r.people))
	for _, p := range r.people {
		people = append(people, p.person)
	}
	slices.SortFunc(people, func(a, b person) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return people
}

// add adds a message to the history.
func (r *room) add(m message) {
	if len(r.history) == maxHistory {
		r.forgotten = r.history[0].ID
		r.history = slices.Delete(r.history, 0, 1)
	}
	r.history = append(r.history, m)
}

// has reports whether the history contains a message from a person with this key.
func (r *room) has(from, key string) bool {
	return slices.ContainsFunc(r.history, func(m message) bool { return m.From.ID == from && m.Key == key })
}

// since returns a copy of the messages after the one with the ID, or all if the ID is 0. If messages after the ID may be missing from the
// history, gap is set, and all messages are returned.
func (r *room) since(id int64) (messages []message, gap bool) {
	messages = r.history
	if gap = id != 0 && (id < r.forgotten || id > r.newest()); !gap {
		i, _ := slices.BinarySearchFunc(messages, id+1, func(m message, id int64) int { return cmp.Compare(m.ID, id) })
		messages = messages[i:]
	}
	return append([]message{}, messages...), gap
}

// newest returns the ID of the last message.
func (r *room) newest() int64 {
	if len(r.history) == 0 {
		return r.forgotten
	}
	return r.history[len(r.history)-1].ID
}
