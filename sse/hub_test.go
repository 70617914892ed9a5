package sse_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// eachHub runs a test of a hub with each driver, without and with TLS.
func eachHub(t *testing.T, options sse.HubOptions, test func(t *testing.T, h *host, hub *sse.Hub)) {
	var hub *sse.Hub
	each(t, func(*testing.T) filo.Handler {
		hub = sse.NewHub(options)
		return serveTopics(hub)
	}, func(t *testing.T, h *host) { test(t, h, hub) })
}

// Subscribers get the events of their topics, and no other events. Their connections wait without a worker.
func TestHub(t *testing.T) {
	eachHub(t, sse.HubOptions{Retry: 3 * time.Second}, func(t *testing.T, h *host, hub *sse.Hub) {
		a, b, both := h.subscribe(t, "a", ""), h.subscribe(t, "b", ""), h.subscribe(t, "a,b,a", "")
		if got := hub.Stats(); got.Subscribers != 3 || got.Topics != 2 {
			t.Errorf("got %+v", got)
		}
		if h.Driver == filo.DriverLoop {
			poll(t, "the workers to be free", func() bool { return h.Stats().WorkersRunning == 0 && h.Stats().ConnsParked == 3 })
		}
		publish(t, hub, "a", "1\n2")
		publish(t, hub, "b", 3)
		publish(t, hub, "nobody's", 4)
		if _, err := hub.Publish("a", sse.Event{Type: "sum", Comment: "all"}); err != nil {
			t.Fatal(err)
		}
		a.want(t, "1\n2")
		b.want(t, "3")
		both.want(t, "1\n2", "3")
		for _, c := range []*client{a, both} {
			if got, err := c.next(); err != nil || got.kind != "sum" || got.data != "" || got.id != hub.LastEventID() {
				t.Errorf("got %q, %v", got, err)
			}
			if c.retry != "3000" || !slices.Equal(c.comments, []string{"all"}) {
				t.Errorf("retry %q, comments %q", c.retry, c.comments)
			}
		}
		if got := hub.Stats(); got.Events != 4 || got.Topics != 3 || got.Dropped != 0 || got.HistoryBytes == 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// The head has the fields that middleware has set. An HTTP/1.0 client gets no chunks, and HEAD gets GET's head without a body.
func TestHubHead(t *testing.T) {
	hub := sse.NewHub()
	cors := middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.example"}})
	s := servertest.New(t, cors(func(c *filo.Ctx) error {
		c.Response.Header.Set("X-Evil", "a\r\nb: c")
		return hub.Serve(c, "a")
	}))
	for _, line := range []string{"GET / HTTP/1.1", "HEAD / HTTP/1.1", "GET / HTTP/1.0"} {
		c := exchange(t, s.Dial(t), line, "Origin: https://a.example")
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Length": "",
			"Access-Control-Allow-Origin": "https://a.example", "X-Evil": "a  b: c", "B": "",
		} {
			if got := c.response.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", line, name, got, want)
			}
		}
		if strings.HasPrefix(line, "HEAD") {
			c.wantEnd(t, false)
			continue
		}
		if chunked := c.response.TransferEncoding != nil; chunked != strings.HasSuffix(line, "1.1") {
			t.Errorf("%s: chunked: %v", line, chunked)
		}
		publish(t, hub, "a", line)
		c.next()
		c.want(t, line)
		c.Close()
		poll(t, "the subscriber to go", func() bool { return hub.Stats().Subscribers == 0 })
	}
	hub.Close()
}

// If several goroutines publish at once, all subscribers get the events in the same order, which is the order of the IDs.
func TestHubOrder(t *testing.T) {
	const publishers, subscribers = 8, 20
	events := 300
	if testing.Short() {
		events = 50
	}
	eachHub(t, sse.HubOptions{MaxQueueBytes: 8 << 20}, func(t *testing.T, h *host, hub *sse.Hub) {
		var clients []*client
		for i := range subscribers {
			clients = append(clients, h.subscribe(t, []string{"a", "b", "a,b"}[i%3], ""))
		}
		var group sync.WaitGroup
		for p := range publishers {
			group.Go(func() {
				for i := range events {
					publish(t, hub, []string{"a", "b"}[p%2], fmt.Sprint(p, " ", i))
				}
			})
		}
		for i, c := range clients {
			group.Go(func() {
				next, last := make([]int, publishers), uint64(0)
				for range events * publishers / []int{2, 2, 1}[i%3] {
					got, err := c.next()
					if err != nil {
						t.Errorf("subscriber %d: %v", i, err)
						return
					}
					var p, n int
					fmt.Sscan(got.data, &p, &n)
					if number := numberOf(got.id); n != next[p] || number <= last {
						t.Errorf("subscriber %d: got event %d of publisher %d as %d behind %d, want event %d", i, n, p, number, last, next[p])
						return
					} else {
						last = number
					}
					next[p]++
				}
			})
		}
		group.Wait()
	})
}

// numberOf returns the number of the event in its ID.
func numberOf(id string) uint64 {
	_, digits, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}

// A client that reconnects gets the events that it has missed, in order, and no events of topics that it doesn't ask for.
func TestHubResume(t *testing.T) {
	eachHub(t, sse.HubOptions{}, func(t *testing.T, h *host, hub *sse.Hub) {
		c := h.subscribe(t, "a,b", "")
		first := c.lastID
		c.Close()
		publish(t, hub, "a", 1)
		two := publish(t, hub, "b", 2)
		publish(t, hub, "c", "not asked for")
		publish(t, hub, "a", 3)
		h.subscribe(t, "a,b", first).want(t, "1", "2", "3")
		c = h.subscribe(t, "b,a", two)
		c.want(t, "3")
		publish(t, hub, "b", 4)
		c.want(t, "4")
		c = h.subscribe(t, "b", first)
		c.want(t, "2", "4")
		c = h.subscribe(t, "a,b", hub.LastEventID())
		publish(t, hub, "a", 5)
		c.want(t, "5")
	})
}

// Missed events of many topics are sent in the order in which they were published, and before events that are published after the
// client has reconnected.
func TestHubResumeManyTopics(t *testing.T) {
	eachHub(t, sse.HubOptions{}, func(t *testing.T, h *host, hub *sse.Hub) {
		var topics, want []string
		for i := range 20 {
			topics = append(topics, fmt.Sprint("topic", i))
		}
		all := strings.Join(topics, ",")
		c := h.subscribe(t, all, "")
		first := c.lastID
		c.Close()
		for i := range 300 {
			publish(t, hub, topics[i*7%len(topics)], i)
			want = append(want, strconv.Itoa(i))
		}
		c = h.subscribe(t, all, first)
		publish(t, hub, topics[3], "since")
		c.want(t, append(want, "since")...)
	})
}

// A client that has received the head of the answer gets all events that are published from then on.
func TestHubFromHead(t *testing.T) {
	eachHub(t, sse.HubOptions{}, func(t *testing.T, h *host, hub *sse.Hub) {
		for i := range 100 {
			c := h.get(t, "/topics/a")
			id := publish(t, hub, "a", i)
			if got, err := c.next(); err != nil || got.kind != "" || numberOf(got.id) != numberOf(id)-1 {
				t.Fatalf("got %q, %v; want the ID before %s", got, err, id)
			}
			c.want(t, strconv.Itoa(i))
			c.Close()
			if h.secure && i > 10 {
				break // handshakes take long
			}
		}
	})
}

// A client whose last event isn't known gets the gap event, with an ID from which it can resume, and then the new events.
func TestHubGap(t *testing.T) {
	for _, test := range []struct {
		holds   string
		options sse.HubOptions
		lastID  func(hub *sse.Hub, first string) string
	}{
		{"an ID of another hub", sse.HubOptions{}, func(*sse.Hub, string) string { return sse.NewHub().LastEventID() }},
		{"an ID of something else", sse.HubOptions{}, func(*sse.Hub, string) string { return "17" }},
		{"an ID without a number", sse.HubOptions{}, func(_ *sse.Hub, first string) string { return strings.TrimRight(first, "0123456789") }},
		{"an event that is still to come", sse.HubOptions{}, func(_ *sse.Hub, first string) string { return first + "00" }},
		{"a number that is none", sse.HubOptions{}, func(_ *sse.Hub, first string) string { return first + "00000000000000000000" }},
		{"an event of which too many came since", sse.HubOptions{HistoryEvents: 2}, nil},
		{"an event of which too much came since", sse.HubOptions{HistoryBytes: 80}, nil},
		{"an event when too much came since in all topics", sse.HubOptions{MaxHistoryBytes: 80}, nil},
		{"no history", sse.HubOptions{HistoryEvents: -1}, nil},
		{"a history that no event fits in", sse.HubOptions{HistoryBytes: 1}, nil},
	} {
		t.Run(test.holds, func(t *testing.T) {
			test.options.Gap = sse.Event{Type: "stale", Data: "fetch\nit"}
			hub := sse.NewHub(test.options)
			h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
			first := publish(t, hub, "a", 0)
			for i := range 3 {
				publish(t, hub, "a", strings.Repeat(strconv.Itoa(i), 10))
			}
			lastID := first
			if test.lastID != nil {
				lastID = test.lastID(hub, first)
			}
			c := h.subscribe(t, "a", lastID)
			want := parsed{hub.LastEventID(), "stale", "fetch\nit"}
			if got, err := c.next(); err != nil || got != want {
				t.Fatalf("got %q, %v; want %q", got, err, want)
			}
			publish(t, hub, "a", "new")
			c.want(t, "new")
		})
	}
}

// The default gap event is called "reset".
func TestHubGapDefault(t *testing.T) {
	hub := sse.NewHub()
	h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
	if got, err := h.subscribe(t, "a", "x").next(); err != nil || got.kind != "reset" || got.data != "" || got.id != hub.LastEventID() {
		t.Errorf("got %q, %v", got, err)
	}
}

// Clients that disconnect and reconnect while events are published get each event once, in order.
func TestHubResumeConcurrent(t *testing.T) {
	const clients = 16
	eachHub(t, sse.HubOptions{HistoryEvents: 400, HistoryBytes: 8 << 20, MaxQueueBytes: 8 << 20}, func(t *testing.T, h *host, hub *sse.Hub) {
		events := 400
		if testing.Short() || h.secure { // handshakes are most of the work
			events = 150
		}
		var group sync.WaitGroup
		for n := range clients {
			topics := []string{"a", "b", "a,b"}[n%3]
			c := h.subscribe(t, topics, "")
			group.Go(func() {
				next := map[string]int{}
				away := 0
				for left := events * (1 + n%3/2); left > 0; left-- {
					got, err := c.next()
					if err != nil {
						t.Errorf("client %d: %v", n, err)
						return
					}
					topic, number, _ := strings.Cut(got.data, " ")
					if want := strconv.Itoa(next[topic]); number != want {
						t.Errorf("client %d: got event %q of topic %s, want %s; it was away %d times", n, number, topic, want, away)
						return
					}
					next[topic]++
					if rand.IntN(20) == 0 {
						away++
						if c, err = h.again(t, c, topics); err != nil {
							t.Errorf("client %d: %v", n, err)
							return
						}
					}
				}
				c.Close()
			})
		}
		for _, topic := range []string{"a", "b"} {
			group.Go(func() {
				for i := range events {
					publish(t, hub, topic, fmt.Sprint(topic, " ", i))
					if i%10 == 0 {
						time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // so that clients sometimes wait for the next event
					}
				}
			})
		}
		group.Wait()
		poll(t, "the subscribers to go", func() bool { return hub.Stats().Subscribers == 0 })
		if dropped := hub.Stats().Dropped; dropped > 0 {
			t.Errorf("%d were dropped", dropped)
		}
	})
}

// Even if the history is too small, clients get no event twice, and miss events only where they get the gap event.
func TestHubGapConcurrent(t *testing.T) {
	const clients, events = 8, 1000
	hub := sse.NewHub(sse.HubOptions{HistoryEvents: 5})
	h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
	var group sync.WaitGroup
	for n := range clients {
		c := h.subscribe(t, "a", "")
		group.Go(func() {
			for next := 0; next < events; {
				got, err := c.next()
				if err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
				if got.kind == "reset" {
					// The ID has the number of the last missed event, counted from 1, which is the index of the next event.
					if number := int(numberOf(got.id)); number <= next {
						t.Errorf("client %d: a gap up to %d without one: %d is next", n, number, next)
					} else {
						next = number
					}
					continue
				}
				if want := strconv.Itoa(next); got.data != want {
					t.Errorf("client %d: got %s, want %s", n, got.data, want)
					return
				}
				if next++; rand.IntN(10) == 0 {
					if c, err = h.again(t, c, "a"); err != nil {
						t.Errorf("client %d: %v", n, err)
						return
					}
				}
			}
			c.Close()
		})
	}
	for i := range events {
		publish(t, hub, "a", i)
		time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
	}
	group.Wait()
}

// A client that doesn't read is dropped when its queue is full, and may reconnect. The other clients get every event. A panic of OnDrop
// is only logged.
func TestHubSlow(t *testing.T) {
	type drop struct {
		client string
		topics []string
	}
	drops := make(chan drop, 10)
	options := sse.HubOptions{MaxQueueBytes: 64 << 10, HistoryEvents: 1000, HistoryBytes: 4 << 20,
		OnDrop: func(client net.Addr, topics []string) {
			drops <- drop{client.String(), topics}
			panic("OnDrop panics")
		}}
	eachHub(t, options, func(t *testing.T, h *host, hub *sse.Hub) {
		const fast, events = 5, 200
		conn, setBuffer, err := h.dial(t)
		if err != nil {
			t.Fatal(err)
		}
		setBuffer(4 << 10)
		slow := exchange(t, conn, "GET /topics/a,b HTTP/1.1")
		slow.next()
		payload := strings.Repeat("x", 1000)
		var group sync.WaitGroup
		window := make(chan bool, 40) // limits how many events all clients together are behind, so that no queue gets full
		var clients []*client
		for range fast {
			clients = append(clients, h.subscribe(t, "a", ""))
		}
		for _, c := range clients {
			group.Go(func() {
				for i := range events {
					if err := c.expect(fmt.Sprint(i, payload)); err != nil {
						t.Error(err)
						c.Close()
					}
					<-window
				}
			})
		}
		for i := range events {
			for range fast {
				window <- true
			}
			publish(t, hub, "a", fmt.Sprint(i, payload))
		}
		group.Wait()
		select {
		case got := <-drops:
			if got.client != slow.LocalAddr().String() || !slices.Equal(got.topics, []string{"a", "b"}) {
				t.Errorf("dropped: %+v", got)
			}
		case <-time.After(patience):
			t.Fatal("nobody was dropped")
		}
		// The place of a dropped client is free when its connection is closed, so that it can come back at once.
		if got := hub.Stats(); got.Dropped != 1 || got.Subscribers != fast {
			t.Errorf("got %+v", got)
		}
		lastID := slow.lastID
		setBuffer(1 << 20)
		slow.wantEnd(t, true) // the end must not look as if the stream were complete
		if slow.lastID == hub.LastEventID() {
			t.Error("it has got everything, and wasn't slow")
		}
		// The 200 KB of stored events exceed the queue's limit.
		again := h.subscribe(t, "a", lastID)
		for i := range events {
			again.want(t, fmt.Sprint(i, payload))
		}
	})
}

// The events that a client has missed don't count against MaxQueueBytes. But once the client has read them, the limit holds again.
func TestHubSlowLater(t *testing.T) {
	options := sse.HubOptions{MaxQueueBytes: 64 << 10, HistoryEvents: 3000, HistoryBytes: 4 << 20}
	eachHub(t, options, func(t *testing.T, h *host, hub *sse.Hub) {
		payload := strings.Repeat("x", 1000)
		lastID := publish(t, hub, "a", payload)
		const missed = 2000
		for range missed {
			publish(t, hub, "a", payload)
		}
		conn, setBuffer, err := h.dial(t)
		if err != nil {
			t.Fatal(err)
		}
		setBuffer(64 << 10)
		c := exchange(t, conn, "GET /topics/a HTTP/1.1", "Last-Event-ID: "+lastID)
		for range missed {
			c.want(t, payload)
		}
		for range missed / 2 {
			publish(t, hub, "a", payload)
		}
		poll(t, "the client to be dropped", func() bool { return hub.Stats().Dropped == 1 })
	})
}

// The hub notices that a client leaves, and its place is free again.
func TestHubLeave(t *testing.T) {
	eachHub(t, sse.HubOptions{HistoryEvents: -1}, func(t *testing.T, h *host, hub *sse.Hub) {
		var clients []*client
		for i := range 50 {
			clients = append(clients, h.subscribe(t, fmt.Sprint("all,", i), ""))
		}
		if got := hub.Stats(); got.Subscribers != 50 || got.Topics != 51 {
			t.Errorf("got %+v", got)
		}
		stay := h.subscribe(t, "all", "")
		for i, c := range clients {
			if i%2 == 0 && !h.secure {
				c.Conn.(*net.TCPConn).SetLinger(0) // so that Close resets the connection
			}
			c.Close()
		}
		poll(t, "the subscribers to go", func() bool { return hub.Stats().Subscribers == 1 && h.Stats().ConnsOpen == 1 })
		if got := hub.Stats(); got.Topics != 1 || got.Dropped != 0 {
			t.Errorf("got %+v", got)
		}
		publish(t, hub, "all", "still")
		stay.want(t, "still")
	})
}

// If a client closes its writing half, the hub ends the stream.
func TestHubHalfClose(t *testing.T) {
	hub := sse.NewHub()
	h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
	c := h.subscribe(t, "a", "")
	c.Conn.(*net.TCPConn).CloseWrite()
	c.wantEnd(t, false)
	poll(t, "the subscriber to go", func() bool { return hub.Stats().Subscribers == 0 })
}

// Bytes that a client sends are discarded. A client that sends too many is disconnected.
func TestHubTalkative(t *testing.T) {
	eachHub(t, sse.HubOptions{}, func(t *testing.T, h *host, hub *sse.Hub) {
		c := h.subscribe(t, "a", "")
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		publish(t, hub, "a", 1)
		c.want(t, "1")
		go io.WriteString(c, strings.Repeat("x", 100_000))
		poll(t, "the subscriber to go", func() bool { return hub.Stats().Subscribers == 0 })
	})
}

// At a shutdown each subscriber gets all events that were published, and a proper end of the body.
func TestHubShutdown(t *testing.T) {
	eachHub(t, sse.HubOptions{}, func(t *testing.T, h *host, hub *sse.Hub) {
		var clients []*client
		for range 30 {
			clients = append(clients, h.subscribe(t, "a", ""))
		}
		for i := range 20 {
			publish(t, hub, "a", i)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			for i := range 20 {
				c.want(t, fmt.Sprint(i))
			}
			c.wantEnd(t, false)
		}
		poll(t, "the subscribers to go", func() bool { return hub.Stats().Subscribers == 0 })
		publish(t, hub, "a", "to nobody")
	})
}

// Close disconnects all subscribers. Afterwards the hub accepts neither clients nor events.
func TestHubClose(t *testing.T) {
	eachHub(t, sse.HubOptions{}, func(t *testing.T, h *host, hub *sse.Hub) {
		a, b := h.subscribe(t, "a", ""), h.subscribe(t, "b", "")
		publish(t, hub, "a", 1)
		a.want(t, "1")
		if err := errors.Join(hub.Close(), hub.Close()); err != nil {
			t.Error(err)
		}
		for _, c := range []*client{a, b} {
			c.wantEnd(t, false)
		}
		if _, err := hub.Publish("a", sse.Event{Data: "x"}); !errors.Is(err, sse.ErrHubClosed) {
			t.Errorf("Publish returned %v", err)
		}
		if c := h.get(t, "/topics/a"); c.response.StatusCode != 503 {
			t.Errorf("status %d", c.response.StatusCode)
		}
		poll(t, "the subscribers to go", func() bool { return hub.Stats().Subscribers == 0 })
		if got := hub.Stats(); got.Topics != 0 || got.HistoryBytes != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// A hub may be closed while clients come and go and events are published.
func TestHubCloseConcurrent(t *testing.T) {
	for range 10 {
		hub := sse.NewHub()
		h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for {
					if _, err := hub.Publish("a", sse.Event{Data: "x"}); err != nil {
						return
					}
				}
			})
			group.Go(func() {
				for {
					conn, _, err := h.dial(t)
					if err != nil {
						t.Error(err)
						return
					}
					c, err := ask(conn, "GET /topics/a HTTP/1.1")
					if err != nil || c.response.StatusCode != 200 {
						return
					}
					c.next()
					c.Close()
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond) // close at any moment
		hub.Close()
		group.Wait()
		poll(t, "the subscribers to go", func() bool { return hub.Stats().Subscribers == 0 })
	}
}

// A subscriber that gets no events gets comments at intervals.
func TestHubHeartbeat(t *testing.T) {
	for _, test := range []struct {
		holds     string
		heartbeat time.Duration
		events    []time.Duration // from the beginning
		until     time.Duration
		want      int
	}{
		{"every 15 seconds, but for the first time, before which the ID was sent", 0, nil, 46 * time.Second, 2},
		{"as often as it is set", time.Second, nil, 4500 * time.Millisecond, 3},
		{"never", -1, nil, time.Hour, 0},
		{"not when there was an event", 10 * time.Second, []time.Duration{5 * time.Second, 25 * time.Second}, 41 * time.Second, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := sse.NewHub(sse.HubOptions{Heartbeat: test.heartbeat, HistoryEvents: -1})
			s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: serveTopics(hub)})
			begin := time.Now()
			c := exchange(t, s.Dial(t), "GET /topics/a HTTP/1.1")
			c.next()
			for _, at := range test.events {
				time.Sleep(time.Until(begin.Add(at)))
				publish(t, hub, "a", "x")
				c.want(t, "x")
			}
			time.Sleep(time.Until(begin.Add(test.until)))
			go s.Config.Shutdown(t.Context())
			c.wantEnd(t, false)
			if len(c.comments) != test.want {
				t.Errorf("%s: %d heartbeats, want %d", test.holds, len(c.comments), test.want)
			}
			hub.Close()
		})
	}
}

// A topic is forgotten when it has neither subscribers nor, after a time, a history.
func TestHubExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := sse.NewHub(sse.HubOptions{HistoryTime: time.Minute})
		begin := publish(t, hub, "a", 1)
		time.Sleep(40 * time.Second)
		publish(t, hub, "b", 2)
		time.Sleep(40 * time.Second)
		if got := hub.Stats(); got.Topics != 1 {
			t.Errorf("after 80 seconds: %+v", got)
		}
		time.Sleep(40 * time.Second)
		if got := hub.Stats(); got.Topics != 0 || got.HistoryBytes != 0 {
			t.Errorf("after 2 minutes: %+v", got)
		}
		// A forgotten topic isn't mistaken for a topic that has had no events: a client with an old ID gets the gap event.
		s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: serveTopics(hub)})
		c := exchange(t, s.Dial(t), "GET /topics/b HTTP/1.1", "Last-Event-ID: "+begin)
		if got, err := c.next(); err != nil || got.kind != "reset" {
			t.Errorf("got %q, %v", got, err)
		}
		c.Close()
		hub.Close()
	})
}

