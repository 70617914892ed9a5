module github.com/filohttp/filo/contrib/failsafe

go 1.26.0

toolchain go1.26.11

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/filohttp/filo v0.1.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/filohttp/filo => ../..
