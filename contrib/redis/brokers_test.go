package redisfilo_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// broker is a Stream or a Channel.
type broker interface {
	sse.Broker
	Err() error
}

// kinds are the ways to make brokers with the same name.
var kinds = map[string]func(*redisfilo.Redis) broker{
	"stream":  func(r *redisfilo.Redis) broker { return r.Stream("news") },
	"channel": func(r *redisfilo.Redis) broker { return r.Channel("news") },
}

// eachBroker runs a test with each kind of broker, on a durable redis-server.
func eachBroker(t *testing.T, test func(t *testing.T, s *redisServer, open func(*redisfilo.Redis) broker)) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startRedis(t, true), open)
		})
	}
}

// recorder records the deliveries that a follower has received.
type recorder struct {
	mu   sync.Mutex
	all  []sse.Delivery
	last atomic.Uint64
	live atomic.Bool
}

func (r *recorder) receive(d sse.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	if d.Live {
		r.live.Store(true)
		return
	}
	r.last.Store(d.Number)
}

// text returns the messages in order, with "gap" for each gap.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []string
	for _, d := range r.all {
		switch {
		case d.Gap:
			texts = append(texts, "gap")
		case !d.Live:
			texts = append(texts, d.Topic+":"+string(d.Message))
		}
	}
	return strings.Join(texts, " ")
}

// follow makes a recorder follow a broker until the test ends, and waits until the recorder is live.
func follow(t *testing.T, b broker) *recorder {
	t.Helper()
	r := new(recorder)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Follow(ctx, r.receive)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	poll(t, "the broker to be live", func() bool { return r.live.Load() && b.Err() == nil })
	return r
}

func publish(t *testing.T, b broker, topic, message string) uint64 {
	t.Helper()
	number, err := b.Publish(t.Context(), topic, []byte(message))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func wantText(t *testing.T, r *recorder, want string) {
	t.Helper()
	for end := time.Now().Add(patience); r.text() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got %q, want %q", r.text(), want)
		}
	}
}

// All processes get all messages, in the same order and with the same numbers. A process that starts later gets the messages that a stream
// has stored.
func TestBrokers(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, s *redisServer, open func(*redisfilo.Redis) broker) {
		one, two := open(s.connect(redisfilo.Options{})), open(s.connect(redisfilo.Options{}))
		if err := one.Err(); !errors.Is(err, redisfilo.ErrDown) || !errors.Is(err, filo.ErrBusy) {
			t.Errorf("before it follows: %v", err)
		}
		at1, at2 := follow(t, one), follow(t, two)
		var last uint64
		for i, b := range []broker{one, two, two, one} {
			number := publish(t, b, fmt.Sprint("t", i), "m\x00 \n"+fmt.Sprint(i))
			if number <= last {
				t.Errorf("number %d comes after %d", number, last)
			}
			last = number
		}
		const want = "gap t0:m\x00 \n0 t1:m\x00 \n1 t2:m\x00 \n2 t3:m\x00 \n3"
		wantText(t, at1, want)
		wantText(t, at2, want)
		if at1.last.Load() != last || at2.last.Load() != last {
			t.Errorf("the last numbers are %d and %d, not %d", at1.last.Load(), at2.last.Load(), last)
		}
		at3 := follow(t, open(s.connect(redisfilo.Options{})))
		if _, ok := one.(*redisfilo.Stream); ok {
			wantText(t, at3, want)
		} else {
			wantText(t, at3, "gap")
		}
		publish(t, two, "", "")
		wantText(t, at1, want+" :")
	})
}

