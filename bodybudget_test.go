package filo_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// budgetBody is the size of the bodies: small enough to get a buffer of just that size.
const budgetBody = 512 << 10

// budgetServer has handlers that read their request's body as a whole, and then end as their path says.
type budgetServer struct {
	*filotest.Server
	read, release chan struct{}
}

func (s *budgetServer) handle(c *filo.Ctx) error {
	if c.Path() == "/form" {
		_, err := c.Request.MultipartForm()
		if err != nil {
			return err
		}
	} else if _, err := c.Body(); err != nil {
		return err
	}
	if c.Path() == "/whole" {
		return c.Text(200, "read")
	}
	if c.Path() == "/timeout" {
		c.SetTimeout(10*time.Millisecond, nil)
	}
	select {
	case s.read <- struct{}{}:
		<-s.release
	case <-s.release:
	}
	switch c.Path() {
	case "/panic":
		panic("of the test")
	case "/exit":
		runtime.Goexit()
	case "/hijack":
		conn, _, err := c.Hijack()
		if err == nil {
			conn.Close()
		}
		return err
	}
	return c.Text(200, "read")
}

// eachBudget runs a test with each protocol, in each driver. The test starts servers with serve. For each call of client, it gets a client with
// a connection of its own.
func eachBudget(t *testing.T, test func(t *testing.T, config *filo.Server, serve func() *budgetServer, client func(*budgetServer) *filotest.HTTP2Client)) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(driver.String()+" "+protocol, func(t *testing.T) {
				config := &filo.Server{Driver: driver, HTTP2: filo.HTTP2Options{Unencrypted: true}}
				serve := func() *budgetServer {
					s := &budgetServer{read: make(chan struct{}), release: make(chan struct{})}
					config.Handler = s.handle
					s.Server = filotest.Serve(t, config)
					return s
				}
				test(t, config, serve, func(s *budgetServer) *filotest.HTTP2Client {
					if protocol == "HTTP/2" {
						return filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil)
					}
					transport := &http.Transport{ExpectContinueTimeout: time.Minute}
					t.Cleanup(transport.CloseIdleConnections)
					return &filotest.HTTP2Client{Client: &http.Client{Transport: transport}, T: t, URL: "http://" + s.Addr}
				})
			})
		}
	}
}

// postBody sends a body, and returns the status and Retry-After of the answer.
func postBody(c *filotest.HTTP2Client, path string, size int) string {
	response, err := c.Fetch(context.Background(), "POST", path, bytes.NewReader(make([]byte, size)), "Expect", "100-continue")
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, response.Header.Get("Retry-After"))
}

// Bodies that fit the budget are read, a client that is refused gets a 503 that says when to come back, and afterwards there is room again.
func TestBodyBudget(t *testing.T) {
	eachBudget(t, func(t *testing.T, config *filo.Server, serve func() *budgetServer, client func(*budgetServer) *filotest.HTTP2Client) {
		const fit = 4
		config.MaxBufferedBodies = fit*budgetBody + 1000
		s := serve()
		answers := make(chan string, fit+2)
		held, refused := 0, client(s)
		for held = 0; held <= fit; held++ {
			go func() { answers <- postBody(refused, "/", budgetBody) }()
			full := ""
			select {
			case <-s.read:
				refused = client(s)
				continue
			case full = <-answers:
			}
			if full != "503 1" {
				t.Errorf("a body too many: %s", full)
			}
			break
		}
		// Over HTTP/2 a body takes up room before it is read, and once half of the budget is used, a client may take up only a share of it.
		least := 1
		if strings.HasSuffix(t.Name(), "1.1") {
			least = fit
		}
		if used := s.Stats().BodiesBuffered; held > fit || held < least || used < int64(held)*budgetBody || used > config.MaxBufferedBodies {
			t.Errorf("%d bodies are held, and %d bytes are counted", held, used)
		}
		if got := s.Stats().Refusals; got != (filo.Refusals{BufferedBodies: 1}) {
			t.Errorf("%+v", got)
		}
		if refused := s.Stats().RequestsRefused; refused != 1 {
			t.Errorf("%d requests were refused", refused)
		}
		go func() { answers <- postBody(refused, "/", 10_000) }()
		filotest.Recv(t, s.read, "a small body to be read")
		close(s.release)
		for range held + 1 {
			if got := filotest.Recv(t, answers, "an answer"); got != "200 " {
				t.Errorf("a body that fits: %s", got)
			}
		}
		if got := postBody(refused, "/", budgetBody); got != "200 " {
			t.Errorf("a body afterwards: %s", got)
		}
		s.awaitNoBodies(t)
	})
}

