// Command cmd tests a running HTTP server against the RFCs, with the table of package conformance (HTTP/1.1) or http2conf (HTTP/2). It prints
// the result of each case. It exits with 1 if the server has broken a MUST or sent something that no server may send. It exits with 0 if the
// server differs from filo only where an RFC leaves a choice.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/conformance/http2conf"
)

// atOnce is how many cases run concurrently.
const atOnce = 16

// config holds the parameters of a run.
type config struct {
	addr       string
	tls, http2 bool
	only       []string // names of cases or of groups; if empty, all cases run
	options    conformance.Options
}

func main() {
	c := config{options: conformance.Options{Abrupt: true}}
	var serve, kind string
	list := false
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8080", "the server's `address`")
	flag.BoolVar(&c.tls, "tls", false, "use TLS, without checking the certificate")
	flag.BoolVar(&c.http2, "http2", false, "hold the server to the table of HTTP/2, chosen by ALPN or, without TLS, by prior knowledge")
	flag.Func("only", "the only `cases` to run, or groups such as Host, with commas between them", func(s string) error {
		c.only = strings.Split(s, ",")
		return nil
	})
	flag.BoolVar(&c.options.Cut, "cut", false, "also cut what is sent in two at every byte")
	flag.DurationVar(&c.options.Timeout, "timeout", 5*time.Second, "how long a connection may take")
	flag.BoolVar(&c.options.Undated, "undated", false, "allow answers of HTTP/1.1 without Date")
	flag.BoolVar(&list, "list", false, "list the cases, and what they need")
	flag.StringVar(&serve, "serve", "", "be a server that has all the routes at this `address`, with -tls and -http2 if they are given")
	flag.StringVar(&kind, "server", "net/http", "whose server that is: net/http, filo, or blocking for filo's blocking driver")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "conformance: there are no arguments but flags")
		os.Exit(2)
	}
	var err error
	broken := 0
	switch {
	case serve != "":
		err = c.serve(serve, kind)
	case list:
		err = c.list(os.Stdout)
	default:
		broken, err = c.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if err != nil || broken > 0 {
		os.Exit(1)
	}
}

// item is a case of either table.
type item struct {
	name, rfc, sentence string
	needs               []string
	run                 func(dial func() (net.Conn, error), o conformance.Options) error
}

// items returns the chosen cases.
func (c *config) items() (items []item, err error) {
	if c.http2 {
		for _, each := range http2conf.Table() {
			items = append(items, item{each.Name, each.RFC, each.Sentence, each.Needs(), each.Run})
		}
	} else {
		for _, each := range conformance.Table() {
			items = append(items, item{each.Name, each.RFC, each.Sentence, each.Needs(), each.Run})
		}
	}
	for _, name := range c.only {
		if !slices.ContainsFunc(items, func(i item) bool { return i.isIn(name) }) {
			return nil, fmt.Errorf("there is no case and no group %q: see -list", name)
		}
	}
	return slices.DeleteFunc(items, func(i item) bool { return c.only != nil && !slices.ContainsFunc(c.only, i.isIn) }), nil
}

// isIn reports whether name names the case or its group.
func (i item) isIn(name string) bool { return i.name == name || strings.HasPrefix(i.name, name+"/") }

// list lists the chosen cases.
func (c *config) list(w io.Writer) error {
	items, err := c.items()
	for _, i := range items {
		fmt.Fprintf(w, "%s: RFC %s: %s (%s)\n", i.name, i.rfc, i.sentence, strings.Join(i.needs, ", "))
	}
	return err
}

// dial opens a connection to the server.
func (c *config) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: c.options.Timeout}
	if !c.tls {
		return d.Dial("tcp", c.addr)
	}
	protocol := "http/1.1"
	if c.http2 {
		protocol = "h2"
	}
	conn, err := tls.DialWithDialer(&d, "tcp", c.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err != nil {
		return nil, err
	}
	if c.http2 && conn.ConnectionState().NegotiatedProtocol != protocol {
		conn.Close()
		return nil, errors.New("the server doesn't take HTTP/2 by TLS's ALPN")
	}
	return conn, nil
}

// lacking returns the routes that the server lacks, each with the error that its request got.
func (c *config) lacking() (map[string]error, error) {
	if c.http2 {
		return http2conf.Lacking(c.dial, c.options)
	}
	return conformance.Lacking(c.dial, c.options)
}

// run runs the chosen cases, and returns the number of cases in which the server breaks the protocol.
func (c *config) run(w io.Writer) (broken int, err error) {
	items, err := c.items()
	if err != nil {
		return 0, err
	}
	lacks, err := c.lacking()
	if err != nil {
		return 0, err
	}
	for _, route := range slices.Sorted(maps.Keys(lacks)) {
		fmt.Fprintf(w, "the server lacks %s: %s\n", route, indented(lacks[route]))
	}
	if lacks[conformance.GetHello] != nil {
		return 0, fmt.Errorf("no case can be run without %s (-serve runs a server that has all routes)", conformance.GetHello)
	}
	results := make([]chan error, len(items))
	for n := range results {
		results[n] = make(chan error, 1)
	}
	go func() {
		places := make(chan struct{}, atOnce)
		for n, i := range items {
			places <- struct{}{}
			go func() {
				if i.lacks(lacks) == "" {
					results[n] <- i.run(c.dial, c.options)
				} else {
					results[n] <- nil
				}
				<-places
			}()
		}
	}()
	passed, differ, skipped := 0, 0, 0
	for n, i := range items {
		err, route := <-results[n], i.lacks(lacks)
		switch {
		case route != "":
			skipped++
			fmt.Fprintf(w, "skipped  %s: the server lacks %s\n", i.name, route)
		case err == nil:
			passed++
			fmt.Fprintf(w, "passed   %s\n", i.name)
		case conformance.IsRequired(i.sentence, err):
			broken++
			fmt.Fprintf(w, "breaks   %s: RFC %s: %s\n         %s\n", i.name, i.rfc, i.sentence, indented(err))
		default:
			differ++
			fmt.Fprintf(w, "differs  %s: RFC %s: %s\n         %s\n", i.name, i.rfc, i.sentence, indented(err))
		}
	}
	fmt.Fprintf(w, "%d passed, %d break the protocol, %d differ where that doesn't say MUST, %d skipped\n", passed, broken, differ, skipped)
	return broken, nil
}

// lacks returns the first route that the case needs but the server lacks, or "".
func (i item) lacks(lacks map[string]error) string {
	n := slices.IndexFunc(i.needs, func(route string) bool { return lacks[route] != nil })
	if n < 0 {
		return ""
	}
	return i.needs[n]
}

func indented(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n         ") }
