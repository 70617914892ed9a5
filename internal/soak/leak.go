package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/soak/kit"
)

// leakCheck compares the process's goroutines, descriptors and memory with those at the beginning.
type leakCheck struct {
	settling time.Duration
	start    kit.Footprint
	settled  bool   // a check has succeeded
	memory   uint64 // the limit for later checks
}

func newLeakCheck(settling time.Duration) (*leakCheck, error) {
	if err := warmUp(); err != nil {
		return nil, err
	}
	start, err := kit.Measure()
	return &leakCheck{settling: settling, start: start, memory: start.Memory + kit.KeptBuffers + kit.MemorySlack}, err
}

// warmUp opens a connection, since the runtime opens some descriptors of its own with a program's first connection.
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

// check waits until the process holds no more goroutines, descriptors and memory than allowed. It fails after the settling time.
func (c *leakCheck) check() (kit.Footprint, error) {
	for end := time.Now().Add(c.settling); ; time.Sleep(20 * time.Millisecond) {
		now, err := kit.Measure()
		if err != nil {
			return now, err
		}
		if err = c.compare(now); err == nil {
			if !c.settled {
				// The free lists are full after the first period, so later checks are stricter.
				c.settled, c.memory = true, now.Memory+kit.MemorySlack
			}
			return now, nil
		}
		if time.Now().After(end) {
			return now, err
		}
	}
}

func (c *leakCheck) compare(now kit.Footprint) error {
	switch {
	case now.Goroutines > c.start.Goroutines:
		return fmt.Errorf("leak: there are %s, and there were %s\n\n%s", now, c.start, kit.Stacks())
	case len(now.Descriptors) > len(c.start.Descriptors):
		return fmt.Errorf("leak: there are %s, and there were %s\n\n%s", now, c.start, strings.Join(now.Descriptors, "\n"))
	case now.Memory > c.memory:
		return fmt.Errorf("leak: there are %s, and at most %.1f MB are allowed", now, float64(c.memory)/(1<<20))
	}
	return nil
}