// lackingByte is a body whose last byte never arrives.
type lackingByte struct {
	left int
	end  context.Context
}

func (r *lackingByte) Read(p []byte) (int, error) {
	if r.left == 0 {
		<-r.end.Done()
		return 0, r.end.Err()
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

// postSilently sends a body without its last byte. The channel delivers the answer's status.
func postSilently(c *filotest.HTTP2Client, ctx context.Context, path string, size int) chan string {
	status := make(chan string, 1)
	request, err := http.NewRequestWithContext(ctx, "POST", c.URL+path, &lackingByte{size - 1, ctx})
	if err != nil {
		c.T.Fatal(err)
	}
	request.ContentLength = int64(size)
	go func() {
		response, err := c.Do(request)
		if err != nil {
			status <- err.Error()
			return
		}
		status <- response.Status
		response.Body.Close() // over HTTP/2, Close waits for the body's Read
	}()
	return status
}

// Bodies of silent clients don't shut out others: the body that has been silent for the longest makes room, once it has been silent for a
// second.
func TestSilentBodyMakesRoom(t *testing.T) {
	eachBudget(t, func(t *testing.T, config *filo.Server, serve func() *budgetServer, client func(*budgetServer) *filotest.HTTP2Client) {
		t.Parallel()
		const fit, size = 4, 2 * budgetBody
		config.MaxBufferedBodies = fit*size + size/2
		s := serve()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		first, polite := postSilently(client(s), ctx, "/whole", size), client(s)
		filotest.Await(t, "silence", func() bool { return s.SilentBodies(time.Second) == 1 })
		begin := time.Now()
		var others []chan string
		// hold sends n other bodies, whose clients then stay silent. A body that gets an answer is sent again: over HTTP/2 its handler may be
		// slow, and then its client may have only its share of the budget.
		hold := func(n int) {
			filotest.Await(t, "other bodies", func() bool {
				for len(others) < n {
					others = append(others, postSilently(client(s), ctx, "/whole", size))
				}
				for i, other := range others {
					select {
					case <-other:
						others[i] = postSilently(client(s), ctx, "/whole", size)
					default:
					}
				}
				return s.SilentBodies(0) >= n && s.Stats().BodiesBuffered >= int64(n)*size // bodies are also silent for moments while they arrive
			})
		}
		hold(fit - 1) // with the first body these are as many as fit, unless the first one has already made room for a body that was sent again
		filotest.Await(t, "room", func() bool { return postBody(polite, "/whole", size) == "200 " })
		if got := filotest.Recv(t, first, "the answer to the first silent body"); got != "408 Request Timeout" {
			t.Errorf("the body that was silent for the longest: %s", got)
		}
		if time.Since(begin) < time.Second { // over HTTP/2 a handler first waits for further bytes of its body
			hold(fit)
			got, cut := postBody(polite, "/whole", size), s.Stats().Timeouts.Body
			if time.Since(begin) < time.Second && (got != "503 1" || cut != 1) {
				t.Errorf("beside bodies that have just been silent: %s, and %d were cut off", got, cut)
			}
		}
		cancel()
		s.awaitNoBodies(t)
	})
}

func (s *budgetServer) awaitNoBodies(t *testing.T) {
	t.Helper()
	filotest.Await(t, "the memory of all bodies to come back", func() bool { return s.Stats().BodiesBuffered == 0 })
}

// A body that is larger than the budget is read as long as it is alone.
func TestBodyBudgetAlone(t *testing.T) {
	eachBudget(t, func(t *testing.T, config *filo.Server, serve func() *budgetServer, client func(*budgetServer) *filotest.HTTP2Client) {
		if strings.HasSuffix(t.Name(), "/2") {
			t.Skip("by HTTP/2 a handler that is behind gets no more than the budget")
		}
		config.MaxBufferedBodies = budgetBody / 2
		s := serve()
		answer := make(chan string, 1)
		alone := client(s)
		go func() { answer <- postBody(alone, "/", budgetBody) }()
		filotest.Recv(t, s.read, "the body to be read")
		if got := postBody(client(s), "/", budgetBody); got != "503 1" {
			t.Errorf("beside it: %s", got)
		}
		close(s.release)
		if got := filotest.Recv(t, answer, "an answer"); got != "200 " {
			t.Errorf("alone: %s", got)
		}
		s.awaitNoBodies(t)
	})
}

// Without a limit nothing is refused, and the bytes are counted all the same.
func TestBodyBudgetUnlimited(t *testing.T) {
	s := &budgetServer{read: make(chan struct{}), release: make(chan struct{})}
	s.Server = filotest.Serve(t, &filo.Server{MaxBufferedBodies: -1, Handler: s.handle})
	c := s.Dial(t)
	c.Send(budgetRequest("/", budgetBody) + strings.Repeat("x", budgetBody))
	filotest.Recv(t, s.read, "the body to be read")
	if used := s.Stats().BodiesBuffered; used != budgetBody {
		t.Errorf("%d bytes are counted", used)
	}
	close(s.release)
	c.Want(200, "read", false)
	s.awaitNoBodies(t)
}

func budgetRequest(path string, size int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, size)
}

// A client that sends its body without waiting for a 100 also gets to read its 503. The connection stays open if little is left of the
// body.
func TestBodyBudgetConnection(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		t.Run(driver.String(), func(t *testing.T) {
			s := &budgetServer{read: make(chan struct{}), release: make(chan struct{})}
			s.Server = filotest.Serve(t, &filo.Server{Driver: driver, MaxBufferedBodies: budgetBody, Handler: s.handle})
			full := s.Dial(t)
			full.Send(budgetRequest("/", budgetBody) + strings.Repeat("x", budgetBody))
			filotest.Recv(t, s.read, "the body to be read")
			const text = "Service Unavailable: too many request bodies at once\n"

			announced, chunked, large := s.Dial(t), s.Dial(t), s.Dial(t)
			announced.Send(budgetRequest("/", 100_000) + strings.Repeat("x", 100_000))
			announced.Want(503, text, false)
			chunked.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
				"186a0\r\n" + strings.Repeat("x", 100_000) + "\r\n0\r\n\r\n")
			chunked.Want(503, text, false)
			large.Send(budgetRequest("/", budgetBody) + strings.Repeat("x", budgetBody))
			large.Want(503, text, true)
			large.WantEOF()
			close(s.release)
			full.Want(200, "read", false)
			for _, c := range []*filotest.Client{announced, chunked, full} {
				c.Send(budgetRequest("/", 100_000) + strings.Repeat("x", 100_000))
				c.Want(200, "read", false)
			}
			s.awaitNoBodies(t)
		})
	}
}

