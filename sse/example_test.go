package sse_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// exampleGet serves h in memory, sends a request, and prints the first lines of the answer, except empty lines and IDs. It calls then when
// the answer has begun.
func exampleGet(h filo.Handler, lines int, then func()) {
	ln := servertest.NewListener()
	s := &filo.Server{Handler: h}
	go s.Serve(ln)
	defer s.Shutdown(context.Background())
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
	response, err := client.Get("http://filo.test/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	then()
	for in := bufio.NewScanner(response.Body); lines > 0 && in.Scan(); {
		if line := in.Text(); line != "" && !strings.HasPrefix(line, "id:") {
			fmt.Println(line)
			lines--
		}
	}
}

// A hub sends the events of a topic to all subscribers of the topic.
func ExampleHub() {
	hub := sse.NewHub(sse.HubOptions{Retry: 2 * time.Second})
	defer hub.Close()
	news := func(c *filo.Ctx) error { return hub.Serve(c, "news") }

	exampleGet(news, 5, func() {
		hub.Publish("news", sse.Event{Data: "it works"})
		hub.Publish("other", sse.Event{Data: "nobody has asked for this"})
		hub.Publish("news", sse.Event{Type: "weather", Data: "sun,\nno rain"})
	})
	// Output:
	// retry: 2000
	// data: it works
	// event: weather
	// data: sun,
	// data: no rain
}

// The handler decides which clients may subscribe to a topic.
func ExampleHub_Serve() {
	hub := sse.NewHub()
	defer hub.Close()
	room := func(c *filo.Ctx) error {
		user := c.Request.Header.Get("X-User") // as authentication has set it
		if user == "" {
			return filo.Error(401, "who are you?")
		}
		return hub.Serve(c, "everybody", "user "+user)
	}

	exampleGet(room, 1, func() {})
	// Output:
	// Unauthorized: who are you?
}

// A stream lasts while its handler runs, in this example until the countdown has ended or the client has left.
func ExampleOpen() {
	countdown := func(c *filo.Ctx) error {
		stream, err := sse.Open(c)
		if err != nil {
			return err
		}
		defer stream.Close()
		for i := 3; i > 0; i-- {
			if err := stream.Send(sse.Event{Data: fmt.Sprint(i)}); err != nil {
				return err
			}
			select {
			case <-time.After(time.Millisecond):
			case <-c.Context().Done(): // a countdown has an end, so a shutdown waits for it
				return context.Cause(c.Context())
			}
		}
		return stream.Send(sse.Event{Type: "end"})
	}

	exampleGet(countdown, 5, func() {})
	// Output:
	// data: 3
	// data: 2
	// data: 1
	// event: end
	// data:
}

func ExampleEvent_AppendTo() {
	event := sse.Event{ID: "17", Type: "message", Data: "two\nlines"}
	b, err := event.AppendTo(nil)
	fmt.Printf("%s%v\n", b, err)
	event.ID = "17\ndata: more"
	_, err = event.AppendTo(nil)
	fmt.Println(err)
	// Output:
	// event: message
	// data: two
	// data: lines
	// id: 17
	//
	// <nil>
	// sse: invalid event: a line break or NUL in the ID "17\ndata: more"
}
