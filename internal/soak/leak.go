package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	// keptBuffers is what the process may keep of memory from its first period on: filo has a free list of buffers for
	// large bodies, of at most 64 MB.
	keptBuffers = 64 << 20
	// memorySlack is how much more memory may be in use than there was: the heap isn't used without gaps.
	memorySlack = 16 << 20
)

// footprint holds a process's counts of resources.
type footprint struct {
	goroutines  int
	descriptors []string // what they are open to
	memory      uint64   // in bytes: the heap's spans and the stacks
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB", f.goroutines, len(f.descriptors), float64(f.memory)/(1<<20))
}

func measure() (f footprint, err error) {
	// What a sync.Pool holds is free after the second collection.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.goroutines, f.memory = runtime.NumGoroutine(), m.HeapInuse+m.StackInuse
	const directory = "/proc/self/fd"
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(directory, entry.Name())); err == nil {
			f.descriptors = append(f.descriptors, entry.Name()+" "+target)
		}
	}
	return f, err
}

// leakCheck compares what the process holds with what it held at the beginning.
type leakCheck struct {
	settling time.Duration
	start    footprint
	settled  bool   // there was a check
	memory   uint64 // that may be in use
}

func newLeakCheck(settling time.Duration) (*leakCheck, error) {
	if err := warmUp(); err != nil {
		return nil, err
	}
	start, err := measure()
	return &leakCheck{settling: settling, start: start, memory: start.memory + keptBuffers + memorySlack}, err
}

// warmUp makes the runtime open what it opens for a program's first connection.
func warmUp() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	netConn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	return netConn.Close()
}

// check waits until nothing is left of what was started since the beginning.
func (c *leakCheck) check() (footprint, error) {
	for end := time.Now().Add(c.settling); ; time.Sleep(20 * time.Millisecond) {
		now, err := measure()
		if err != nil {
			return now, err
		}
		if err = c.compare(now); err == nil {
			if !c.settled {
				// The free lists are filled by the first period, so later checks are stricter.
				c.settled, c.memory = true, now.memory+memorySlack
			}
			return now, nil
		}
		if time.Now().After(end) {
			return now, err
		}
	}
}

func (c *leakCheck) compare(now footprint) error {
	switch {
	case now.goroutines > c.start.goroutines:
		return fmt.Errorf("leak: there are %s, and there were %s\n\n%s", now, c.start, stacks())
	case len(now.descriptors) > len(c.start.descriptors):
		return fmt.Errorf("leak: there are %s, and there were %s\n\n%s", now, c.start, strings.Join(now.descriptors, "\n"))
	case now.memory > c.memory:
		return fmt.Errorf("leak: there are %s, and at most %.1f MB are allowed", now, float64(c.memory)/(1<<20))
	}
	return nil
}
