//go:build linux

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// drivers holds the orders for a server with each of filo's drivers.
var drivers = []orders{{}, {Blocking: true}}

// networkTrials returns the trials in which links drop or delay packets.
func networkTrials() (all []trial) {
	for _, each := range []struct {
		fault string
		short bool
		path  path
		load  load
	}{
		{"1 % of the packets are lost", false, path{loss: 0.01}, load{}},
		{"5 % of the packets are lost", true, path{loss: 0.05}, load{}},
		{"50 ms delay, 20 ms jitter", false, path{delay: 40 * time.Millisecond, jitter: 20 * time.Millisecond}, load{}},
		{"10 % of the packets come late, behind others", false, path{late: 0.1}, load{}},
		{"1 Mbit/s", false, path{bits: 1e6}, load{Large: 40 << 10, Clients: 1, Patience: time.Minute}},
		{"packets of 576 bytes", false, path{MTU: 576}, load{}},
		{"buffers of 4 KB at both ends: short reads and writes", true, path{Buffers: 4096}, load{Large: 100 << 10}},
		{"all of these", false, path{loss: 0.01, delay: 20 * time.Millisecond, jitter: 20 * time.Millisecond, late: 0.05, bits: 1e6, MTU: 576, Buffers: 8192},
			load{Large: 20 << 10, Clients: 1, Patience: time.Minute}},
	} {
		all = append(all, trial{each.fault, each.short, func(a *attempt) error {
			for _, o := range drivers {
				if err := a.network(o, each.path, each.load); err != nil {
					return fmt.Errorf("blocking=%t: %w", o.Blocking, err)
				}
			}
			return nil
		}})
	}
	return append(all, trial{"a link vanishes for longer than the time-outs", false, func(a *attempt) error {
		for _, o := range drivers {
			if err := a.vanishes(o); err != nil {
				return fmt.Errorf("blocking=%t: %w", o.Blocking, err)
			}
		}
		return nil
	}})
}

// span returns how long clients work.
func (a *attempt) span(long time.Duration) time.Duration {
	if a.short {
		return time.Second
	}
	return long
}

// network checks that clients get all answers over a link that drops or delays packets, because TCP retransmits.
func (a *attempt) network(o orders, p path, l load) error {
	s, err := a.newStage(o, &p)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.serve(); err != nil {
		return err
	}
	l.Span = a.span(6 * time.Second)
	result, err := s.load(l, nil)
	if err != nil {
		return err
	}
	a.perfect(result, "over the link")
	if (p.loss > 0 || p.late > 0) && s.link.harmed.Load() == 0 {
		a.fail("the link has harmed no packet")
	}
	if largest := s.link.largest.Load(); p.MTU > 0 && largest != int64(p.MTU) {
		a.fail("the largest packet on the link has %d bytes instead of %d", largest, p.MTU)
	}
	if err := s.retransmitted(p); err != nil {
		return err
	}
	return s.finish()
}

// retransmitted records how many packets TCP has sent again at both ends. If the link drops packets, at least one packet must have been sent again.
func (s *stage) retransmitted(p path) error {
	again := int64(0)
	for _, each := range []*process{s.server, s.clients} {
		n, err := each.tcpCount("RetransSegs")
		if err != nil {
			return err
		}
		again += n
	}
	s.notes = append(s.notes, fmt.Sprintf("of %d packets %d sent again", s.link.carried.Load(), again))
	if p.loss > 0 && again == 0 {
		s.fail("the link drops packets, but none was sent again")
	}
	return nil
}

// tcpCount returns one of TCP's counters in a process's network namespace.
func (p *process) tcpCount(name string) (n int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp", p.pid()))
	if err != nil {
		return 0, err
	}
	lines := regexp.MustCompile(`(?m)^Tcp: (.*)$`).FindAllStringSubmatch(string(text), 2)
	if len(lines) != 2 {
		return 0, fmt.Errorf("no counts of TCP in %q", text)
	}
	values := strings.Fields(lines[1][1])
	for i, each := range strings.Fields(lines[0][1]) {
		if each == name {
			_, err = fmt.Sscan(values[i], &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("no %s in %q", name, text)
}

// vanishes makes the link vanish while clients work. The server must release the clients' resources while the link drops all packets, and
// answer new requests after the link has returned.
func (a *attempt) vanishes(o orders) error {
	o.Timeouts = 2 * time.Second
	s, err := a.newStage(o, &path{delay: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.serve(); err != nil {
		return err
	}
	vanish := time.AfterFunc(2*time.Second, func() { s.link.gone.Store(true) })
	defer vanish.Stop()
	result, err := s.load(load{Span: 4 * time.Second, Patience: 4 * time.Second, Clients: 4, Large: 1 << 20}, nil)
	if err != nil {
		return err
	}
	if result.Lost == 0 {
		a.fail("the link was gone, but each client has got an answer")
	}
	result.Errors["no link"], result.Lost = result.Errors[nothing], 0 // the server couldn't reach these clients, so these aren't failures
	delete(result.Errors, nothing)
	a.add(result)
	a.answered(result, "before the link has vanished")
	begin := time.Now()
	if err := s.awaitRest(); err != nil {
		return err
	}
	a.notes = append(a.notes, fmt.Sprintf("all given back %v after the clients' end, without the link", time.Since(begin).Round(100*time.Millisecond)))
	s.link.gone.Store(false)
	result, err = s.load(load{Span: time.Second}, nil)
	if err != nil {
		return err
	}
	a.perfect(result, "when the link was there again")
	return s.finish()
}
