module github.com/filohttp/filo/arena/httparena

go 1.26.0

toolchain go1.26.11

require (
	github.com/coder/websocket v1.8.15
	github.com/filohttp/filo v0.1.0
	github.com/filohttp/filo/contrib/websocket v0.1.0
	github.com/jackc/pgx/v5 v5.13.0
	golang.org/x/sync v0.25.0
)

require (
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/ws v1.5.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/filohttp/filo => ../..

replace github.com/filohttp/filo/contrib/websocket => ../../contrib/websocket
