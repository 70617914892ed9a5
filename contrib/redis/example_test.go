package redisfilo_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// Two instances count the requests of a client together.
func ExampleRedis_RateLimits() {
	kept, err := miniredis.Run() // a real program uses a Redis server, such as at localhost:6379
	if err != nil {
		fmt.Println(err)
		return
	}
	defer kept.Close()

	for range 2 {
		client := redis.NewClient(&redis.Options{Addr: kept.Addr(), ContextTimeoutEnabled: true})
		defer client.Close()
		shared := redisfilo.New(client, redisfilo.Options{Prefix: "shop:"})

		r := router.New()
		r.Use(ratelimit.New(2, time.Minute, ratelimit.Options{Store: shared.RateLimits("requests", redisfilo.Open)}))
		r.GET("/", func(c *filo.Ctx) error { return c.Text(200, "welcome") })

		server := &filo.Server{Handler: r.Serve}
		defer server.Shutdown(context.Background())
		get(server, "/", "/")
	}
	// Output:
	// 200 welcome
	// 200 welcome
	// 429 Too Many Requests: too many requests: see Retry-After
	// 429 Too Many Requests: too many requests: see Retry-After
}

// An event that one instance publishes reaches the subscribers of all instances.
func ExampleRedis_Stream() {
	kept, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer kept.Close()

	var hubs [2]*sse.Hub
	for i := range hubs { // one in each instance
		client := redis.NewClient(&redis.Options{Addr: kept.Addr(), ContextTimeoutEnabled: true})
		defer client.Close()
		hubs[i] = sse.NewHub(sse.HubOptions{Broker: redisfilo.New(client).Stream("news")})
		defer hubs[i].Close()
		for hubs[i].Ready(context.Background()) != nil {
			time.Sleep(time.Millisecond) // in a program a readiness probe waits: health.Health.Add("news", hub.Ready, health.Check{})
		}
	}
	id, err := hubs[0].Publish("news", sse.Event{Data: "it works"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for hubs[1].LastEventID() != id {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("it has arrived")
	// Output: it has arrived
}

// get prints the answers.
func get(server *filo.Server, paths ...string) {
	ln := servertest.NewListener()
	go server.Serve(ln)
	c := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext, DisableKeepAlives: true}}
	for _, path := range paths {
		response, err := c.Get("http://filo.test" + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(response.StatusCode, strings.TrimSpace(string(body)))
	}
}
