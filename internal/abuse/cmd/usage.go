package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/abuse"
)

// usage is what the server's processes have used in a span of time.
type usage struct {
	cpu, span    time.Duration
	memory, peak int64 // in bytes: at the end, and the largest seen
}

// load returns how many processors were busy with the server.
func (u *usage) load() string { return fmt.Sprintf("%.2f", u.cpu.Seconds()/u.span.Seconds()) }

// sampling is the time between two measurements of the memory.
const sampling = 50 * time.Millisecond

// measure calls f and returns what the server has used meanwhile. The polite client's figure of that time goes to figure.
func (c *config) measure(polite *abuse.Polite, f func() error, figure *abuse.PhaseFigure) (usage, error) {
	phase := polite.Begin()
	u, err := c.watch(f)
	if err != nil {
		return u, err
	}
	polite.Begin()
	*figure = phase.Figure()
	return u, nil
}

// watch calls f and returns what the server has used meanwhile.
func (c *config) watch(f func() error) (usage, error) {
	began := time.Now()
	before, memory, err := readUsage(c.pids)
	if err != nil {
		return usage{}, err
	}
	u := usage{peak: memory}
	stop := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(sampling):
			}
			if _, memory, err := readUsage(c.pids); err == nil {
				u.peak = max(u.peak, memory)
			}
		}
	})
	failed := f()
	close(stop)
	sampler.Wait()
	if failed != nil {
		return u, failed
	}
	after, memory, err := readUsage(c.pids)
	u.cpu, u.span, u.memory, u.peak = after-before, time.Since(began), memory, max(u.peak, memory)
	return u, err
}

// tick is the unit of times in /proc/PID/stat, which Linux has on all of Go's architectures (USER_HZ).
const tick = 10 * time.Millisecond

// readUsage adds up the processor time and the resident memory of processes. A process that has ended is an error.
func readUsage(pids []string) (cpu time.Duration, memory int64, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return 0, 0, fmt.Errorf("the server's process: %w", err)
		}
		ticks, pages, err := parseStat(string(stat))
		if err != nil {
			return 0, 0, err
		}
		cpu += time.Duration(ticks) * tick
		memory += pages * int64(os.Getpagesize())
	}
	return cpu, memory, nil
}

// parseStat returns a process's times as a user and in the kernel, and its resident pages (proc_pid_stat(5)). The second field is the
// command, in parentheses, which may have any characters.
func parseStat(stat string) (ticks, pages int64, err error) {
	_, rest, found := strings.Cut(stat[max(strings.LastIndexByte(stat, ')'), 0):], " ")
	fields := strings.Fields(rest) // the third field of the file comes first
	if !found || len(fields) < 22 {
		return 0, 0, fmt.Errorf("/proc has %q", stat)
	}
	var values [3]int64
	for i, at := range [...]int{11, 12, 21} { // utime, stime, rss
		if values[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	return values[0] + values[1], values[2], nil
}