func TestHubLimits(t *testing.T) {
	hub := sse.NewHub(sse.HubOptions{MaxSubscribers: 3, MaxTopics: 2, MaxTopicsPerSubscriber: 2, MaxEventBytes: 1000, HistoryEvents: -1})
	h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
	refused := func(holds, topics string, want int) {
		t.Helper()
		c := h.get(t, "/topics/"+topics)
		if c.response.StatusCode != want || c.response.Header.Get("Content-Type") == "text/event-stream" {
			t.Errorf("%s: %d, want %d", holds, c.response.StatusCode, want)
		}
	}
	refused("too many topics for one", "a,b,c", 400)
	refused("too long a topic", strings.Repeat("x", 1025), 400)
	c := h.subscribe(t, "a,b", "")
	refused("too many topics", "a,c", 503)
	if got := hub.Stats(); got.Subscribers != 1 || got.Topics != 2 {
		t.Errorf("after a refusal: %+v", got)
	}
	h.subscribe(t, "a", "")
	h.subscribe(t, "a", "")
	refused("too many subscribers", "a", 503)
	c.Close()
	poll(t, "the subscriber to go", func() bool { return hub.Stats().Subscribers == 2 })
	h.subscribe(t, "b", "")

	for _, test := range []struct {
		holds string
		event sse.Event
		want  error
	}{
		{"its data are too large", sse.Event{Data: strings.Repeat("x", 1001)}, sse.ErrEventTooLarge},
		{"what is sent is too large", sse.Event{Data: strings.Repeat("\n", 500)}, sse.ErrEventTooLarge},
		{"its comment is too large", sse.Event{Comment: strings.Repeat("x", 1001)}, sse.ErrEventTooLarge},
		{"it is empty", sse.Event{}, sse.ErrInvalidEvent},
		{"it has an ID", sse.Event{ID: "1", Data: "x"}, sse.ErrInvalidEvent},
		{"its type has a line break", sse.Event{Type: "a\nb", Data: "x"}, sse.ErrInvalidEvent},
	} {
		if id, err := hub.Publish("a", test.event); !errors.Is(err, test.want) || id != "" {
			t.Errorf("%s: %q, %v", test.holds, id, err)
		}
	}
	if got := hub.Stats(); got.Events != 0 {
		t.Errorf("got %+v", got)
	}
}

