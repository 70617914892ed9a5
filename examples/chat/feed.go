package main

import (
	"net/http"

	"github.com/filohttp/filo"
)

// serveFeed sends new messages of rooms as server-sent events, and an event of type "people" when a person enters or leaves. An event of type "reset"
// says that events may be missing. A page then requests the messages again.
func (c *chat) serveFeed(request *filo.Ctx) error {
	var rooms []string
	for name := range request.Request.Query().Values("room") {
		if err := checkRoom(string(name)); err != nil {
			return err
		}
		rooms = append(rooms, string(name))
	}
	return c.feed.Serve(request, rooms...)
}

// messages is the state of a room when a page begins to watch it. The page requests the state after its feed is open, so that it misses no message.
// If a message arrives both in the state and on the feed, it has the same ID in both.
type messages struct {
	Messages []message `json:"messages"`
	Gap      bool      `json:"gap"` // see welcome
	People   int       `json:"people"`
}

// serveMessages answers with the last messages of a room.
func (c *chat) serveMessages(request *filo.Ctx) error {
	name := request.Param("room")
	if err := checkRoom(name); err != nil {
		return err
	}
	after, err := afterOf(request)
	if err != nil {
		return err
	}
	var answer messages
	answer.Messages, answer.Gap, answer.People = c.look(name, after)
	request.Response.Header.Set("Cache-Control", "no-store")
	return request.JSON(http.StatusOK, answer)
}
