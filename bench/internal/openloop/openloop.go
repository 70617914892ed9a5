// Package openloop loads an HTTP/1.1 server and measures how long answers take.
//
// In an open loop requests are sent at times that are settled beforehand, whatever the server does, as those of independent
// users are. Latency is counted from the time at which a request was to be sent: a server that stops for 200 ms is seen to
// delay everything that falls into these, and not one request per connection. In a closed loop each connection sends its
// next request when it has the answer to the last one, which finds the largest throughput, and whose latencies leave out
// what a stall keeps from being sent.
//
// The client is an epoll loop, by default one for all connections, that computes little: requests are rendered beforehand,
// bodies are compared where they are received, and the usual head of an answer is recognized without being parsed again. It
// measures its own lateness, which is the server's fault only as far as that takes the processor away, and says that a run
// is invalid if it was late or couldn't keep the rate. It runs on Linux only, on amd64 and arm64.
package openloop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Options says what a run does. The zero value of each field but Address, Requests (or WebSocket) and Duration is usable.
type Options struct {
	Address string      // host:port; a name is looked up once
	Host    string      // for the Host field; "" is Address
	TLS     *tls.Config // nil is plain TCP. ServerName, if it isn't set, is Host's or Address's

	Requests  []Request
	WebSocket *WebSocket // instead of Requests

	Rate    float64 // requests per second; 0 is a closed loop
	Poisson bool    // arrivals of an open loop are a Poisson process, instead of at constant distances
	Seed    uint64  // of that

	Connections int // that requests are sent over; 0 is 64
	Idle        int // more, which are opened before the run and send nothing
	Pipeline    int // requests at most that a connection has on the way; 0 is 1

	// RequestsPerConnection is how many requests a connection is for, of which the last says "Connection: close". It is opened
	// when a request needs it, and that is part of the request's latency. 0 keeps connections: they are opened before the
	// run, and again as soon as one is lost.
	RequestsPerConnection int

	Warmup   time.Duration // load that isn't measured, before
	Duration time.Duration // that is measured
	Timeout  time.Duration // from when a connection takes a request to its answer, and for connecting; 0 is 10 s

	Queue       int           // arrivals at most that wait for a connection; 0 is as many as come in a second, 1000 at least
	MaxLateness time.Duration // of the generator, at the 99th percentile, for a valid run; 0 is 1 ms
	Spin        time.Duration // how long before an arrival waiting is polling instead of sleeping
	Threads     int           // that share connections and rate; 0 is 1
}

// WebSocket makes every connection ask for an upgrade and then exchange messages with an echo service: a request is one
// masked frame, its answer a frame with the same opcode and payload.
type WebSocket struct {
	Target  string   // "" is /
	Header  []string // further fields, as "Name: value"
	Message []byte
	Text    bool // the message is text; else it is binary
}

func (w *WebSocket) opcode() byte {
	if w.Text {
		return opText
	}
	return opBinary
}

// withDefaults returns a copy in which all fields are set, or says what is wrong.
func (o Options) withDefaults() (*Options, error) {
	setDefault(&o.Connections, 64)
	setDefault(&o.Pipeline, 1)
	setDefault(&o.Threads, 1)
	setDefault(&o.Queue, max(1000, int(o.Rate)))
	setDefault(&o.Timeout, 10*time.Second)
	setDefault(&o.MaxLateness, time.Millisecond)
	if o.Host == "" {
		o.Host = o.Address
	}
	if o.TLS != nil && o.TLS.ServerName == "" {
		o.TLS = o.TLS.Clone()
		o.TLS.ServerName = o.Host
		if host, _, err := net.SplitHostPort(o.Host); err == nil {
			o.TLS.ServerName = host
		}
	}
	switch {
	case o.Duration <= 0:
		return nil, fmt.Errorf("openloop: duration %v: want more than 0", o.Duration)
	case o.Warmup < 0 || o.Timeout < 0 || o.Spin < 0 || o.MaxLateness < 0:
		return nil, errors.New("openloop: a negative time: want 0 or more")
	case !(o.Rate >= 0 && o.Rate <= 1e8):
		return nil, fmt.Errorf("openloop: rate %v: want 0 to 100 million per second", o.Rate)
	case o.Connections < 1 || o.Idle < 0 || o.RequestsPerConnection < 0 || o.Pipeline < 1 || o.Queue < 1:
		return nil, errors.New("openloop: a negative number")
	case o.Threads < 1 || o.Threads > o.Connections:
		return nil, fmt.Errorf("openloop: %d threads for %d connections: want one at least, and no more than connections",
			o.Threads, o.Connections)
	case (o.WebSocket == nil) == (len(o.Requests) == 0):
		return nil, errors.New("openloop: want either requests or a WebSocket")
	}
	return &o, nil
}

func setDefault[T int | time.Duration](value *T, to T) {
	if *value == 0 {
		*value = to
	}
}

// plan is what all loops of a run share; it doesn't change.
type plan struct {
	options  *Options
	prepared []*prepared
	order    []int // of prepared, again and again
	groups   []string
	upgrade  []byte // the request for a WebSocket; nil if there is none
}

func newPlan(o *Options) (*plan, error) {
	p := &plan{options: o}
	if w := o.WebSocket; w != nil {
		upgrade := Request{Target: w.Target, Header: append([]string{"Connection: Upgrade", "Upgrade: websocket",
			"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + websocketKey}, w.Header...)}
		var err error
		p.upgrade, err = upgrade.render(o.Host)
		message := append([]byte{}, w.Message...) // not nil, so that an empty one is compared too
		p.prepared = []*prepared{{raw: clientFrame(w.opcode(), message), want: Want{Status: 101, Body: message}}}
		p.groups, p.order = []string{""}, []int{0}
		return p, err
	}
	groups := map[string]int{}
	for i := range o.Requests {
		r := &o.Requests[i]
		ready, err := r.prepare(o.Host, o.RequestsPerConnection > 0)
		if err != nil {
			return nil, err
		}
		group, known := groups[r.Name]
		if !known {
			group = len(p.groups)
			groups[r.Name] = group
			p.groups = append(p.groups, r.Name)
		}
		ready.group = group
		p.prepared = append(p.prepared, ready)
	}
	if len(p.groups) > maxGroups {
		return nil, fmt.Errorf("openloop: %d names of requests: want %d at most", len(p.groups), maxGroups)
	}
	var err error
	p.order, err = mix(o.Requests)
	return p, err
}

// maxGroups is how many histograms a loop has at most, of a fifth of a megabyte each.
const maxGroups = 64
