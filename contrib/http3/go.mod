module github.com/filohttp/filo/contrib/http3

go 1.26.0

toolchain go1.26.11

require (
	github.com/filohttp/filo v0.1.0
	github.com/quic-go/qpack v0.6.0
	github.com/quic-go/quic-go v0.65.0
)

require (
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/filohttp/filo => ../..
