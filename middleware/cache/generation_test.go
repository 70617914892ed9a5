package cache_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// resource is a handler behind a cache: PUT changes its value, and GET and QUERY return the value.
type resource struct {
	value   chan string   // holds one value
	reading chan struct{} // a slow GET has read the value, and waits for answer
	answer  chan struct{}
}

func newResource() *resource {
	r := &resource{make(chan string, 1), make(chan struct{}), make(chan struct{})}
	r.value <- "old"
	return r
}

func (r *resource) serve(c *filo.Ctx) error {
	value := <-r.value
	if c.Method() == "PUT" {
		r.value <- "new"
		return c.NoContent()
	}
	r.value <- value
	if c.Request.Header.Has("Slow") {
		r.reading <- struct{}{}
		<-r.answer
	}
	c.Response.Header.Set("Vary", "Accept")
	return c.Text(200, value)
}

// If a handler has read its data before a change, its answer is neither stored after the change nor given to later requests, not even by
// another server with the same Store.
func TestOldAnswers(t *testing.T) {
	for _, of := range []struct{ method, servers string }{
		{"GET", "memory"}, {"GET", "a store"}, {"GET", "two servers"}, {"QUERY", "memory"}, {"QUERY", "a store"}, {"QUERY", "two servers"},
	} {
		servers, ask := of.method+" with "+of.servers, of.method+" /"
		for _, before := range []bool{false, true} { // whether there already is a rule by Vary
			r := newResource()
			options := cache.Options{TTL: time.Minute}
			if of.servers != "memory" {
				options.Store = new(store)
			}
			one := servertest.New(t, cache.New(options)(r.serve))
			other := one
			if of.servers == "two servers" {
				other = servertest.New(t, cache.New(options)(r.serve))
			}
			if before {
				one.Do(t, ask, "Accept: a")
			}
			slow := make(chan servertest.Answer)
			go func() { slow <- one.Do(t, ask, "Slow: yes", "Accept: b") }()
			<-r.reading
			if got := other.Do(t, "PUT /"); got.Status != 204 {
				t.Fatalf("%s: %v", servers, got)
			}
			// The other server's requests don't wait for the slow answer. If there is only one server, the change has ended the wait.
			if got := other.Do(t, ask, "Accept: b"); got.Body != "new" {
				t.Errorf("%s: %q before the slow answer", servers, got.Body)
			}
			r.answer <- struct{}{}
			if got := <-slow; got.Body != "old" {
				t.Errorf("%s: the slow answer is %q", servers, got.Body)
			}
			for _, s := range []*servertest.Server{one, other} {
				for _, accept := range []string{"a", "b"} {
					if got := s.Do(t, ask, "Accept: "+accept); got.Body != "new" {
						t.Errorf("%s, with a rule before %v: %q behind the slow answer, for Accept: %s", servers, before, got.Body, accept)
					}
				}
			}
		}
	}
}

// racing is a Store in which another server removes an answer just before Put.
type racing struct {
	store
	meanwhile func()
	most      int // the maximum size of a value that isn't refused; 0 is no limit
}

func (s *racing) Put(c *filo.Ctx, key string, value []byte, expires time.Time) error {
	if f := s.meanwhile; f != nil && key[0] != 1 {
		s.meanwhile = nil
		f()
	}
	if s.most > 0 && len(value) > s.most {
		return filo.ErrBusy
	}
	return s.store.Put(c, key, value, expires)
}

// Removed answers don't come back if a request stores their rule again and the Store then refuses the request's answer.
func TestRemovedWhileRefused(t *testing.T) {
	shared, value := new(racing), "old"
	options := cache.Options{TTL: time.Minute, Store: shared}
	handler := func(c *filo.Ctx) error {
		if c.Method() == "PUT" {
			value = "new"
			return c.NoContent()
		}
		c.Response.Header.Set("Vary", "Accept")
		if c.Request.Header.Get("Accept") == "big" {
			return c.Text(200, strings.Repeat("x", 2000))
		}
		return c.Text(200, value)
	}
	one, other := servertest.New(t, cache.New(options)(handler)), servertest.New(t, cache.New(options)(handler))
	for _, ask := range []string{"GET /", "QUERY /"} {
		value, shared.most = "old", 1000
		one.Do(t, ask, "Accept: small")
		shared.meanwhile = func() { other.Do(t, "PUT /") }
		one.Do(t, ask, "Accept: big")
		if got := one.Do(t, ask, "Accept: small"); got.Body != "new" {
			t.Errorf("%s: %q behind the change", ask, got.Body)
		}
	}
}

