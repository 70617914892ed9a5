module github.com/filohttp/filo

go 1.26.0

toolchain go1.26.11

require (
	github.com/google/pprof v0.0.0-20250317173921-a4b03ec1a45e
	github.com/klauspost/compress v1.20.4
	github.com/valyala/bytebufferpool v1.0.0
	golang.org/x/net v0.62.0
)

require golang.org/x/text v0.44.0 // indirect
