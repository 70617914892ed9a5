// Package row has the rows of the comparison: which requests are sent, over how many connections, and to which servers.
package row

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/filohttp/filo/internal/githubapi"

	"github.com/filohttp/filo/bench/internal/database"
	"github.com/filohttp/filo/bench/internal/site"
)

// Kind says how a row is measured.
type Kind int

// The kinds.
const (
	Closed   Kind = iota // each connection sends its next request when the answer has arrived
	Mixed                // like Closed, while other connections send blocking requests at a constant rate
	Idle                 // many idle connections, and then a request on each at once
	Overload             // a constant rate, twice as high as the server's limit allows
)

// Row is one row.
type Row struct {
	// ID is the row's name in flags and results, Title its name in tables. About is an explanation for readers of the report.
	ID, Title, About string

	Kind Kind
	Args []string // flags of package site
	TLS  bool
	// Database is set if the servers need PostgreSQL.
	Database bool

	Requests      []Request // sent one after the other
	Connections   int
	Pipeline      int // simultaneous requests on each connection; 0 means one
	Streams       int // simultaneous streams on each HTTP/2 connection; 0 means HTTP/1.1
	PerConnection int // requests after which a connection is closed; 0 means never
	Message       int // the size of WebSocket messages, in bytes; 0 means no WebSocket

	// Seconds is the factor by which the row is measured longer than others. It is for rows in which few requests complete in a second. 0 means 1.
	Seconds int
	// Latency is set if latencies at constant rates are measured.
	Latency bool

	// Varies are the header fields in which answers may differ.
	Varies []string
	// Peers are measured in the default size. The full size also measures More.
	Peers, More []string
}

// The groups of peers.
var (
	core       = []string{"filo", "fasthttp", "nethttp"}
	others     = []string{"filo-blocking", "fiber", "hertz", "gin", "echo"}
	references = []string{"nginx", "haproxy", "limit"}
	blocking   = []string{"filo-blocking"}
	http2      = []string{"filo", "nethttp", "nghttpd", "h2o", "nginx"}
)

// Core returns the peers that are in every row.
func Core() []string { return slices.Clone(core) }

// Core returns the core peers that are in the row.
func (r *Row) Core() []string {
	return slices.DeleteFunc(Core(), func(name string) bool { return !slices.Contains(r.Peers, name) })
}

// Quick are the rows of the quick size.
var Quick = []string{"keepalive-64", "keepalive-512", "conn-10", "json", "post-1k"}

// HTTP2 are the rows of the size http2.
var HTTP2 = []string{"h2c-1", "h2c-10", "h2c-100", "h2-1", "h2-10", "h2-100"}

// Low are the rows that are also measured at a low rate, to show how much processor time a server uses when it has little to do.
var Low = []string{"keepalive-512", "tls-keepalive", "h2c-10"}

// Grown has the rows that are also measured with several values of GOMAXPROCS.
var Grown = []string{"keepalive-64", "db"}

// Sizes of bodies and files.
const (
	KB = 1 << 10
	MB = 1 << 20
)

// Files has the names and sizes of the files that the servers serve under /files.
var Files = map[string]int{"1k.bin": KB, "1m.bin": MB, "100m.bin": 100 * MB}

// IdleConnections is the number of connections in the row of idle connections.
const IdleConnections = 9000

// OverloadLimit is how many requests the servers serve at once in the overload row.
const OverloadLimit = 16

// OverloadRate is how many requests arrive per second: twice as many as OverloadLimit and site.Wait allow.
var OverloadRate = 2 * OverloadLimit / site.Wait.Seconds()

// MixedRate is the number of blocking requests per second in the background of the Mixed row, and MixedConnections the number of their
// connections.
const (
	MixedRate        = 2000
	MixedConnections = 64
)

// All returns the rows.
func All() []Row {
	rows := slices.Concat(plaintext(), documents(), bodies(), files(), structure(), waiting(), encrypted(), multiplexed())
	for i := range rows {
		r := &rows[i]
		r.Connections, r.Seconds = cmp.Or(r.Connections, 64), cmp.Or(r.Seconds, 1)
		if r.Peers == nil {
			r.Peers = core
		}
	}
	return rows
}