// Redis is killed and restarted while two processes publish. Each message whose Publish has succeeded arrives, once and in order, whether it
// was sent before or after the kill. With pub/sub, a gap may replace some messages.
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, s *redisServer, open func(*redisfilo.Redis) broker) {
		var log records
		one, two := open(s.connect(redisfilo.Options{Logger: log.logger()})), open(s.connect(redisfilo.Options{}))
		at1, at2 := follow(t, one), follow(t, two)
		var mu sync.Mutex
		var published []uint64
		var failed, afterwards atomic.Int64
		var restarted atomic.Bool
		done := func() bool { return afterwards.Load() >= 20 }
		var publishers sync.WaitGroup
		for _, b := range []broker{one, two} {
			publishers.Go(func() {
				for !done() {
					number, err := b.Publish(context.Background(), "t", []byte("m"))
					if err != nil {
						failed.Add(1)
						time.Sleep(time.Millisecond)
						continue
					}
					mu.Lock()
					published = append(published, number)
					mu.Unlock()
					if restarted.Load() {
						afterwards.Add(1)
					}
				}
			})
		}
		enough := func(n int) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(published) >= n
			}
		}
		poll(t, "some messages", enough(50))
		s.kill()
		poll(t, "failures", func() bool { return failed.Load() > 0 && one.Err() != nil && two.Err() != nil })
		s.start()
		restarted.Store(true)
		publishers.Wait()
		final := publish(t, one, "t", "final")
		for name, r := range map[string]*recorder{"one": at1, "two": at2} {
			poll(t, "the last message", func() bool { return r.last.Load() >= final })
			got, gaps, last := map[uint64]bool{}, 0, uint64(0)
			r.mu.Lock()
			for i, d := range r.all {
				switch {
				case d.Gap && i > 0:
					gaps++
				case !d.Gap && !d.Live:
					if d.Number <= last {
						t.Errorf("%s: message %d comes after %d", name, d.Number, last)
					}
					got[d.Number] = true
					last = d.Number
				}
			}
			r.mu.Unlock()
			missing := 0
			for _, number := range published {
				if !got[number] {
					missing++
				}
			}
			if _, kept := one.(*redisfilo.Stream); missing > 0 && (kept || gaps == 0) {
				t.Errorf("%s: %d of %d messages are missing, after %d gaps", name, missing, len(published), gaps)
			}
		}
		if log.count("level=ERROR") != 1 {
			t.Errorf("want one record:\n%s", &log.text)
		}
	})
}

// If Redis hangs for a time, no message is lost, and during that time the broker reports that it isn't connected.
func TestBrokerHangs(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, s *redisServer, open func(*redisfilo.Redis) broker) {
		b := open(s.connect(redisfilo.Options{Timeout: 200 * time.Millisecond}))
		r := follow(t, b)
		publish(t, b, "t", "1")
		wantText(t, r, "gap t:1")
		s.signal(syscall.SIGSTOP)
		poll(t, "the broker to notice", func() bool { return b.Err() != nil })
		began := time.Now()
		if _, err := b.Publish(t.Context(), "t", []byte("2")); !errors.Is(err, redisfilo.ErrDown) || time.Since(began) > patience/2 {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		s.signal(syscall.SIGCONT)
		poll(t, "the broker to be connected", func() bool { return b.Err() == nil })
		poll(t, "a message", func() bool {
			_, err := b.Publish(t.Context(), "t", []byte("3"))
			return err == nil
		})
		poll(t, "it to arrive", func() bool { return strings.HasSuffix(r.text(), "t:3") })
	})
}

// If Redis loses its data, followers get a gap, and numbers continue to rise, even if Redis's clock is behind.
func TestBrokerLosesAll(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, s *redisServer, open func(*redisfilo.Redis) broker) {
		b := open(s.connect(redisfilo.Options{}))
		r := follow(t, b)
		last := publish(t, b, "t", "1")
		wantText(t, r, "gap t:1")
		client := s.client()
		defer client.Close()
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		wantText(t, r, "gap t:1 gap") // although nobody has published anything since the loss
		if number := publish(t, b, "t", "2"); number <= last {
			t.Errorf("number %d comes after %d", number, last)
		}
		wantText(t, r, "gap t:1 gap t:2")
	})
}