// However a request ends, the budget gets back the room of its body.
func TestBodyBudgetComesBack(t *testing.T) {
	whole := strings.Repeat("x", budgetBody)
	for name, test := range map[string]struct {
		path, body string
		end        func(s *budgetServer, c *filotest.Client)
	}{
		"panic":              {"/panic", whole, nil},
		"Goexit":             {"/exit", whole, nil},
		"Hijack":             {"/hijack", whole, nil},
		"client gone":        {"/", whole, func(s *budgetServer, c *filotest.Client) { c.Reset() }},
		"client gone before": {"/part", whole[:budgetBody/2], func(s *budgetServer, c *filotest.Client) { c.Close() }},
		"too slow":           {"/part", whole[:budgetBody/2], func(s *budgetServer, c *filotest.Client) {}},
		"timeout": {"/timeout", whole, func(s *budgetServer, c *filotest.Client) {
			if response, body := c.Answer(); response.StatusCode != 503 {
				c.T.Errorf("%d %q", response.StatusCode, body)
			}
		}},
		"shutdown": {"/", whole, func(s *budgetServer, c *filotest.Client) { s.Close() }},
	} {
		for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
			t.Run(name+" "+driver.String(), func(t *testing.T) {
				s := &budgetServer{read: make(chan struct{}), release: make(chan struct{})}
				config := &filo.Server{Driver: driver}
				if name == "too slow" {
					config.ReadTimeout, config.MinTransferRate = 100*time.Millisecond, 100<<20
				}
				config.Handler = s.handle
				var log filotest.Log
				config.Logger = log.Logger()
				s.Server = filotest.Serve(t, config)
				c := s.Dial(t)
				c.Send(budgetRequest(test.path, budgetBody) + test.body)
				if test.path == "/part" {
					filotest.Await(t, "a part of the body to be buffered", func() bool { return s.Stats().BodiesBuffered > 0 || s.Stats().Requests[4] > 0 })
				} else {
					filotest.Recv(t, s.read, "the body to be read")
				}
				if test.end != nil {
					test.end(s, c)
				}
				close(s.release)
				s.awaitNoBodies(t)
			})
		}
	}
}