// Find returns the row with the ID.
func Find(id string) (Row, error) {
	rows := All()
	for _, r := range rows {
		if r.ID == id {
			return r, nil
		}
	}
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return Row{}, fmt.Errorf("there is no row %q, only %q", id, ids)
}

// get returns a GET request for a path, with the expected answer.
func get(path string, want Want, header ...string) []Request {
	return []Request{{Target: path, Header: header, Want: want}}
}

var greeting = Want{Body: site.GreetingBytes}

func plaintext() (rows []Row) {
	for _, n := range []int{1, 8, 64, 512, 4096} {
		r := Row{
			ID: fmt.Sprintf("keepalive-%d", n), Title: fmt.Sprintf("13 bytes, keep-alive, %d connections", n), Connections: n,
			Requests: get("/", greeting), Latency: n > 1, Peers: slices.Concat(core, references), More: others,
		}
		if n == 1 {
			r.Title = "13 bytes, keep-alive, 1 connection"
		}
		if n == 4096 {
			r.Seconds = 3 // wrk's measured time includes opening the connections
		}
		if n == 64 {
			r.Peers, r.More = slices.Concat(core, others, references), nil
		}
		rows = append(rows, r)
	}
	return append(rows,
		Row{ID: "pipeline-16", Title: "13 bytes, pipelined ×16", Requests: get("/", greeting), Pipeline: 16,
			Peers: slices.Concat(core, references), More: others},
		Row{ID: "conn-10", Title: "10 requests per connection", Requests: get("/", greeting), PerConnection: 10, Latency: true,
			About: "Every tenth request has Connection: close. A latency at a constant rate has the connection's establishment in it.",
			Peers: slices.Concat(core, references), More: others},
		Row{ID: "conn-1", Title: "one request per connection", Requests: get("/", greeting), PerConnection: 1, Latency: true,
			About: "Every request has Connection: close. A latency at a constant rate has the connection's establishment in it.",
			Peers: slices.Concat(core, references), More: others},
	)
}

func documents() []Row {
	return []Row{
		{ID: "json", Title: "JSON, small", Requests: get("/json", Want{Body: site.SmallJSON()}), Latency: true,
			About: "All encode by encoding/json.", Peers: slices.Concat(core, others)},
		{ID: "json20k", Title: "JSON, 20 KB, gzip", Requests: get("/json20k", Want{}, "Accept-Encoding: gzip"), Latency: true,
			About: fmt.Sprintf("Encoded by encoding/json for each request and compressed at level %d by klauspost/compress: filo's "+
				"middleware.Compress, fasthttp's CompressHandlerLevel, and gzhttp for net/http.", site.GzipLevel),
			Varies: []string{"Content-Length", "Transfer-Encoding", "Vary"}, More: blocking},
	}
}

// Body returns n bytes that aren't all the same.
func Body(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 131 >> 3)
	}
	return b
}

func post(path string, size int) []Request {
	return []Request{{Method: "POST", Target: path, Body: Body(size), Want: Want{Body: fmt.Append(nil, size)}}}
}

func bodies() []Row {
	return []Row{
		{ID: "post-1k", Title: "POST 1 KB", Requests: post("/echo-length", KB), Latency: true,
			About: "The handler reads the body as a whole.", Peers: slices.Concat(core, others)},
		{ID: "post-1m", Title: "POST 1 MB", Requests: post("/echo-length", MB), Connections: 32, Latency: true,
			About: "The handler reads the body as a whole.", More: others},
		{ID: "tls-echo-10k", Title: "TLS, POST 10 KB and back", Requests: []Request{{Method: "POST", Target: "/echo", Body: Body(10 * KB),
			Want: Want{Body: Body(10 * KB)}}}, TLS: true, Args: []string{"-tls"}, Latency: true,
			About: "The handler reads the body as a whole and answers with it.", More: blocking},
		{ID: "upload-20m", Title: "upload of 20 MB", Requests: post("/upload", 20*MB), Connections: 16, Args: []string{"-stream"},
			Seconds: 2, About: "Counted as it comes: filo's BodyReader, Request.Body of net/http, and fasthttp's RequestBodyStream with " +
				"StreamRequestBody set.", More: blocking},
	}
}

