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
// A call takes at most Options.Timeout. After five failures in a row, calls fail at once, and one every half second tries again. What
// that means for a request is the second argument of each store: with Refuse it gets 503 (Service Unavailable), which the server
// doesn't log one by one, since the error wraps filo.ErrBusy; with Open it goes on, as each store says. Redis is logged as down once
// a minute at most, with the number of calls that have failed, and once when it is back. Add Redis.Check to the checks of package
// health as an optional one: an instance that is taken out since Redis is down serves nobody better.
//
// go-redis writes lines of its own about failed connections, several a second. Disable of its package logging silences it, for all
// clients of the process.
//
// # Memory
//
// Sessions, limits, keys and answers expire by themselves. Redis needs a limit, maxmemory, and what it does there must be safe: with
// the maxmemory-policy noeviction, writes fail, which is as if Redis were down. A policy that evicts, such as volatile-lru, ends
// sessions early, and forgets idempotency keys, whose requests could then be done twice: give the cache a Redis of its own, with
// allkeys-lru, and the others one that evicts nothing.
//
// # Which broker
//
// Stream keeps messages, so that clients resume at any instance and after restarts. Channel keeps nothing, and costs Redis less: a
// client that reconnects to an instance that has just started gets the hub's Gap. Both notice when messages are missing, and tell
// their hub.
package redisfilo
