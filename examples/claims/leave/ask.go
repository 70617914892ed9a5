package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// client neither follows redirects nor asks for compression, so it returns answers as the server has sent them.
var client = &http.Transport{DisableCompression: true}

// patience is how long the program waits for an answer.
const patience = 30 * time.Second

// question is a request.
type question struct {
	method, target string
	field          string // "Name: value", if there is one
	body           string
}

// questions are the requests that the program sends to both servers.
var questions = []question{
	{method: "GET", target: "/hello/gopher"},
	{method: "HEAD", target: "/hello/gopher"},
	{method: "GET", target: "/hello/G%C3%B6del%2F?x=1"},
	{method: "DELETE", target: "/hello/gopher"},
	{method: "OPTIONS", target: "/hello/gopher"},
	{method: "GET", target: "/nothing"},
	{method: "GET", target: "/hello//"},
	{method: "POST", target: "/users", field: "Content-Type: application/json", body: `{"name":"Ada"}`},
	{method: "POST", target: "/users", field: "Content-Type: application/json", body: `{}`},
	{method: "POST", target: "/users", field: "Content-Type: text/plain", body: `{}`},
	{method: "POST", target: "/upload", body: strings.Repeat("x", 1<<20)},
	{method: "POST", target: "/upload", body: strings.Repeat("x", filo.DefaultMaxBodyBytes+1)},
	{method: "GET", target: "/stream"},
	{method: "GET", target: "/login"},
	{method: "GET", target: "/secret", field: "Accept: application/json"},
	{method: "GET", target: "/broken"},
	{method: "GET", target: "/panics"},
	{method: "GET", target: "/files/about.txt"},
	{method: "GET", target: "/files/about.txt", field: "Range: bytes=3-14"},
	{method: "GET", target: "/files/none.txt"},
}

func (q question) name() string {
	name := q.method + " " + q.target
	if len(q.body) > 20 {
		name += fmt.Sprintf(" (%d bytes)", len(q.body))
	} else if q.body != "" {
		name += " " + q.body
	}
	if q.field != "" && q.field != "Content-Type: application/json" && !strings.HasPrefix(q.field, "Accept") {
		name += ", " + q.field
	}
	return name
}

// answer is a response as the client reads it.
type answer struct {
	status int
	fields map[string]string // the values of each field, joined
	body   string
}

func (q question) ask(ctx context.Context, address string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, q.method, "http://"+address+q.target, strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	request.Host = "app.example" // not the address, which differs between the servers
	if name, value, ok := strings.Cut(q.field, ": "); ok {
		request.Header.Set(name, value)
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	a := &answer{response.StatusCode, make(map[string]string), string(body)}
	for name, values := range response.Header {
		a.fields[name] = strings.Join(values, ", ")
	}
	for _, coding := range response.TransferEncoding {
		a.fields["Transfer-Encoding"] = coding
	}
	if response.Close {
		a.fields["Connection"] = "close"
	}
	return a, nil
}

// unlike describes the differences between two answers, or returns "" if there are none. The values of Date may differ.
func (a *answer) unlike(b *answer) string {
	var differences []string
	if a.status != b.status {
		differences = append(differences, "the status")
	}
	either := maps.Clone(a.fields)
	maps.Copy(either, b.fields)
	for _, name := range slices.Sorted(maps.Keys(either)) {
		x, inA := a.fields[name]
		y, inB := b.fields[name]
		if inA != inB || x != y && name != "Date" {
			differences = append(differences, fmt.Sprintf("%s %q, %q", name, x, y))
		}
	}
	if a.body != b.body {
		differences = append(differences, "the body")
	}
	return strings.Join(differences, "; ")
}

// String formats the answer similarly to how it looks on the wire.
func (a *answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "    %d %s\n", a.status, http.StatusText(a.status))
	for _, name := range slices.Sorted(maps.Keys(a.fields)) {
		fmt.Fprintf(&b, "    %s: %s\n", name, a.fields[name])
	}
	fmt.Fprintf(&b, "\n    %.200s", a.body)
	return b.String()
}
