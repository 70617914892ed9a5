package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/openloop"
)

// What -check may say.
const (
	checkBody   = "body"
	checkLength = "length"
	checkStatus = "status"
)

// settings is what the arguments say.
type settings struct {
	options openloop.Options
	check   string
	json    string
}

// list is a flag that can be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ", ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// single is what flags say of the only kind of request.
type single struct {
	method, body, file string
	header             list
	bodySize, status   int
	message            string
}

func parseFlags(args []string, messages io.Writer) (*settings, error) {
	s, one := &settings{}, &single{}
	o := &s.options
	flags := flag.NewFlagSet("openloop", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		fmt.Fprintln(messages, "usage: openloop [flags] http[s]://host:port/target  or  ws[s]://host:port/target")
		flags.PrintDefaults()
	}
	flags.Float64Var(&o.Rate, "rate", 0,
		"requests per second; 0 is a closed loop, in which a connection sends when it has its answer")
	flags.BoolVar(&o.Poisson, "poisson", false,
		"requests come at random, as those of many independent users, instead of at constant distances")
	flags.Uint64Var(&o.Seed, "seed", 1, "of -poisson")
	flags.IntVar(&o.Connections, "connections", 64, "connections that requests are sent over")
	flags.IntVar(&o.Idle, "idle", 0, "more connections, which send nothing")
	flags.IntVar(&o.RequestsPerConnection, "per-conn", 0,
		"requests per connection, which is opened for the first and closed after the last; 0 keeps connections")
	flags.IntVar(&o.Pipeline, "pipeline", 1, "requests that a connection may have on the way")
	flags.DurationVar(&o.Warmup, "warmup", time.Second, "load before the measured time")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "the measured time")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second,
		"for an answer, from when its request can be sent, and for a connection")
	flags.IntVar(&o.Queue, "queue", 0,
		"requests that may wait for a connection; 0 is as many as come in a second, 1000 at least")
	flags.DurationVar(&o.MaxLateness, "max-lateness", time.Millisecond,
		"of the generator itself, 99th percentile: above it the run is invalid")
	flags.DurationVar(&o.Spin, "spin", 0, "poll this long before a request is due, instead of sleeping")
	flags.IntVar(&o.Threads, "threads", 1, "threads that share connections and rate")
	flags.StringVar(&s.check, "check", checkBody,
		"what is compared with a reference answer: body, length, or only the status without one (status)")
	flags.StringVar(&s.json, "json", "", "a `file` for the result as JSON; - prints it instead of the table")
	requests := flags.String("requests", "", "a JSON `file` of requests, whose targets replace the URL's")
	insecure := flags.Bool("insecure", false, "don't verify the server's certificate")
	resume := flags.Bool("tls-resume", false, "resume TLS sessions; else every connection has a full handshake")
	flags.StringVar(&one.method, "method", "", "GET by default, POST with a body")
	flags.Var(&one.header, "header", "a `field` for every request, such as \"Accept: */*\"; may be given again")
	flags.StringVar(&one.body, "body", "", "the request's body")
	flags.StringVar(&one.file, "body-file", "", "a `file` with the request's body")
	flags.IntVar(&one.bodySize, "body-size", 0, "a body of so many bytes")
	flags.IntVar(&one.status, "status", 0, "the wanted status; 0 is 200")
	flags.StringVar(&one.message, "message", "Hello, World!", "the message of a ws:// URL, sent as text")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() != 1 {
		return nil, errors.New("want one URL, after the flags; -help lists them")
	}
	if s.check != checkBody && s.check != checkLength && s.check != checkStatus {
		return nil, fmt.Errorf("-check %q: want body, length or status", s.check)
	}
	u, err := url.Parse(flags.Arg(0))
	if err != nil {
		return nil, err
	}
	if err := s.setTarget(u, *insecure, *resume); err != nil {
		return nil, err
	}
	switch {
	case u.Scheme == "ws" || u.Scheme == "wss":
		o.WebSocket = &openloop.WebSocket{Target: u.RequestURI(), Header: one.header, Message: []byte(one.message), Text: true}
	case *requests != "":
		o.Requests, err = readRequests(*requests, one.header)
	default:
		o.Requests, err = one.request(u.RequestURI())
	}
	return s, err
}

// setTarget takes over what the URL says of the server.
func (s *settings) setTarget(u *url.URL, insecure, resume bool) error {
	port := u.Port()
	switch u.Scheme {
	case "https", "wss":
		if s.options.TLS = (&tls.Config{InsecureSkipVerify: insecure}); resume {
			s.options.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
		if port == "" {
			port = "443"
		}
	case "http", "ws":
		if port == "" {
			port = "80"
		}
	default:
		return fmt.Errorf("URL %q: want http://, https://, ws:// or wss://", u)
	}
	s.options.Host, s.options.Address = u.Host, net.JoinHostPort(u.Hostname(), port)
	return nil
}

// request makes the request of the flags.
func (one *single) request(target string) ([]openloop.Request, error) {
	r := openloop.Request{Method: one.method, Target: target, Header: one.header, Want: openloop.Want{Status: one.status}}
	switch {
	case one.file != "":
		var err error
		if r.Body, err = os.ReadFile(one.file); err != nil {
			return nil, err
		}
	case one.bodySize > 0:
		r.Body = filler(one.bodySize)
	case one.body != "":
		r.Body = []byte(one.body)
	}
	return []openloop.Request{r}, nil
}

// filler returns n bytes of text.
func filler(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz234567"[i&31]
	}
	return b
}

// fileRequest is a request in a file for -requests.
type fileRequest struct {
	Name     string   `json:"name"`
	Weight   int      `json:"weight"`
	Method   string   `json:"method"`
	Target   string   `json:"target"`
	Header   []string `json:"header"`
	Body     string   `json:"body"`
	BodySize int      `json:"body_size"`
	Status   int      `json:"status"`
}

func readRequests(name string, header []string) ([]openloop.Request, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	var entries []fileRequest
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var requests []openloop.Request
	for _, e := range entries {
		one := single{method: e.Method, header: append(append(list{}, header...), e.Header...), body: e.Body,
			bodySize: e.BodySize, status: e.Status}
		r, err := one.request(e.Target)
		if err != nil {
			return nil, err
		}
		r[0].Name, r[0].Weight = e.Name, e.Weight
		requests = append(requests, r[0])
	}
	return requests, nil
}
