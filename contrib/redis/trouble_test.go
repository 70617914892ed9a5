package redisfilo_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
)

var troubleTime = flag.Duration("troubles", 0, "how long each trouble of TestTroubles lasts, at 500 requests/s; it prints a table then")

// After each kind of trouble with Redis, the server recovers: clients get 200, no key stays claimed, and the log has few records of the
// trouble. With the flag -troubles the test prints which answers clients got during each trouble, for docs/OPERATIONS.md:
//
//	go test -timeout 0 -run TestTroubles -troubles 2m
//	go test -timeout 0 -run TestTroubles/latency_200ms -troubles 2m
func TestTroubles(t *testing.T) {
	if *troubleTime > 0 {
		fmt.Printf("\n| Redis, for %v | 200 | median, p99 of those | 503 | median, p99 of those | until everything was as before | "+
			"records in the log | refused, repeated with the same key |\n", *troubleTime)
		fmt.Println("| --- | --: | --: | --: | --: | --: | --: | --: |")
	}
	slow := func(d time.Duration) func(*trial) {
		return func(x *trial) {
			x.link.slow(d)
			x.last(*troubleTime, x.answered())
		}
	}
	for _, each := range []struct {
		name, title string
		make        func(*trial)
		outage      bool // Redis counts as down
	}{
		{"paused", "is well, but this program stands still for 1 s", func(x *trial) {
			x.link.slow(20 * time.Millisecond) // so that some calls are waiting for an answer
			x.pause(time.Second)
			x.last(2*time.Second, x.answered())
		}, false},
		{"latency_20ms", "takes 20 ms longer", slow(20 * time.Millisecond), false},
		{"latency_160ms", "takes 160 ms longer", slow(160 * time.Millisecond), false},
		{"latency_200ms", "takes 200 ms longer", slow(200 * time.Millisecond), false},
		{"latency_400ms", "takes 400 ms longer", slow(400 * time.Millisecond), false},
		{"silent_at_200ms", "takes 200 ms longer, and is silent for 3 s in the middle", func(x *trial) {
			x.link.slow(200 * time.Millisecond)
			x.last(*troubleTime/2, x.answered())
			x.link.silence(true)
			x.last(3*time.Second, x.down)
			x.link.silence(false)
			x.last(*troubleTime/2, x.answered())
		}, true},
		{"silent", "is silent, for 3 s only", func(x *trial) {
			x.link.silence(true)
			x.last(3*time.Second, x.down)
			x.link.silence(false)
		}, true},
		{"killed", "is killed", func(x *trial) {
			x.redis.kill()
			x.last(*troubleTime, x.down)
			x.redis.start()
		}, true},
		{"full", "is full", func(x *trial) {
			x.memory("1")
			x.last(*troubleTime, func() bool {
				return x.sees(reads, 200) && x.sees(writes, 503) && x.figure("full") > 0 && x.log.count("Redis refuses to write") == 1
			})
			x.memory("0")
		}, false},
	} {
		t.Run(each.name, func(t *testing.T) {
			if *troubleTime == 0 && each.name != "paused" {
				t.Parallel()
			}
			x := &trial{T: t}
			defer x.begin()()
			before := x.log.count("\n")
			x.since = x.sent()
			each.make(x)
			during := x.sent()
			x.link.slow(0)
			normal := x.normal(time.Now())
			again := x.repeat()
			records := x.log.count("\n") - before
			if *troubleTime > 0 {
				fmt.Printf("| %s | %s | %s | %.1f s | %d | %s |\n",
					each.title, x.of(during, 200), x.of(during, 503), normal.Seconds(), records, again)
				return
			}
			if records > 12 { // at most one record a minute of each kind
				t.Errorf("the log has %d records:\n%s", records, &x.log.text)
			}
			if each.outage {
				poll(t, "a record of Redis' return", func() bool { return x.log.count("Redis answers again") > 0 })
			}
		})
	}
}

// trial is a server whose Redis has some trouble, and the answers that the server's clients get.
type trial struct {
	*testing.T
	redis  *redisServer
	link   *link
	shared *redisfilo.Redis
	log    records
	url    string
	client *http.Client
	cookie string
	since  int // the number of the first request during the trouble

	mu      sync.Mutex
	answers []answer // in the order in which the requests were sent; guarded by mu
}

// answer is what a client got for a request.
type answer struct {
	due    time.Time
	took   time.Duration
	status int // 0 if there is no answer yet
}

// The kinds of requests, which are sent in turn, by their use of Redis.
const (
	reads  = iota // loads a session
	writes        // counts against a rate limit
	claims        // claims an idempotency key
	ways          // the number of kinds
)

// begin starts Redis, the server and its clients, and waits until all is well. The function that it returns ends them.
func (x *trial) begin() (end func()) {
	x.redis = startRedis(x, false)
	x.link = newLink(x, filepath.Join(x.redis.dir, "s"))
	x.shared = redisfilo.New(x.link.client(x, 400), redisfilo.Options{Logger: x.log.logger()})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		x.Fatal(err)
	}
	server := &filo.Server{Handler: routes(x.shared, redisfilo.Refuse), Logger: x.log.logger()}
	go server.Serve(listener)
	x.url = "http://" + listener.Addr().String()
	x.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: patience}
	poll(x, "a login", func() bool {
		response, err := x.client.Post(x.url+"/login", "", nil)
		if err != nil {
			x.Fatal(err)
		}
		response.Body.Close()
		x.cookie, _, _ = strings.Cut(response.Header.Get("Set-Cookie"), ";")
		return response.StatusCode == 200
	})
	ctx, stop := context.WithCancel(x.Context())
	var load sync.WaitGroup
	load.Go(func() { x.load(ctx) })
	x.normal(time.Now())
	return func() {
		stop()
		load.Wait()
		x.client.CloseIdleConnections()
		server.Close()
	}
}

