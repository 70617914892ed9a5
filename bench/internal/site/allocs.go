package site

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/metrics"
	"syscall"
)

// reportOnSignal prints what the process has allocated whenever it gets SIGUSR1: the number of objects, their bytes, and how
// often garbage was collected.
func reportOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		samples := []metrics.Sample{
			{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"},
			{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
		}
		for range signals {
			metrics.Read(samples)
			// As runtime.MemStats.Mallocs has it.
			fmt.Printf("allocated %d objects %d bytes %d collections\n",
				samples[0].Value.Uint64()+samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64())
		}
	}()
}
