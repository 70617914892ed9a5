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

// usage is the processor time and memory that the server's processes have used in a span of time.
type usage struct {
	cpu, span    time.Duration
	memory, peak int64 // in bytes: at the end of the span, and the largest sample
}

// load returns how many processors the server has used on average.
func (u *usage) load() string { return fmt.Sprintf("%.2f", u.cpu.Seconds()/u.span.Seconds()) }

// sampling is the time between two measurements of the memory.
const sampling = 50 * time.Millisecond

// measure calls f and returns the server's usage during the call. It stores the polite client's results of that time in figure.
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

// watch calls f and returns the server's usage during the call.
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

// tick is the unit of times in /proc/PID/stat (USER_HZ). It is the same on all Linux architectures that Go supports.
const tick = 10 * time.Millisecond

// readUsage adds up the processor time and the resident memory of processes. It fails if one of them has ended.
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
// command, in parentheses, which may contain any character.
func parseStat(stat string) (ticks, pages int64, err error) {
	_, rest, found := strings.Cut(stat[max(strings.LastIndexByte(stat, ')'), 0):], " ")
	fields := strings.Fields(rest) // fields[0] is the third field of the file
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