func TestRemovedWhileStored(t *testing.T) {
	r, shared := newResource(), new(racing)
	options := cache.Options{TTL: time.Minute, Store: shared}
	one, other := servertest.New(t, cache.New(options)(r.serve)), servertest.New(t, cache.New(options)(r.serve))
	for _, ask := range []string{"GET /", "QUERY /"} {
		<-r.value
		r.value <- "old"
		shared.meanwhile = func() { other.Do(t, "PUT /") }
		one.Do(t, ask)
		if got := one.Do(t, ask); got.Body != "new" {
			t.Errorf("%s: %q behind the change", ask, got.Body)
		}
	}
}

// When the answer to a change begins to stream, the old answer must be removed, since the client may already repeat its GET.
func TestStreamedChange(t *testing.T) {
	h, ends := &mwtest.Counting{}, make(chan struct{})
	s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute})(func(c *filo.Ctx) error {
		if c.Method() == "GET" {
			return h.Serve(c)
		}
		w := c.Stream()
		w.WriteString("changed")
		if err := w.Flush(); err != nil {
			return err
		}
		<-ends
		return nil
	}))
	s.Do(t, "GET /")
	conn, err := s.Listener.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, servertest.Request("PUT /", ""))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := s.Do(t, "GET /"); got.Body != "2" {
		t.Errorf("%q, want 2", got.Body)
	}
	close(ends)
}

// Different spellings of one URI are one target (RFC 9110, section 4.2.3). Different URIs are different targets.
func TestTargets(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			get, put string
			same     bool
		}{
			{"/d/a%2Fb", "/d/a%2fb", true}, {"/d/a%2fb", "/d/a%2Fb", true}, {"/d/a%2fb", "/d/a/b", false},
			{"/d/~a", "/d/%7ea", true}, {"/d/%41", "/d/A", true}, {"/d/%41", "/d/a", false}, {"/d/%2541", "/d/%41", false}, {"/d/a;b", "/d/a%3Bb", false},
			{"/d?q=%c3%a9", "/d?q=%C3%A9", true}, {"/d?q=%", "/d?q=%25", false}, {"/d?q=%4", "/d?q=%4", true}, {"/d?q=+", "/d?q=%20", false},
			{"/d", "http://filo.test/d", true}, {"/d", "http://filo.test:80/d", true}, {"/d", "http://FILO.test.:80/d", true}, {"/d", "http://filo.test:/d", true},
			{"/d", "http://filo.test:8080/d", false}, {"/d", "http://filo.test:443/d", false}, {"/", "http://filo.test", true}, {"/?a", "http://filo.test?a", true},
			{"/%2F", "http://filo.test/%2f", true},
			{"http://[::1]:80/d", "http://[::1]/d", true}, {"http://[::80]/d", "http://[::]/d", false}, {"/d?a=http://x", "http://filo.test/d?a=http://x", true},
		} {
			for _, method := range []string{"GET ", "QUERY "} {
				h := &mwtest.Counting{}
				s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(h.Serve))
				ask := func(request string) string {
					answer := s.Raw(t, request+" HTTP/1.1\r\nHost: filo.test\r\nConnection: close\r\n\r\n")
					return answer[len(answer)-1:] // a count
				}
				ask(method + test.get)
				ask("PUT " + test.put)
				if got := ask(method + test.get); (got != "1") != test.same {
					t.Errorf("%s%s, PUT %s: %q", method, test.get, test.put, got)
				}
			}
		}
	})
}
