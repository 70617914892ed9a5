package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/sse"
)

const (
	// kept is how many messages Redis keeps. A page begins with these.
	kept = 300
	// maxText is how long a message may be, in bytes.
	maxText = 500
	// topic is the only room of this chat.
	topic = "chat"
	// keptKey is where Redis keeps the last messages.
	keptKey = "cluster:messages"
)

// instance is one of the servers. Everything that must outlive it is in Redis.
type instance struct {
	name  string
	redis redis.UniversalClient
	hub   *sse.Hub
}

// message is a user's message. The page chooses the key. If the page sends a message again, it uses the same key.
type message struct {
	Key  string `json:"key"`
	Text string `json:"text"`
	By   string `json:"by"` // the instance that has published it
	At   int64  `json:"at"` // in milliseconds since 1970
}

// runInstance serves on a socket in dir until ctx ends. Then its readiness probe fails, HAProxy sends it no new requests, and it shuts down.
func runInstance(ctx context.Context, name, dir string) error {
	logging.Disable() // go-redis would log an outage again and again; redisfilo logs it once a minute
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: redisSocket(dir), ContextTimeoutEnabled: true})
	defer client.Close()
	shared := redisfilo.New(client)
	broker := shared.Stream("cluster")
	i := &instance{name: name, redis: client, hub: sse.NewHub(sse.HubOptions{Broker: broker, Retry: 200 * time.Millisecond, HistoryEvents: 1000})}
	defer i.hub.Close()
	probes := health.New()
	probes.Add("events", i.hub.Ready, health.Check{Period: 100 * time.Millisecond})
	server := &filo.Server{Handler: i.routes(shared, probes), GracePeriod: 10 * time.Second}
	probes.Attach(server)
	serving, cancel := probes.DrainContext(ctx, drainTime)
	defer cancel()
	return server.RunUnix(serving, instanceSocket(dir, name), 0o600)
}

func instanceSocket(dir, name string) string { return filepath.Join(dir, name) }
func redisSocket(dir string) string          { return filepath.Join(dir, "redis") }

func (i *instance) routes(shared *redisfilo.Redis, probes *health.Health) filo.Handler {
	r := router.New()
	r.GET("/readyz", probes.Ready).Inline()
	r.GET("/messages", i.messages)
	r.GET("/feed", i.feed)
	r.POST("/say", i.say,
		ratelimit.New(1000, 10*time.Second, ratelimit.Options{Store: shared.RateLimits("say", redisfilo.Open)}),
		middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 4 << 10}),
		// A page sends a message again if it gets no answer. Thanks to the key, the message is still published only once. If an instance is killed
		// while it handles a key, another instance can use the key after 5 s.
		// The sessions are outside: otherwise a repeated answer would have the session's cookie, and the keys here are known to everybody.
		session.New(session.Options{Store: shared.Sessions(redisfilo.Refuse), Insecure: true}),
		idempotency.New(idempotency.Options{
			Scope: func(*filo.Ctx) []byte { return []byte("everybody") }, Store: shared.Idempotency(redisfilo.Refuse),
			TTL: 10 * time.Minute, MaxRun: 5 * time.Second, Required: true,
		}))
	return r.Serve
}

// say stores a message, and publishes it to the pages of all instances. The session counts the user's messages, no matter which instances received
// them.
func (i *instance) say(c *filo.Ctx) error {
	var said struct {
		Key  string `json:"key" required:"true"`
		Text string `json:"text" required:"true"`
	}
	if err := bind.JSON(c, &said); err != nil {
		return err
	}
	if len(said.Key) > 64 || len(said.Text) > maxText || !utf8.ValidString(said.Text) {
		return filo.Error(422, fmt.Sprintf("a key may have 64 bytes, and a text %d", maxText))
	}
	visitor, err := session.Get(c)
	if err != nil {
		return err
	}
	var count int
	fmt.Sscan(visitor.Get("said"), &count) // without a field in the session the count is 0
	visitor.Set("said", fmt.Sprint(count+1))
	text, err := json.Marshal(message{said.Key, said.Text, i.name, time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	if err := i.publish(c.Context(), string(text)); err != nil {
		return err
	}
	return c.JSON(200, map[string]any{"by": i.name, "said": count + 1})
}

// publish stores a message before it publishes it. So a page that learns of a gap finds the message among the stored ones.
func (i *instance) publish(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	pipe := i.redis.TxPipeline()
	pipe.RPush(ctx, keptKey, text)
	pipe.LTrim(ctx, keptKey, -kept, -1)
	if _, err := pipe.Exec(ctx); err != nil {
		return &filo.HTTPError{Status: 503, Detail: "the messages can't be reached", Err: err}
	}
	_, err := i.hub.Publish(topic, sse.Event{Data: text})
	return err
}

// messages answers with the last messages.
func (i *instance) messages(c *filo.Ctx) error {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	texts, err := i.redis.LRange(ctx, keptKey, 0, -1).Result()
	if err != nil {
		return &filo.HTTPError{Status: 503, Detail: "the messages can't be reached", Err: err}
	}
	all := make([]json.RawMessage, len(texts))
	for n, text := range texts {
		all[n] = json.RawMessage(text)
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	return c.JSON(200, all)
}

// feed sends the messages after the client's last event, no matter which instance sent that event, and then all further messages. The cookie
// tells the page which instance serves it.
func (i *instance) feed(c *filo.Ctx) error {
	if err := c.Response.SetCookie(&filo.Cookie{Name: "feed", Value: i.name, Path: "/", SameSite: filo.SameSiteLax}); err != nil {
		return err
	}
	return i.hub.Serve(c, topic)
}