func files() (rows []Row) {
	const about = "filo's package static, fasthttp.FS, http.FileServer and nginx's sendfile, all by their defaults: the first two keep " +
		"small files in memory, and filo looks once a second whether they have changed. Fields such as Last-Modified and ETag differ."
	for _, f := range []struct {
		id, title, name      string
		connections, seconds int
	}{
		{"file-1k", "static file, 1 KB", "1k.bin", 64, 1}, {"file-1m", "static file, 1 MB", "1m.bin", 32, 1},
		{"file-100m", "static file, 100 MB", "100m.bin", 4, 2},
	} {
		rows = append(rows, Row{
			ID: f.id, Title: f.title, Requests: get("/files/"+f.name, Want{Length: int64(Files[f.name])}), About: about,
			Connections: f.connections, Seconds: f.seconds, Latency: f.seconds == 1,
			Varies: []string{"Accept-Ranges", "Content-Type", "Etag", "Last-Modified", "Server", "X-Content-Type-Options"},
			Peers:  append(Core(), "nginx"), More: blocking,
		})
	}
	large := rows[1]
	secure, multiplexed := large, large
	secure.ID, secure.Title, secure.TLS, secure.Args, secure.Peers = "tls-file-1m", "static file, 1 MB, TLS", true, []string{"-tls"}, Core()
	secure.About = "filo's package static, fasthttp.FS and http.FileServer by their defaults, over crypto/tls."
	multiplexed.ID, multiplexed.Title, multiplexed.Args, multiplexed.Streams = "h2c-file-1m", "static file, 1 MB, HTTP/2 without TLS × 10", []string{"-http2"}, 10
	multiplexed.Latency, multiplexed.Peers, multiplexed.About = false, []string{"filo", "nethttp"}, "filo's package static and http.FileServer by their defaults."
	return append(rows, secure, multiplexed)
}

func structure() []Row {
	return []Row{
		{ID: "router-203", Title: "router, 203 routes", Requests: github(), Args: []string{"-routes"}, Latency: true,
			About: "GitHub's API, each route in turn; the handler looks at all parameters. net/http has ServeMux, fasthttp fasthttp/router, " +
				"the others their own.", Peers: slices.Concat(core, others)},
	}
}

// github returns a request for each route of GitHub's API.
func github() (requests []Request) {
	for _, route := range githubapi.Routes() {
		r := Request{Method: route.Method, Target: route.Request(), Want: greeting}
		if r.Method != "GET" {
			r.Body = []byte{}
		}
		requests = append(requests, r)
	}
	return requests
}

