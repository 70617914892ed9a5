module github.com/filohttp/filo/contrib/brotli

go 1.26.0

toolchain go1.26.11

require (
	github.com/andybalholm/brotli v1.3.0
	github.com/filohttp/filo v0.1.0
	github.com/klauspost/compress v1.20.4
)

require (
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/filohttp/filo => ../..
