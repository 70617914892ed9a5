module github.com/filohttp/filo/contrib/redis

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/filohttp/filo v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
)

replace github.com/filohttp/filo => ../..
