package openloop

import (
	"slices"
	"strings"
	"testing"
)

func TestRequestBytes(t *testing.T) {
	for _, c := range []struct {
		rule    string
		request Request
		want    string
	}{
		{"GET / by default", Request{}, "GET / HTTP/1.1\r\nHost: h:1\r\n\r\n"},
		{"POST with a body, and its length", Request{Target: "/u?q", Body: []byte("ab")},
			"POST /u?q HTTP/1.1\r\nHost: h:1\r\nContent-Length: 2\r\n\r\nab"},
		{"an empty body has a length too", Request{Body: []byte{}},
			"POST / HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n"},
		{"what is given isn't added", Request{Method: "PUT", Header: []string{"host: o", "CONTENT-LENGTH: 1", "A:b"},
			Body: []byte("x")},
			"PUT / HTTP/1.1\r\nhost: o\r\nCONTENT-LENGTH: 1\r\nA:b\r\n\r\nx"},
	} {
		p, err := c.request.prepare("h:1", true)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		if string(p.raw) != c.want {
			t.Errorf("%s: %q, want %q", c.rule, p.raw, c.want)
		}
		if last := strings.Replace(string(p.last), "Connection: close\r\n", "", 1); last != c.want || last == string(p.last) {
			t.Errorf("%s: the last is %q", c.rule, p.last)
		}
	}
	for _, r := range []Request{{Method: "A B"}, {Target: "/a b"}, {Target: "/a\r\nX: y"},
		{Header: []string{"A: b\r\nX: y"}}, {Header: []string{"nothing"}}, {Method: "GET\r\n"}} {
		if p, err := r.prepare("h", false); err == nil {
			t.Errorf("%+v is rendered as %q", r, p.raw)
		}
	}
}

// Every request comes as often as its weight says, and is spread over the order.
func TestMix(t *testing.T) {
	for _, c := range []struct {
		weights, want []int
	}{
		{[]int{0}, []int{0}},
		{[]int{5, 5}, []int{0, 1}},
		{[]int{3, 1}, []int{0, 0, 1, 0}},
		{[]int{40, 20, 20}, []int{0, 1, 2, 0}},
	} {
		requests := make([]Request, len(c.weights))
		for i, w := range c.weights {
			requests[i].Weight = w
		}
		got, err := mix(requests)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("weights %v: %v, %v; want %v", c.weights, got, err, c.want)
		}
	}
	requests := []Request{{Weight: 900}, {Weight: 90}, {Weight: 11}}
	order, err := mix(requests)
	if err != nil || len(order) != 1001 {
		t.Fatalf("%d, %v", len(order), err)
	}
	seen := [3]int{}
	for i, r := range order {
		seen[r]++
		for j := range requests {
			if want := float64(requests[j].Weight) / 1001 * float64(i+1); float64(seen[j]) < want-2 ||
				float64(seen[j]) > want+2 {
				t.Fatalf("after %d requests there were %d of weight %d, want about %.1f",
					i+1, seen[j], requests[j].Weight, want)
			}
		}
	}
	for _, requests := range [][]Request{{{Weight: -1}}, {{Weight: maxWeight}, {Weight: 1}}} {
		if _, err := mix(requests); err == nil {
			t.Errorf("%v is accepted", requests)
		}
	}
}
