package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// watcher is a client that reads a feed.
type watcher struct {
	io.Reader
	t     *testing.T
	lines *bufio.Scanner
	id    string // ID of the last event
}

// follow opens a feed of a room, or of several with &room= between them.
func follow(t *testing.T, base, rooms string, fields ...string) *watcher {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", base+"/feed?room="+rooms, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("got %d %s", response.StatusCode, got)
	}
	return &watcher{Reader: response.Body, t: t, lines: bufio.NewScanner(response.Body)}
}

// next returns the type and the data of the next event that has a type or data.
func (w *watcher) next() (kind, data string) {
	w.t.Helper()
	for w.lines.Scan() {
		name, value, _ := strings.Cut(w.lines.Text(), ": ")
		switch name {
		case "id":
			w.id = value
		case "event":
			kind = value
		case "data":
			data = value
		case "":
			if kind != "" || data != "" {
				return kind, data
			}
		}
	}
	w.t.Fatalf("the feed ended: %v", w.lines.Err())
	return "", ""
}

// said returns the next message.
func (w *watcher) said() message {
	w.t.Helper()
	for {
		if kind, data := w.next(); kind == "" || kind == "message" {
			return parse[message](w.t, data)
		}
	}
}

func TestFeed(t *testing.T) {
	base := start(t)
	watch := follow(t, base, "lobby&room=ideas")
	ada := enter(t, base, "lobby", "Ada", 0)
	if kind, data := watch.next(); kind != "people" || parse[change](t, data).Count != 1 || parse[change](t, data).Room != "lobby" {
		t.Errorf("got %s %s", kind, data)
	}
	enter(t, base, "elsewhere", "Ben", 0).say("Not for you", "k")
	enter(t, base, "ideas", "Cleo", 0).say("A boat!", "k")
	if m := watch.said(); m.Room != "ideas" || m.Text != "A boat!" {
		t.Errorf("got %+v", m)
	}
	ada.say("<b>&", "k1")
	if m := watch.said(); m.Room != "lobby" || m.Text != "<b>&" || m.From != ada.you || m.ID != ada.next("message").ID {
		t.Errorf("got %+v", m)
	}

	// A client that reconnects gets the messages that it has missed.
	id := watch.id
	ada.say("two", "k2")
	ada.say("three", "k3")
	again := follow(t, base, "lobby", "Last-Event-ID", id)
	if first, second := again.said(), again.said(); first.Text != "two" || second.Text != "three" {
		t.Errorf("got %+v and %+v", first, second)
	}
	// A client with an event ID that the hub doesn't know is told to request the messages.
	if kind, data := follow(t, base, "lobby", "Last-Event-ID", "of-yesterday").next(); kind != "reset" {
		t.Errorf("got %s %s", kind, data)
	}
	for _, query := range []string{"", "?room=", "?room=Lobby", "?room=lobby&room=a/b", "?room=a" + many(65)} {
		if response, body := get(t, base+"/feed"+query); response.StatusCode != 400 {
			t.Errorf("%s: got %d %s", query, response.StatusCode, body)
		}
	}
}

// many returns a query that names n rooms.
func many(n int) (query string) {
	for i := range n {
		query += fmt.Sprint("&room=", i)
	}
	return query
}

func TestMessages(t *testing.T) {
	base := start(t)
	ada := enter(t, base, "lobby", "Ada", 0)
	var ids []int64
	for i := range 3 {
		ada.say(fmt.Sprint(i), fmt.Sprint("k", i))
		ids = append(ids, ada.next("message").ID)
	}
	for _, tc := range []struct {
		sentence, path, want string
		gap                  bool
		people               int
	}{
		{"all of them", "lobby/messages", "Ada: 0, Ada: 1, Ada: 2", false, 1},
		{"those that are new", fmt.Sprintf("lobby/messages?after=%d", ids[0]), "Ada: 1, Ada: 2", false, 1},
		{"none are", fmt.Sprintf("lobby/messages?after=%d", ids[2]), "", false, 1},
		{"some may be missing", "lobby/messages?after=7", "Ada: 0, Ada: 1, Ada: 2", true, 1},
		{"a room that nobody was in", "elsewhere/messages", "", false, 0},
		{"nor since the program has begun", "elsewhere/messages?after=7", "", true, 0},
	} {
		response, body := get(t, base+"/rooms/"+tc.path)
		got := parse[messages](t, body)
		if texts(got.Messages) != tc.want || got.Messages == nil || got.Gap != tc.gap || got.People != tc.people {
			t.Errorf("%s: got %s", tc.sentence, body)
		}
		if response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("its header is %v", response.Header)
		}
	}
	for _, path := range []string{"Lobby/messages", "lobby/messages?after=x", "lobby/messages?after=-1"} {
		if response, body := get(t, base+"/rooms/"+path); response.StatusCode != 400 {
			t.Errorf("%s: got %d %s", path, response.StatusCode, body)
		}
	}
}
