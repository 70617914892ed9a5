package load

import (
	"runtime/metrics"
	"time"

	"github.com/filohttp/filo/bench/internal/openloop"
)

// watchRun announces the begin and the end of the measured time of the run that begins next. The generator forces a garbage
// collection when its connections are open, and begins a lead later.
func watchRun(o *openloop.Options, announce func(line string)) {
	before := forcedCollections()
	for forcedCollections() == before {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(lead + o.Warmup)
	announce(beginLine)
	time.Sleep(o.Duration)
	announce(endLine)
}

func forcedCollections() uint64 {
	samples := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
