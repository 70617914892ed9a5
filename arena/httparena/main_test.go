package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/filohttp/filo"
	"github.com/jackc/pgx/v5"
)

const testDataset = `[
	{"id": 1, "name": "One", "category": "books", "price": 7, "quantity": 3, "active": true, "tags": ["new"], "rating": {"score": 4, "count": 5}},
	{"id": 2, "name": "Two", "category": "tools", "price": 2, "quantity": 5, "active": false, "tags": [], "rating": {"score": 1, "count": 2}}
]`

// started is the running program.
type started struct {
	t      *testing.T
	addrs  map[string]string // the actual addresses, by the addresses on which the program wants to listen
	client http.Client
}

// start starts the program, with a database if its URL isn't empty.
func start(t *testing.T, database string) *started {
	dir := t.TempDir()
	write := func(name string, text []byte) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("dataset.json", []byte(testDataset))
	write("static/app.js", []byte("let it = 'be'"))
	write("static/app.js.br", []byte("in brotli"))
	example := httptest.NewTLSServer(nil) // has a certificate and its key
	defer example.Close()
	certificate := example.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write("server.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))
	write("server.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))

	listening := make(chan [2]string)
	ctx, stop := context.WithCancel(context.Background())
	o := options{data: dir, certs: dir, url: database, connections: "4", listen: func(s *filo.Server, addr string) (net.Listener, error) {
		l, err := s.Listen("127.0.0.1:0")
		if err == nil {
			listening <- [2]string{addr, l.Addr().String()}
		}
		return l, err
	}}
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	s := &started{t: t, addrs: make(map[string]string)}
	for range 4 {
		select {
		case each := <-listening:
			s.addrs[each[0]] = each[1]
		case err := <-ended:
			t.Fatal(err)
		}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	s.client.Transport = &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// do makes a request, and returns the answer's protocol, status, one header field and body.
func (s *started) do(client *http.Client, method, target, body, field string, fields ...string) string {
	s.t.Helper()
	scheme, rest, _ := strings.Cut(target, "://")
	port, path, _ := strings.Cut(rest, "/")
	r, err := http.NewRequest(method, scheme+"://"+s.addrs[port]+"/"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%s %d %s %s", answer.Proto, answer.StatusCode, answer.Header.Get(field), strings.TrimSpace(string(text)))
}

func (s *started) want(want, method, target, body, field string, fields ...string) {
	s.t.Helper()
	if got := s.do(&s.client, method, target, body, field, fields...); got != want {
		s.t.Errorf("%s %s: %s, want %s", method, target, got, want)
	}
}

func TestRoutes(t *testing.T) {
	s := start(t, "")
	const text, two = "text/plain; charset=utf-8", `{"items":[` +
		`{"id":1,"name":"One","category":"books","price":7,"quantity":3,"active":true,"tags":["new"],"rating":{"score":4,"count":5},"total":63},` +
		`{"id":2,"name":"Two","category":"tools","price":2,"quantity":5,"active":false,"tags":[],"rating":{"score":1,"count":2},"total":30}],"count":2}`
	s.want("HTTP/1.1 200 "+text+" 55", "GET", "http://:8080/baseline11?a=13&b=42", "", "Content-Type")
	s.want("HTTP/1.1 200 "+text+" 75", "POST", "http://:8080/baseline11?a=13&b=42", "20", "Content-Type")
	s.want("HTTP/1.1 200 "+text+" ok", "GET", "http://:8080/pipeline", "", "Content-Type")
	s.want("HTTP/1.1 200 application/json "+two, "GET", "http://:8080/json/2?m=3", "", "Content-Type")
	s.want("HTTP/1.1 200 application/json "+two, "GET", "https://:8081/json/7?m=3", "", "Content-Type")
	s.want("HTTP/1.1 200 "+text+" 7", "GET", "http://:8080/delay/7", "", "Content-Type")
	s.want("HTTP/1.1 200 "+text+" 0", "GET", "http://:8080/delay/0", "", "Content-Type")
	large := strings.Repeat("0123456789", 20_000)
	s.want("HTTP/1.1 200 application/octet-stream "+large, "POST", "https://:8081/echo", large, "Content-Type")
	s.want("HTTP/1.1 200 application/octet-stream ", "POST", "https://:8081/echo", "", "Content-Type")
	s.want("HTTP/1.1 200 br in brotli", "GET", "https://:8081/static/app.js", "", "Content-Encoding", "Accept-Encoding", "br;q=1, gzip;q=0.8")
	s.want("HTTP/2.0 200  let it = 'be'", "GET", "https://:8443/static/app.js", "", "Content-Encoding")
	s.want("HTTP/2.0 200 "+text+" 3", "GET", "https://:8443/baseline2?a=1&b=2", "", "Content-Type")
	s.want(`HTTP/1.1 200 application/json {"items":[],"count":0}`, "GET", "http://:8080/async-db", "", "Content-Type")
	for target, status := range map[string]string{"fortunes": "503", "delay/10001": "400", "delay/-1": "400", "delay/x": "404"} {
		if got := s.do(&s.client, "GET", "http://:8080/"+target, "", ""); !strings.HasPrefix(got, "HTTP/1.1 "+status) {
			t.Errorf("/%s: %s, want %s", target, got, status)
		}
	}
	if got := s.do(&s.client, "POST", "http://:8080/baseline11", "twenty", ""); !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("a body that is no number: %s", got)
	}
	if got := s.do(&s.client, "GET", "http://:8082/baseline2", "", ""); !strings.HasPrefix(got, "HTTP/1.1 505") {
		t.Errorf("HTTP/1.1 where HTTP/2 is spoken: %s", got)
	}
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	defer transport.CloseIdleConnections()
	transport.Protocols.SetUnencryptedHTTP2(true)
	if got, want := s.do(&http.Client{Transport: transport}, "GET", "http://:8082/json/2?m=3", "", "Content-Type"), "HTTP/2.0 200 application/json "+two; got != want {
		t.Errorf("by HTTP/2 without TLS: %s", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.addrs[":8080"]+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if kind, message, err := conn.Read(ctx); err != nil || kind != websocket.MessageText || string(message) != "hello" {
		t.Errorf("the echo is %v %q, %v", kind, message, err)
	}
}

// testDatabase creates a schema in the database of DATABASE_URL, and returns a URL for the schema.
func testDatabase(t *testing.T, tables string) string {
	database := os.Getenv("DATABASE_URL")
	if database == "" {
		t.Skip("DATABASE_URL is not set: this test needs a PostgreSQL server")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("filo_test_%d", os.Getpid())
	t.Cleanup(func() {
		if _, err := conn.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		conn.Close(ctx)
	})
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+schema+"; SET search_path TO "+schema+"; "+tables); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

func TestDatabase(t *testing.T) {
	s := start(t, testDatabase(t, `CREATE TABLE items (id int PRIMARY KEY, name text, category text, price int, quantity int, active bool,
		tags jsonb, rating_score int, rating_count int); INSERT INTO items VALUES
		(1, 'One', 'books', 7, 3, true, '["new"]', 4, 5), (2, 'Two', 'electronics', 20, 5, false, '[]', 1, 2);
		CREATE TABLE fortune (id int PRIMARY KEY, message text NOT NULL); INSERT INTO fortune VALUES (1, 'Then'), (2, '<script>alert("1")</script>')`))
	const one = `{"id":1,"name":"One","category":"books","price":7,"quantity":3,"active":true,"tags":["new"],"rating":{"score":4,"count":5}}`
	const two = `{"id":2,"name":"Two","category":"electronics","price":20,"quantity":5,"active":false,"tags":[],"rating":{"score":1,"count":2}}`
	get := func(want, path string) {
		t.Helper()
		s.want("HTTP/1.1 "+want, "GET", "http://:8080"+path, "", "")
	}
	get(`200  {"items":[`+two+`],"count":1}`, "/async-db")
	get(`200  {"items":[`+one+`],"count":1}`, "/async-db?min=1&max=100&limit=0")
	page := s.do(&s.client, "GET", "http://:8080/fortunes", "", "Content-Type")
	const rows = `<tr><td>2</td><td>&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;</td></tr>
<tr><td>0</td><td>Additional fortune added at request time.</td></tr>
<tr><td>1</td><td>Then</td></tr>
`
	if !strings.HasPrefix(page, "HTTP/1.1 200 text/html; charset=utf-8 <!DOCTYPE html>") || !strings.Contains(page, rows) {
		t.Errorf("the fortunes are %s", page)
	}
}
