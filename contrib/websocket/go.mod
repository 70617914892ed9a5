module github.com/filohttp/filo/contrib/websocket

go 1.26.0

toolchain go1.26.11

require (
	github.com/coder/websocket v1.8.15
	github.com/filohttp/filo v0.1.0
	github.com/gobwas/ws v1.5.0
	github.com/klauspost/compress v1.20.4
	golang.org/x/net v0.62.0
)

require (
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/filohttp/filo => ../..
