package sse

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
)

// An ID that a hub gives to an event is the hub's epoch, a hyphen, and the event's number in this hub, counted from 1. IDs from before a
// restart, or of a hub in another process, have another epoch. Hubs with a Broker use its numbers and have no epoch: their IDs are numbers
// alone.

// newEpoch returns 40 random bits in base 32, and a hyphen.
func newEpoch() string { return strings.ToLower(rand.Text()[:8]) + "-" }

func (h *Hub) id(number uint64) string {
	return string(strconv.AppendUint(append(make([]byte, 0, 32), h.epoch...), number, 10))
}

// parseID returns the number of the event in an ID that a client has sent. It reports false if the ID can't be from this hub.
func (h *Hub) parseID(id string) (number uint64, ok bool) {
	digits, ours := strings.CutPrefix(id, h.epoch)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && ours
}

// appendForHub appends the event without an ID and without the empty line at its end. An event that has an ID isn't valid.
func (e *Event) appendForHub(dst []byte) ([]byte, error) {
	switch {
	case *e == (Event{}):
		return dst, fmt.Errorf("%w: it is empty", ErrInvalidEvent)
	case e.ID != "":
		return dst, fmt.Errorf("%w: it has an ID, but the hub assigns IDs", ErrInvalidEvent)
	}
	return e.appendRest(dst)
}
