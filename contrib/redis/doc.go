// Package redisfilo lets several servers share what filo's middleware keeps, and connects their hubs, by Redis 5 or later or what
// speaks its protocol, with the client github.com/redis/go-redis/v9.
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
// A call takes at most Options.Timeout. After five calls in a row without an answer, calls fail at once, and one every half second tries
// again. What that means for a request is the second argument of each store: with Refuse it gets 503 (Service Unavailable), which the
// server doesn't log one by one, since the error wraps filo.ErrBusy; with Open it goes on, as each store says.
//
// A new connection takes go-redis about four round trips, and needn't be ready within Timeout: it is made in the background, within
// Options.ConnectTimeout. So a Redis is used that answers within Timeout, however long connecting takes. While that is longer than Timeout,
// a call that finds no free connection fails at once, instead of making one in vain. Calls that wait for one of too
// few connections fail after Timeout, too, but Redis doesn't count as down while others are answered. PoolSize, of go-redis's Options,
// must be at least the calls per second times the seconds that each takes.
//
// Redis may answer, and refuse: when it is full it refuses to write, and still reads. A call that it refuses fails as one without an
// answer does, but others are still tried.
//
// Add Redis.Check to the checks of package health as an optional one: an instance that is taken out since Redis is down serves nobody
// better. It writes a key, so a full Redis is told, too. Figures has the state, calls and errors of each store, for
// github.com/filohttp/filo/contrib/prometheus:
//
//	registry.MustRegister(prometheus.Figures(shared))
//
// Each kind of failure is logged once a minute at most, with the number of calls that have failed, and once when it is over.
//
// go-redis writes lines of its own about failed connections, several a second. Disable of its package logging silences it, for all
// clients of the process.
//
// # Memory
//
// Sessions, limits, keys and answers expire by themselves. Redis needs a limit, maxmemory, and what it does there must be safe: with
// the maxmemory-policy noeviction, writes fail. A policy that evicts, such as volatile-lru, ends sessions early, and forgets idempotency
// keys, whose requests could then be done twice: give the cache a Redis of its own, with allkeys-lru, and the others one that evicts
// nothing.
//
// # Which broker
//
// Stream keeps messages, so that clients resume at any instance and after restarts. Channel keeps nothing, and costs Redis less: a
// client that reconnects to an instance that has just started gets the hub's Gap. Both notice when messages are missing, and tell
// their hub.
//
// Each broker holds a connection while its hub is open: a Stream one of go-redis's PoolSize, and a Channel one more.
package redisfilo
