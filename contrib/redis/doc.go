// Package redisfilo lets several servers share the data of filo's middleware, and connects their hubs. It uses Redis 5 or later, or a
// server that speaks its protocol, with the client github.com/redis/go-redis/v9.
//
//	go get github.com/filohttp/filo/contrib/redis@latest
//
// The package is a separate module, so that filo doesn't depend on go-redis.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	shared := redisfilo.New(client, redisfilo.Options{Prefix: "shop:"})
//
//	r.Use(ratelimit.New(600, time.Minute, ratelimit.Options{Store: shared.RateLimits("requests", redisfilo.Open)}))
//	r.Use(session.New(session.Options{Store: shared.Sessions(redisfilo.Refuse)}))
//	hub := sse.NewHub(sse.HubOptions{Broker: shared.Stream("news")})
//
// # When Redis is down
//
// A call takes at most Options.Timeout. After five calls in a row without an answer, calls fail at once, except for one call every half second,
// which tries Redis again. The last argument of each store's method decides what a failed call means for the request. With Refuse the request
// gets 503 (Service Unavailable); the server doesn't log each of these, since the error wraps filo.ErrBusy. With Open the request continues
// without the store, as each store documents.
//
// go-redis needs about four round trips for a new connection. These needn't fit into Timeout: the connection is made in the background,
// within Options.ConnectTimeout. So a Redis that answers within Timeout is used, even if connecting takes longer. While connecting takes
// longer than Timeout, a call that finds no free connection fails at once, instead of opening a connection in vain. If there are too few
// connections, a call that waits for one also fails after Timeout. But Redis isn't treated as down while it answers other calls, nor after a
// pause of this process. PoolSize, in go-redis's Options, must be at least the number of calls per second times the seconds that each call
// takes.
//
// Redis may also refuse a call: when it is full, it refuses to write, but still reads. A refused call fails like a call without an answer,
// but other calls are still tried.
//
// Add Redis.Check to the checks of package health as an optional check: taking an instance out of service because Redis is down helps nobody.
// It writes a key, so it also detects a full Redis. Figures exports the state, calls and errors of each store, for
// github.com/filohttp/filo/contrib/prometheus:
//
//	registry.MustRegister(prometheus.Figures(shared))
//
// Each kind of failure is logged at most once a minute, with the number of failed calls since the last record. Another record says that an
// outage has ended, or that Redis reads or writes again. A minute after the last call that waited too long for a connection, a record says
// that calls no longer wait too long.
//
// go-redis itself logs failed connections, several lines a second. The function Disable of its package logging silences that for all clients
// of the process.
//
// # Memory
//
// Sessions, limits, keys and answers expire by themselves. Redis needs a memory limit, maxmemory, and must react safely when it is reached:
// with the maxmemory-policy noeviction, writes fail. A policy that evicts keys, such as volatile-lru, ends sessions early and forgets
// idempotency keys, so their requests could be executed twice. So give the cache its own Redis with allkeys-lru, and the other stores a Redis
// that evicts nothing.
//
// # Which broker
//
// Stream keeps messages, so that clients resume at any instance and after restarts. Channel keeps nothing, so a client that reconnects
// to a newly started instance gets the hub's Gap. Channel costs Redis less. Both notice when messages are missing, and tell their hub.
//
// Each broker holds a connection while its hub is open. The connection of a Stream counts against go-redis's PoolSize, and the connection of a
// Channel doesn't.
package redisfilo
