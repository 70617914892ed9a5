package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
)

const (
	// maxIncoming limits the size of a message from a page, in bytes: the longest text, and what JSON adds to it.
	maxIncoming = 4*maxText + 4096
	// maxQueued is how many bytes may wait for a slow page: more than the whole history of a room takes in JSON. If more bytes would have to wait, the
	// page is disconnected. It connects again, and gets the messages that it has missed.
	maxQueued = 2 << 20
	// A visitor may send a burst of messages at once, and then one message in each further period (every).
	burst = 8
	every = time.Second
	// maxRefused is how many messages in a row may exceed this rate before the visitor is disconnected.
	maxRefused = 50
)

// visitor is the user at the other end of a socket.
type visitor struct {
	person
	room    string
	limit   *rate.Limiter
	refused int // messages refused in a row
}

// visitorKey is the key under which a request stores the arrival for OnOpen.
type visitorKey struct{}

// arrival is a visitor who wants to enter a room.
type arrival struct {
	*visitor
	after int64 // the ID of the last message that the visitor's page has; 0: none
}

// newSocket returns the handler of the WebSockets of rooms.
func newSocket(c *chat) filo.Handler {
	upgrader := websocket.New(websocket.Options{
		OnOpen: func(request *filo.Ctx, conn *websocket.Conn) error {
			a := request.Get(visitorKey{}).(arrival)
			if err := c.enter(a.room, a.person, a.after, conn); err != nil {
				return &websocket.CloseError{Code: websocket.StatusTryAgainLater, Reason: err.Error()}
			}
			conn.SetValue(a.visitor)
			return nil
		},
		OnMessage: func(conn *websocket.Conn, kind websocket.MessageType, b []byte) error {
			return c.heard(conn, conn.Value().(*visitor), kind, b)
		},
		OnClose: func(conn *websocket.Conn, _ error) {
			if v, entered := conn.Value().(*visitor); entered {
				c.leave(v.room, v.person)
			}
		},
		Compression:     websocket.CompressionPerMessage,
		MaxMessageBytes: maxIncoming,
		MaxQueuedBytes:  maxQueued,
		PingInterval:    20 * time.Second,
	})
	return func(request *filo.Ctx) error {
		a, err := arrivalOf(request)
		if err != nil {
			return err
		}
		request.Set(visitorKey{}, a)
		return upgrader.Serve(request)
	}
}

// arrivalOf parses a request to enter a room.
func arrivalOf(request *filo.Ctx) (arrival, error) {
	room, name, secret := request.Param("room"), request.Query("name"), request.Query("visitor")
	after, err := afterOf(request)
	if err := errors.Join(err, checkRoom(room), checkName(&name), checkKey(secret)); err != nil {
		return arrival{}, err
	}
	sum := sha256.Sum256([]byte(secret))
	who := person{ID: base64.RawURLEncoding.EncodeToString(sum[:9]), Name: name}
	return arrival{&visitor{person: who, room: room, limit: rate.NewLimiter(rate.Every(every), burst)}, after}, nil
}

// afterOf returns the ID of the last message that the requesting page has, or 0 if it has none.
func afterOf(request *filo.Ctx) (int64, error) {
	given := request.Query("after")
	if given == "" {
		return 0, nil
	}
	after, err := strconv.ParseInt(given, 10, 64)
	if err != nil || after < 0 {
		return 0, filo.Error(http.StatusBadRequest, "after is the id of a message")
	}
	return after, nil
}

// heard handles a message from a page: JSON with a text, and a key by which the page recognizes its message.
func (c *chat) heard(conn *websocket.Conn, v *visitor, kind websocket.MessageType, b []byte) error {
	if kind != websocket.Text {
		return &websocket.CloseError{Code: websocket.StatusUnsupportedData, Reason: "messages are text"}
	}
	var in struct{ Text, Key string }
	if json.Unmarshal(b, &in) != nil || checkKey(in.Key) != nil {
		return &websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: "messages are JSON with text and key"}
	}
	if !v.limit.AllowN(c.now(), 1) {
		if v.refused++; v.refused > maxRefused {
			return &websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: "too many messages"}
		}
		return send(conn, refusal{"refused", in.Key, "you are faster than the others can read; wait a moment"})
	}
	v.refused = 0
	if fault := checkText(&in.Text); fault != "" {
		return send(conn, refusal{"refused", in.Key, fault})
	}
	c.say(v.room, v.person, in.Text, in.Key)
	return nil
}