// A stream may have dropped its oldest messages. A follower that starts afterwards knows only later IDs, and a follower that hasn't read the
// dropped messages gets a gap.
func TestStreamTrimmed(t *testing.T) {
	t.Parallel()
	s := startRedis(t, false)
	open := func() *redisfilo.Stream {
		return s.connect(redisfilo.Options{}).Stream("short", redisfilo.StreamOptions{MaxLen: 1})
	}
	b := open()
	slow, blocked := new(recorder), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var first sync.Once
	go open().Follow(ctx, func(d sse.Delivery) {
		if !d.Gap && !d.Live {
			first.Do(func() { <-blocked })
		}
		slow.receive(d)
	})
	poll(t, "the follower", slow.live.Load)
	var numbers []uint64
	for i := range 1000 { // Redis trims whole nodes of a hundred messages
		numbers = append(numbers, publish(t, b, "t", fmt.Sprint(i)))
	}
	late := follow(t, b)
	late.mu.Lock()
	if d := late.all[0]; !d.Gap || d.Number <= numbers[0] || d.Number >= numbers[999] {
		t.Errorf("it begins with %+v; the numbers are %d to %d", d, numbers[0], numbers[999])
	}
	late.mu.Unlock()
	close(blocked)
	poll(t, "the last message", func() bool { return slow.last.Load() == numbers[999] })
	if got := slow.text(); strings.Count(got, "gap") != 2 || !strings.HasSuffix(got, " t:999") {
		t.Errorf("got %q", got)
	}
}

// Messages that another program puts into the stream or the channel are skipped.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	s := startRedis(t, false)
	client := s.client()
	defer client.Close()
	stream, channel := s.connect(redisfilo.Options{}).Stream("news"), s.connect(redisfilo.Options{}).Channel("news")
	inStream, inChannel := follow(t, stream), follow(t, channel)
	if err := client.Do(t.Context(), "XADD", "filo:stream:{news}", "*", "some", "thing").Err(); err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{"", "1", "1 2 m 100 short", "x y z a b"} {
		if err := client.Publish(t.Context(), "filo:channel:{news}", payload).Err(); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, stream, "t", "1")
	poll(t, "the message", func() bool { return strings.HasSuffix(inStream.text(), "t:1") })
	poll(t, "the message", func() bool {
		publish(t, channel, "t", "1")
		return strings.HasSuffix(inChannel.text(), "t:1")
	})
}

// instance returns a server with a hub, which stands for one of several processes.
func instance(t *testing.T, s *redisServer) (*sse.Hub, *servertest.Server) {
	t.Helper()
	hub := sse.NewHub(sse.HubOptions{Broker: s.connect(redisfilo.Options{}).Stream("news")})
	t.Cleanup(func() { hub.Close() })
	poll(t, "the hub to be ready", func() bool { return hub.Ready(t.Context()) == nil })
	return hub, servertest.NewServer(t, &filo.Server{
		Handler: func(c *filo.Ctx) error { return hub.Serve(c, "t") }, Logger: slog.New(slog.DiscardHandler),
	})
}

// events reads the stream of an instance, beginning after an ID, until it has received an event with the data.
func events(t *testing.T, s *servertest.Server, lastID, until string) (data []string, id string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://filo.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	response, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	var got string
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			got = value
			data = append(data, value)
		case "event":
			data = append(data, value)
		case "":
			if got == until {
				return data, id
			}
		}
	}
	t.Fatalf("the stream has ended after %q: %v", data, lines.Err())
	return nil, ""
}

// A client that resumes at a different instance, even at one that was started since, gets each event once.
func TestResumeElsewhere(t *testing.T) {
	s := startRedis(t, false)
	hub1, one := instance(t, s)
	send := func(hub *sse.Hub, data string) string {
		id, err := hub.Publish("t", sse.Event{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	id := send(hub1, "1")
	hub2, two := instance(t, s)
	send(hub2, "2")
	send(hub1, "3")
	got, id := events(t, one, id, "3")
	if strings.Join(got, " ") != "2 3" {
		t.Errorf("got %q", got)
	}
	hub1.Close()
	send(hub2, "4")
	_, three := instance(t, s)
	for _, instance := range []*servertest.Server{two, three} {
		if got, _ := events(t, instance, id, "4"); strings.Join(got, " ") != "4" {
			t.Errorf("got %q", got)
		}
	}
}
