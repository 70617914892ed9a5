module github.com/filohttp/filo

go 1.25.0

require (
	github.com/google/pprof v0.0.0-20250317173921-a4b03ec1a45e
	github.com/klauspost/compress v1.20.3
	github.com/valyala/bytebufferpool v1.0.0
	golang.org/x/net v0.58.0
)

require golang.org/x/text v0.41.0 // indirect