func waiting() []Row {
	return []Row{
		{ID: "blocking-5ms", Title: "handler that sleeps 5 ms", Requests: get("/sleep", greeting), Connections: 128, Latency: true,
			About: "128 connections can't get more than 25,600 answers per second.", More: blocking},
		{ID: "async-10ms", Title: "1,000 handlers that wait 10 ms", Requests: get("/sleep", greeting), Args: []string{"-wait", "10ms"},
			Connections: 1000, About: "1,000 connections can't get more than 100,000 answers per second.", More: blocking},
		{ID: "db", Title: "handler that asks PostgreSQL", Requests: products(), Database: true, Latency: true,
			About: fmt.Sprintf("The handlers read 100 of %d rows in turn by their primary key, one for each request, through a pgxpool of at "+
				"most %d connections over a Unix socket, and encode it by encoding/json. Queries have the request's context. PostgreSQL runs "+
				"on the same machine, never pinned, and its CPU time isn't the server's.", database.Rows, database.MaxConns), More: blocking},
		{ID: "mixed", Title: "quick beside blocking handlers", Kind: Mixed, Requests: get("/mixed/quick", greeting),
			About: fmt.Sprintf("64 connections ask for 13 bytes, while %d requests per second on 64 others wait for a handler that sleeps "+
				"5 ms. CPU time is divided by all requests, the rest is the quick ones' own.", MixedRate), More: blocking},
		{ID: "idle-burst", Title: "9,000 idle connections, then a burst", Kind: Idle, Requests: get("/", greeting),
			Connections: IdleConnections, About: "Each connection has one request answered, waits, and then all send one at once.",
			Peers: slices.Concat(core, references), More: others},
		{ID: "overload", Title: "overload, twice the capacity", Kind: Overload, Connections: 256,
			Requests: get("/limited", Want{}), Args: []string{"-limit", fmt.Sprint(OverloadLimit)},
			About: fmt.Sprintf("%d handlers at once that sleep 5 ms can serve %.0f requests per second; %.0f come. filo refuses by its own "+
				"Concurrency, the others by a channel in front of the handler.", OverloadLimit, OverloadRate/2, OverloadRate), More: blocking},
		{ID: "websocket", Title: "WebSocket echo", Requests: get("/websocket", Want{}), Message: 125, Latency: true,
			About: "Binary messages of 125 bytes. filo's contrib/websocket, coder/websocket on net/http, fasthttp/websocket on fasthttp. " +
				"Requests are messages.", More: blocking},
	}
}

// products returns requests for a hundred rows of the table, all with IDs of four digits.
func products() (requests []Request) {
	for id := 1000; id < database.Rows; id += 90 {
		requests = append(requests, get(fmt.Sprintf("/db?id=%d", id), Want{Body: database.Stored(id).JSON()})...)
	}
	return requests
}

func encrypted() []Row {
	return []Row{
		{ID: "tls-keepalive", Title: "TLS, keep-alive", Requests: get("/", greeting), TLS: true, Args: []string{"-tls"}, Latency: true,
			About: "TLS 1.3, an ECDSA certificate on P-256; crypto/tls in all.", More: blocking},
		{ID: "tls-handshake", Title: "TLS, one handshake per request", Requests: get("/", greeting), TLS: true, Args: []string{"-tls"}, PerConnection: 1,
			About: "Without session tickets: every handshake is a whole one.", More: blocking},
	}
}

func multiplexed() (rows []Row) {
	for _, secure := range []bool{false, true} {
		for _, n := range []int{1, 10, 100} {
			r := Row{
				ID: fmt.Sprintf("h2c-%d", n), Title: fmt.Sprintf("HTTP/2 without TLS, 64 connections × %d", n), Args: []string{"-http2"},
				About: "13 bytes. nghttpd and h2o send a file of theirs.", Requests: get("/", greeting), Streams: n,
				Latency: n == 10 && !secure, Peers: http2, More: blocking,
			}
			if secure {
				r.ID, r.Title = fmt.Sprintf("h2-%d", n), fmt.Sprintf("HTTP/2 over TLS, 64 connections × %d", n)
				r.TLS, r.Args = true, []string{"-http2", "-tls"}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// Request is a request to the servers.
type Request struct {
	Method string // GET if it is empty
	Target string
	Header []string // fields, as in "Accept: */*"
	Body   []byte   // nil: no body
	Want   Want
}

// Want is the expected answer to a request, which has the status 200.
type Want struct {
	Body   []byte // nil: any
	Length int64  // the length of the body, if Body is nil; 0: any
}

// Raw returns the request in the form that is sent. If last is set, the request has Connection: close.
func (r *Request) Raw(host string, last bool) []byte {
	method := r.Method
	if method == "" {
		method = "GET"
	}
	raw := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, r.Target, host)
	for _, field := range r.Header {
		raw = append(raw, field+"\r\n"...)
	}
	if r.Body != nil {
		raw = fmt.Appendf(raw, "Content-Length: %d\r\n", len(r.Body))
	}
	if last {
		raw = append(raw, "Connection: close\r\n"...)
	}
	return append(append(raw, "\r\n"...), r.Body...)
}
