package openloop

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Request is one of the requests of a run.
type Request struct {
	// Name groups requests in the result: those of one name share a histogram.
	Name string
	// Weight is how often it is sent in proportion to the others; 0 is 1.
	Weight int

	Method string   // "" is GET, or POST if there is a Body
	Target string   // path and query; "" is /
	Header []string // fields as "Name: value". Host and, with a Body, Content-Length are added unless given
	Body   []byte

	Want Want
}

// Want is the answer that a request should have. Everything else is counted as an error.
type Want struct {
	Status int    // 0 is 200
	Body   []byte // the exact body, after its transfer coding; nil is not checked, an empty one has to be empty
	Length int64  // if Body is nil, the exact length of the body; 0 is not checked
}

// prepared is a request as it is sent.
type prepared struct {
	raw      []byte
	last     []byte // with "Connection: close"; nil if the run sends none
	headOnly bool   // the answer has no body
	group    int
	want     Want
}

const maxWeight = 1 << 16 // of all requests together, after division by what they have in common

// prepare renders the request for a host.
func (r *Request) prepare(host string, withLast bool) (*prepared, error) {
	p := &prepared{want: r.Want, headOnly: r.Method == "HEAD"}
	if p.want.Status == 0 {
		p.want.Status = 200
	}
	var err error
	if p.raw, err = r.render(host); err != nil {
		return nil, err
	}
	if withLast {
		closing := *r
		closing.Header = append(slices.Clone(r.Header), "Connection: close")
		p.last, err = closing.render(host)
	}
	return p, err
}

// render returns the bytes of the request.
func (r *Request) render(host string) ([]byte, error) {
	method, target := r.Method, r.Target
	if method == "" {
		method = "GET"
		if r.Body != nil {
			method = "POST"
		}
	}
	if target == "" {
		target = "/"
	}
	if !isToken(method) || strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return nil, fmt.Errorf("openloop: %q is no request: want a method and a target without white space", method+" "+target)
	}
	header := r.Header
	if !hasField(header, "Host") {
		header = append([]string{"Host: " + host}, header...)
	}
	if r.Body != nil && !hasField(header, "Content-Length") {
		header = append(slices.Clone(header), "Content-Length: "+strconv.Itoa(len(r.Body)))
	}
	var b bytes.Buffer
	b.WriteString(method + " " + target + " HTTP/1.1\r\n")
	for _, field := range header {
		if _, _, err := parseField([]byte(field)); err != nil {
			return nil, fmt.Errorf("openloop: %q is no header field: want Name: value", field)
		}
		b.WriteString(field + "\r\n")
	}
	b.WriteString("\r\n")
	if r.Body != nil {
		return slices.Concat(b.Bytes(), r.Body), nil
	}
	return b.Bytes(), nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenChars[s[i]] {
			return false
		}
	}
	return s != ""
}

func hasField(header []string, name string) bool {
	return slices.ContainsFunc(header, func(field string) bool {
		n, _, _ := strings.Cut(field, ":")
		return strings.EqualFold(n, name)
	})
}

// mix is the order in which requests are sent, again and again: in each stretch of it they are as frequent as their weights
// say, as nearly as can be.
func mix(requests []Request) ([]int, error) {
	weights, divisor := make([]int, len(requests)), 0
	for i := range requests {
		weights[i] = max(1, requests[i].Weight)
		if requests[i].Weight < 0 {
			return nil, fmt.Errorf("openloop: weight %d: want 0 or more", requests[i].Weight)
		}
		for a, b := weights[i], divisor; ; a, b = b, a%b {
			if b == 0 {
				divisor = a
				break
			}
		}
	}
	total := 0
	for i := range weights {
		weights[i] /= divisor
		if total += weights[i]; total > maxWeight {
			return nil, fmt.Errorf("openloop: the weights add up to more than %d", maxWeight)
		}
	}
	// Each gains its weight at every step, and who has most is next and pays what all have gained.
	order, credit := make([]int, 0, total), make([]int, len(weights))
	for range total {
		next := 0
		for i, w := range weights {
			if credit[i] += w; credit[i] > credit[next] {
				next = i
			}
		}
		credit[next] -= total
		order = append(order, next)
	}
	return order, nil
}
