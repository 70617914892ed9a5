module github.com/filohttp/filo/bench

go 1.26.0

require (
	github.com/alitto/pond/v2 v2.7.1
	github.com/bytedance/gopkg v0.1.4
	github.com/filohttp/filo v0.0.0
	github.com/gammazero/workerpool v1.3.0
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/sourcegraph/conc v0.3.0
	github.com/valyala/fasthttp v1.77.0
	golang.org/x/sync v0.24.0
)

require (
	github.com/gammazero/deque v1.2.2 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/molecule-man/go-brrr v1.3.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/atomic v1.7.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/filohttp/filo => ../

// fasthttp asks for v1.3.0, which the module proxy does not always serve. It is the brotli encoder, which no
// benchmark calls.
replace github.com/molecule-man/go-brrr => github.com/molecule-man/go-brrr v1.0.1
