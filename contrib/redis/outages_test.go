package redisfilo_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/router"
)

var (
	outageTime = flag.Duration("outages", 10*time.Second, "how long each trouble of BenchmarkOutages lasts")
	outageOnly = flag.String("trouble", "", "what the name of a trouble contains; all if empty")
	outageRate = flag.Int("rate", 500, "requests per second of BenchmarkOutages")
)

// BenchmarkOutages prints what clients see of each trouble of Redis, for docs/OPERATIONS.md:
//
//	go test -run '^$' -bench Outages -benchtime 1x -outages 2m
func BenchmarkOutages(b *testing.B) {
	fmt.Printf("\n| Redis, for %v | 200 | median, p99 of those | 503 | median, p99 of those | until all was as before | records in the log |\n", *outageTime)
	fmt.Println("| --- | --: | --: | --: | --: | --: | --: |")
	slow := func(d time.Duration) func(*trouble) { return func(t *trouble) { t.link.slow(d); t.pause(1) } }
	for _, each := range []struct {
		name string
		make func(*trouble)
	}{
		{"takes 20 ms longer", slow(20 * time.Millisecond)},
		{"takes 160 ms longer", slow(160 * time.Millisecond)},
		{"takes 200 ms longer", slow(200 * time.Millisecond)},
		{"takes 400 ms longer", slow(400 * time.Millisecond)},
		{"is silent for 3 s, and takes 200 ms longer all the time", func(t *trouble) {
			t.link.slow(200 * time.Millisecond)
			t.pause(0.5)
			t.link.silence(true)
			time.Sleep(3 * time.Second)
			t.link.silence(false)
			t.pause(0.5)
		}},
		{"is silent for 3 s", func(t *trouble) {
			t.link.silence(true)
			time.Sleep(3 * time.Second)
			t.link.silence(false)
		}},
		{"is killed", func(t *trouble) { t.redis.kill(); t.pause(1); t.redis.start() }},
		{"is full", func(t *trouble) { t.memory("1"); t.pause(1); t.memory("0") }},
	} {
		if strings.Contains(each.name, *outageOnly) {
			(&trouble{B: b, name: each.name, make: each.make}).run()
		}
	}
}

// trouble is one kind of trouble, and what clients see of it.
type trouble struct {
	*testing.B
	name  string
	make  func(*trouble)
	redis *redisServer
	link  *link

	mu       sync.Mutex
	answers  []answer
	troubled atomic.Bool
}

type answer struct {
	due      time.Time
	took     time.Duration
	status   int
	troubled bool
}

func (t *trouble) pause(part float64) { time.Sleep(time.Duration(part * float64(*outageTime))) }

func (t *trouble) memory(limit string) {
	client := t.redis.client()
	defer client.Close()
	if err := client.ConfigSet(context.Background(), "maxmemory", limit).Err(); err != nil {
		t.Fatal(err)
	}
}

func (t *trouble) run() {
	t.redis = startRedis(t, false)
	t.link = newLink(t, filepath.Join(t.redis.dir, "s"))
	var log records
	shared := redisfilo.New(t.link.client(t, 400), redisfilo.Options{Logger: log.logger()})
	routes := router.New()
	fine := func(c *filo.Ctx) error { return c.Text(200, "fine") }
	routes.GET("/limited", fine, ratelimit.New(1e6, time.Minute, ratelimit.Options{Store: shared.RateLimits("all", redisfilo.Refuse)}))
	routes.GET("/user", func(c *filo.Ctx) error {
		if _, err := session.Get(c); err != nil {
			return err
		}
		return fine(c)
	}, session.New(session.Options{Store: shared.Sessions(redisfilo.Refuse), Insecure: true}))
	server := &filo.Server{Handler: routes.Serve, Logger: log.logger()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	load.Go(func() { t.load(ctx, "http://"+listener.Addr().String()) })
	time.Sleep(3 * time.Second)
	before := log.text.Len()
	t.troubled.Store(true)
	t.make(t)
	t.troubled.Store(false)
	t.link.slow(0)
	ended := time.Now()
	normal := t.normal(ended)
	stop()
	load.Wait()
	log.mu.Lock()
	lines := strings.Count(log.text.String()[before:], "redisfilo:") + strings.Count(log.text.String()[before:], "refuses requests")
	log.mu.Unlock()
	fmt.Printf("| %s | %s | %s | %.1f s | %d |\n", t.name, t.of(200), t.of(503), normal.Seconds(), lines)
}

// normal returns how long after a time a second began in which all requests were served.
func (t *trouble) normal(ended time.Time) time.Duration {
	for begin := ended; ; time.Sleep(100 * time.Millisecond) {
		t.mu.Lock()
		last := begin
		for _, a := range t.answers {
			if a.status != 200 && a.due.After(last) {
				last = a.due
			}
		}
		t.mu.Unlock()
		begin = last
		if time.Since(begin) > 2*time.Second {
			return begin.Sub(ended)
		}
	}
}

// of returns the share of answers with a status during the trouble, and how long they took.
func (t *trouble) of(status int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var took []time.Duration
	all := 0
	for _, a := range t.answers {
		if a.troubled {
			all++
			if a.status == status {
				took = append(took, a.took)
			}
		}
	}
	if len(took) == 0 {
		return "0 | -"
	}
	slices.Sort(took)
	at := func(percent int) int64 { return took[(len(took)-1)*percent/100].Milliseconds() }
	return fmt.Sprintf("%.1f %% | %d ms, %d ms", 100*float64(len(took))/float64(all), at(50), at(99))
}

// load sends requests when they are due, to both routes in turn.
func (t *trouble) load(ctx context.Context, url string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	var requests sync.WaitGroup
	defer requests.Wait()
	start := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(*outageRate))
		time.Sleep(time.Until(due))
		request, err := http.NewRequest("GET", url+[]string{"/limited", "/user"}[i%2], nil)
		if err != nil {
			t.Fatal(err)
		}
		request.AddCookie(&http.Cookie{Name: "session", Value: strings.Repeat("A", 43)})
		troubled := t.troubled.Load()
		requests.Go(func() {
			status := 0
			if response, err := client.Do(request); err == nil {
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				status = response.StatusCode
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.answers = append(t.answers, answer{due, time.Since(due), status, troubled})
		})
	}
}