// The parts of a form that stay in memory count: values, and files up to MaxMemory.
func TestBodyBudgetForm(t *testing.T) {
	for name, test := range map[string]struct {
		value, file int
		want        int64
	}{
		"small":            {1000, 1000, 0},
		"a file":           {0, 3 << 20, 1 << 20},
		"values":           {2 << 20, 0, 2<<20 + 1},
		"a file in memory": {0, 500_000, 500_000},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{read: make(chan struct{}), release: make(chan struct{})}
			s.Server = filotest.Serve(t, &filo.Server{Handler: s.handle})
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			if test.value > 0 {
				form.WriteField("v", strings.Repeat("x", test.value))
			}
			if test.file > 0 {
				part, _ := form.CreateFormFile("f", "f")
				part.Write(make([]byte, test.file))
			}
			form.Close()
			c := s.Dial(t)
			c.Send(fmt.Sprintf("POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", form.FormDataContentType(), body.Len()))
			c.Send(body.String())
			filotest.Recv(t, s.read, "the form to be read")
			if used := s.Stats().BodiesBuffered; used != test.want {
				t.Errorf("%d bytes are counted, want %d", used, test.want)
			}
			close(s.release)
			c.Want(200, "read", false)
			s.awaitNoBodies(t)
		})
	}
}

// The values of a form count while they arrive, even if no file may stay in memory.
func TestBodyBudgetFormArrives(t *testing.T) {
	s := &budgetServer{read: make(chan struct{}), release: make(chan struct{})}
	s.Server = filotest.Serve(t, &filo.Server{
		Handler: s.handle, MaxBufferedBodies: 8 << 20, MultipartLimits: filo.MultipartLimits{MaxMemory: -1},
	})
	defer close(s.release)
	for range 20 {
		c := s.Dial(t)
		// The write may fail: the server may have refused the form already.
		io.WriteString(c.Conn, "POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 4000000\r\n\r\n"+
			"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n"+strings.Repeat("x", 3<<20))
	}
	filotest.Await(t, "forms beyond the budget to be refused, or silent ones to make room", func() bool {
		stats := s.Stats()
		if stats.BodiesBuffered > 8<<20 {
			t.Errorf("%d bytes are counted", stats.BodiesBuffered)
		}
		return stats.Refusals.BufferedBodies+stats.Timeouts.Body > 0
	})
}

// While half of the budget is used, by waiting answers or handlers, clients have a tenth of the time to open their windows.
func TestCrowdedAnswers(t *testing.T) {
	for _, c := range []struct {
		timeout       time.Duration
		limit         int64
		used, waiting int64
		want          time.Duration
	}{
		{0, 0, 0, 0, 30 * time.Second},
		{0, 1 << 20, 1 << 19, 0, 30 * time.Second},
		{0, 1 << 20, 1<<19 + 1, 0, 3 * time.Second},
		{0, 1 << 20, 1, 16, 3 * time.Second},
		{0, -1, 1 << 40, 1 << 20, 30 * time.Second},
		{5 * time.Second, 1 << 20, 1 << 20, 0, time.Second},
		{time.Millisecond, 1 << 20, 1 << 20, 0, time.Millisecond},
		{-1, 1 << 20, 1 << 20, 0, -1},
	} {
		s := &filo.Server{WriteTimeout: c.timeout, MaxBufferedAnswers: c.limit}
		if got := filo.WindowGrace(s, c.used, c.waiting); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
