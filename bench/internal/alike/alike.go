// Package alike checks that servers send the same answers, so that none is measured while it does less work than the others.
package alike

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/row"
)

// Answer holds the parts of a response that must not differ between servers.
type Answer struct {
	Status int
	Body   []byte // without its coding
	Header http.Header

	Size float64 // of the whole response with its head, in bytes
}

// Fetch sends each request of the row over one connection to the server at base and returns the answers.
func Fetch(base string, r *row.Row) ([]Answer, error) {
	if r.Streams > 0 {
		return fetchHTTP2(base, r)
	}
	scheme, address, _ := strings.Cut(base, "://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn = patient{conn}
	if scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	var read bytes.Buffer
	reader := bufio.NewReader(io.TeeReader(conn, &read))
	var answers []Answer
	for i := range r.Requests {
		a, err := exchange(conn, reader, &r.Requests[i], address)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Requests[i].Method, r.Requests[i].Target, err)
		}
		a.Size = float64(read.Len())
		read.Reset()
		answers = append(answers, a)
	}
	return answers, nil
}

// patient is a connection on which the server may take any time in total, but no single Read may wait for more than 20 s.
type patient struct{ net.Conn }

// Read implements net.Conn.
func (p patient) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func exchange(conn net.Conn, reader *bufio.Reader, request *row.Request, host string) (a Answer, err error) {
	if _, err := conn.Write(request.Raw(host, false)); err != nil {
		return a, err
	}
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		return a, err
	}
	return read(resp, request)
}

// fetchHTTP2 is Fetch over HTTP/2, with net/http's client. It doesn't set the answers' Size.
func fetchHTTP2(base string, r *row.Row) (answers []Answer, err error) {
	client := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols), DisableCompression: true}
	client.Protocols.SetHTTP2(true)
	client.Protocols.SetUnencryptedHTTP2(true)
	defer client.CloseIdleConnections()
	for i := range r.Requests {
		resp, err := (&http.Client{Transport: client, Timeout: 20 * time.Second}).Get(base + r.Requests[i].Target)
		if err != nil {
			return nil, err
		}
		a, err := read(resp, &r.Requests[i])
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// read reads an answer, and compares it with the expected one.
func read(resp *http.Response, request *row.Request) (a Answer, err error) {
	defer resp.Body.Close()
	a.Status, a.Header = resp.StatusCode, resp.Header
	if length := resp.ContentLength; length >= 0 {
		a.Header.Set("Content-Length", fmt.Sprint(length))
	}
	var body io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return a, err
		}
	}
	if a.Body, err = io.ReadAll(body); err != nil {
		return a, err
	}
	if a.Status != http.StatusOK {
		return a, fmt.Errorf("the status is %d: %.200q", a.Status, a.Body)
	}
	if want := request.Want.Body; want != nil && !bytes.Equal(a.Body, want) {
		return a, fmt.Errorf("the body is %.200q, and not %.200q", a.Body, want)
	}
	return a, nil
}

// Compare returns an error that says how the answers of two servers to a row's requests differ, or nil. It ignores the value of Date, and all fields
// that the row's Varies or Compare's last parameter lists.
func Compare(r *row.Row, a, b []Answer, may ...string) error {
	may = append(may, r.Varies...)
	for i := range r.Requests {
		if err := a[i].compare(&b[i], may); err != nil {
			return fmt.Errorf("%s: %w", r.Requests[i].Target, err)
		}
	}
	return nil
}

func (a *Answer) compare(b *Answer, may []string) error {
	if a.Status != b.Status || !bytes.Equal(a.Body, b.Body) {
		return fmt.Errorf("%d %.200q and %d %.200q", a.Status, a.Body, b.Status, b.Body)
	}
	names, others := a.names(may), b.names(may)
	if !slices.Equal(names, others) {
		return fmt.Errorf("the fields are %q and %q", names, others)
	}
	for _, name := range names {
		if name != "Date" && !slices.Equal(a.Header[name], b.Header[name]) {
			return fmt.Errorf("%s is %q and %q", name, a.Header[name], b.Header[name])
		}
	}
	return nil
}

// names returns the names of the answer's header fields, except those in the list of fields that may differ.
func (a *Answer) names(may []string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.Header)), func(name string) bool { return slices.Contains(may, name) })
}