// All histories together stay within their limit. The topics without an event for the longest time lose their history first.
func TestHubHistoryBytes(t *testing.T) {
	hub := sse.NewHub(sse.HubOptions{MaxHistoryBytes: 10_000})
	for i := range 100 {
		publish(t, hub, "often", i)
		publish(t, hub, fmt.Sprint("once ", i), strings.Repeat("x", 500))
	}
	got := hub.Stats()
	if got.HistoryBytes > 10_000 || got.HistoryBytes < 9_000 || got.Topics > 20 || got.Topics < 10 {
		t.Errorf("got %+v", got)
	}
	hub.Close()
}

// Serve without topics fails with 400, and doesn't panic.
func TestHubNoTopic(t *testing.T) {
	hub := sse.NewHub()
	s := servertest.New(t, func(c *filo.Ctx) error { return hub.Serve(c) })
	if answer := s.Do(t, "GET /"); answer.Status != 400 {
		t.Errorf("status %d", answer.Status)
	}
}

// If the connection can't be parked, no subscriber is left.
func TestHubHeadSent(t *testing.T) {
	hub := sse.NewHub(sse.HubOptions{HistoryEvents: -1})
	s := servertest.New(t, func(c *filo.Ctx) error {
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		if err := hub.Serve(c, "a"); !errors.Is(err, filo.ErrHeadSent) {
			t.Errorf("Serve returned %v", err)
		}
		return nil
	})
	s.Do(t, "GET /")
	if got := hub.Stats(); got.Subscribers != 0 || got.Topics != 0 {
		t.Errorf("got %+v", got)
	}
	hub.Close()
}