// load sends requests at a fixed rate, however long their answers take.
func (x *trial) load(ctx context.Context) {
	rate := 500
	if *troubleTime == 0 {
		rate = 30
	}
	var requests sync.WaitGroup
	defer requests.Wait()
	start := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		x.mu.Lock()
		x.answers = append(x.answers, answer{due: due})
		x.mu.Unlock()
		requests.Go(func() {
			status, _ := x.send(i)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.answers[i].status, x.answers[i].took = status, time.Since(due)
		})
	}
}

// send sends the request with this number, and returns the status of its answer, and whether idempotency had kept that answer.
func (x *trial) send(i int) (status int, kept bool) {
	method, path := "GET", "/user"
	switch i % ways {
	case writes:
		path = "/limited"
	case claims:
		method, path = "POST", "/once"
	}
	request, err := http.NewRequest(method, x.url+path, nil)
	if err != nil {
		x.Error(err)
		return -1, false
	}
	request.Header.Set("Cookie", x.cookie)
	if i%ways == claims {
		request.Header.Set("Idempotency-Key", strconv.Itoa(i))
	}
	response, err := x.client.Do(request)
	if err != nil {
		x.Error(err)
		return -1, false
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	if response.StatusCode != 200 && response.StatusCode != 503 && response.StatusCode != 409 {
		x.Errorf("%s %s: %s", method, path, response.Status)
	}
	return response.StatusCode, response.Header.Get("Idempotency-Replayed") != ""
}

// last waits for as long as a trouble must last. Without the flag -troubles, that is only until the trouble shows an effect.
func (x *trial) last(long time.Duration, shows func() bool) {
	if *troubleTime > 0 {
		time.Sleep(long)
	} else {
		poll(x, "the trouble to show", shows)
	}
}

// sent returns how many requests were sent.
func (x *trial) sent() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.answers)
}

// answered returns a function that reports whether ten requests sent from now on have been answered.
func (x *trial) answered() func() bool {
	from := x.sent()
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		count := 0
		for _, a := range x.answers[from:] {
			if a.status != 0 {
				count++
			}
		}
		return count >= 10
	}
}

// sees reports whether a request of this kind has been answered with this status during the trouble.
func (x *trial) sees(kind, status int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, a := range x.answers[x.since:] {
		if (x.since+i)%ways == kind && a.status == status {
			return true
		}
	}
	return false
}

// figure returns how many of the rate limit's calls to Redis have failed with an error of this kind.
func (x *trial) figure(kind string) float64 {
	return figure(x.shared, "filo_redis_errors_total", "store", "ratelimits/all", "kind", kind)
}

// down reports whether clients, the log and the figures all show that Redis is down.
func (x *trial) down() bool {
	return x.sees(reads, 503) && x.sees(writes, 503) && x.sees(claims, 503) && x.figure("skipped") > 0 &&
		x.log.count("Redis doesn't answer") == 1 && figure(x.shared, "filo_redis_up", "store", "ratelimits/all", "access", "write") == 0
}

// memory sets how much memory Redis may use.
func (x *trial) memory(limit string) {
	client := x.redis.client()
	defer client.Close()
	if err := client.ConfigSet(x.Context(), "maxmemory", limit).Err(); err != nil {
		x.Fatal(err)
	}
}

// pause stops this whole process for a time.
func (x *trial) pause(d time.Duration) {
	script := fmt.Sprintf("kill -STOP %d; sleep %g; kill -CONT %[1]d", os.Getpid(), d.Seconds())
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		x.Fatalf("%v: %s", err, out)
	}
}

// normal waits until all requests within a period have been served. ended is the end of the trouble: normal returns the time from it to
// the beginning of that period.
func (x *trial) normal(ended time.Time) time.Duration {
	begin := ended
	poll(x, "a second without a failure", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, a := range slices.Backward(x.answers) {
			if a.due.Before(begin) {
				break
			}
			if a.status != 200 && (a.status != 0 || time.Since(a.due) > time.Second) {
				begin = a.due
				break
			}
		}
		return time.Since(begin) > 2*time.Second
	})
	return begin.Sub(ended)
}

// repeat sends the first refused requests that had a key again, and returns their answers. A refused request must not leave its key claimed.
func (x *trial) repeat() string {
	x.mu.Lock()
	var refused []int
	for i, a := range x.answers {
		if i%ways == claims && a.status == 503 && len(refused) < 400 {
			refused = append(refused, i)
		}
	}
	x.mu.Unlock()
	executed, kept, conflicts := 0, 0, 0
	for _, i := range refused {
		switch status, old := x.send(i); {
		case status == 409:
			conflicts++
			poll(x, "a key to be free again", func() bool {
				status, _ := x.send(i)
				return status == 200
			})
		case status == 200 && old:
			kept++
		case status == 200:
			executed++
		}
	}
	return fmt.Sprintf("%d: %d executed, %d kept, %d 409", len(refused), executed, kept, conflicts)
}

// of returns the share of the requests during the trouble that were answered with a status, and how long these answers took.
func (x *trial) of(until, status int) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var took []time.Duration
	for _, a := range x.answers[x.since:until] {
		if a.status == status {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return "0 | -"
	}
	slices.Sort(took)
	at := func(percent int) int64 { return took[(len(took)-1)*percent/100].Milliseconds() }
	return fmt.Sprintf("%.1f %% | %d ms, %d ms", 100*float64(len(took))/float64(until-x.since), at(50), at(99))
}