// NewHub panics for invalid options.
func TestNewHubPanics(t *testing.T) {
	for _, options := range []sse.HubOptions{
		{Retry: -1}, {HistoryBytes: -1}, {HistoryTime: -1}, {MaxHistoryBytes: -1}, {MaxQueueBytes: -1}, {MaxEventBytes: -1},
		{MaxSubscribers: -1}, {MaxTopics: -1}, {MaxTopicsPerSubscriber: -1}, {MaxEventBytes: 1000, MaxQueueBytes: 999},
		{Gap: sse.Event{ID: "1"}}, {Gap: sse.Event{Type: "a\nb"}},
	} {
		func() {
			defer func() {
				if message, ok := recover().(string); !ok || !strings.HasPrefix(message, "sse: HubOptions: ") {
					t.Errorf("%+v: %q", options, message)
				}
			}()
			sse.NewHub(options)
		}()
	}
	sse.NewHub(sse.HubOptions{MaxQueueBytes: 100}) // with this limit, the default of MaxEventBytes is smaller
}

// A hub that NewHub hasn't made returns errors that say so.
func TestZeroHub(t *testing.T) {
	var hub sse.Hub
	if _, err := hub.Publish("a", sse.Event{Data: "b"}); err == nil || !strings.Contains(err.Error(), "NewHub") {
		t.Errorf("Publish: %v", err)
	}
	served := make(chan error, 1)
	servertest.New(t, func(c *filo.Ctx) error {
		err := hub.Serve(c, "a")
		served <- err
		return err
	}).Do(t, "GET /")
	if err := <-served; err == nil || !strings.Contains(err.Error(), "NewHub") {
		t.Errorf("Serve: %v", err)
	}
	hub.LastEventID()
	hub.Stats()
	hub.Close()
}
