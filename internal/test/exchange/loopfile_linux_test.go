package exchange

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// slowFileSize is larger than the socket buffers of a client that doesn't read.
const slowFileSize = 24 << 20

// slowFile is a body of a file that counts how often it is closed.
type slowFile struct {
	*io.SectionReader
	closed *atomic.Int32
	broken bool
}

func (f slowFile) FileSection() *io.SectionReader { return f.SectionReader }

func (f slowFile) Close() error {
	f.closed.Add(1)
	if f.broken {
		panic("in Close")
	}
	return nil
}

// slowFiles serves a file, with one place for handlers that aren't quick. Requests for /work need this place.
func slowFiles(t *testing.T, config *filo.Server) (s *filotest.Server, file *os.File, content []byte, closed *atomic.Int32) {
	filotest.NeedLoops(t)
	file, content = sectionFile(t, slowFileSize)
	closed = new(atomic.Int32)
	work := filo.Offload(func(c *filo.Ctx) error { return c.Text(200, "worked") })
	config.Concurrency, config.Leaders = 1, 12 // so many that some leaders haven't run a handler before
	config.Handler = func(c *filo.Ctx) error {
		if c.Path() == "/work" {
			return work(c)
		}
		body := slowFile{io.NewSectionReader(file, 0, slowFileSize), closed, c.Path() == "/panic"}
		c.Response.SetBodyStream(body, slowFileSize)
		return nil
	}
	return filotest.Serve(t, config), file, content, closed
}

// keep requests the file, and doesn't read the answer's body. It returns the answer as soon as the loop, and no worker, sends the rest of the file.
func keep(c *filotest.Client, s *filotest.Server, path string) (response *http.Response) {
	c.T.Helper()
	const work = "GET /work HTTP/1.1\r\nHost: a\r\n\r\n"
	filotest.Await(c.T, "an answer", func() bool {
		c.Get(path)
		var err error
		if response, err = http.ReadResponse(c.Reader, nil); err != nil {
			c.T.Fatal(err)
		}
		if response.StatusCode != 200 {
			io.Copy(io.Discard, response.Body)
		}
		return response.StatusCode == 200
	})
	other := s.Dial(c.T)
	other.Send(work)
	other.Served(work, "worked")
	return response
}

// wantFile reads the rest of the answer, and compares it with the file.
func wantFile(c *filotest.Client, response *http.Response, content []byte) {
	c.T.Helper()
	if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, content) {
		c.T.Errorf("got %d bytes, which aren't those of the file, or not all: %v", len(got), err)
	}
}

// Clients that read a file slowly occupy no place and no worker. They get the complete file, and their next requests are answered.
func TestSlowDownloadsHoldNoWorker(t *testing.T) {
	t.Parallel()
	s, _, content, closed := slowFiles(t, &filo.Server{WriteTimeout: -1})
	var clients []*filotest.Client
	var answers []*http.Response
	for i := range 2 {
		c := s.Dial(t)
		clients, answers = append(clients, c), append(answers, keep(c, s, fmt.Sprint("/", i)))
	}
	if n := closed.Load(); n != 0 {
		t.Errorf("%d files were closed before they were sent", n)
	}
	for i, c := range clients {
		wantFile(c, answers[i], content)
		c.Send("GET /work HTTP/1.1\r\nHost: a\r\n\r\n")
		c.Served("GET /work HTTP/1.1\r\nHost: a\r\n\r\n", "worked")
	}
	filotest.Await(t, "the files to be closed", func() bool { return closed.Load() == 2 })
}

// A file that the loop sends without a worker is closed exactly once, however the transfer ends.
func TestSlowDownloadEnds(t *testing.T) {
	for name, test := range map[string]struct {
		config *filo.Server
		path   string
		end    func(t *testing.T, s *filotest.Server, c *filotest.Client, response *http.Response, file *os.File, content []byte)
	}{
		"the client leaves": {end: func(_ *testing.T, _ *filotest.Server, c *filotest.Client, _ *http.Response, _ *os.File, _ []byte) {
			c.Reset()
		}},
		"the file shrinks": {end: func(t *testing.T, _ *filotest.Server, c *filotest.Client, response *http.Response, file *os.File, _ []byte) {
			if err := os.Truncate(file.Name(), slowFileSize-10); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Errorf("the client took %d bytes for the whole file", n)
			}
			c.WantEnd()
		}},
		"WriteTimeout": {config: &filo.Server{WriteTimeout: 2 * time.Second, MinTransferRate: 1 << 30}, end: func(
			t *testing.T, s *filotest.Server, _ *filotest.Client, _ *http.Response, _ *os.File, _ []byte) {
			filotest.Await(t, "the end of the client's time", func() bool { return s.Stats().Timeouts.Write == 1 })
		}},
		"Shutdown": {end: func(t *testing.T, s *filotest.Server, c *filotest.Client, response *http.Response, _ *os.File, content []byte) {
			done := make(chan error, 1)
			go func() { done <- s.ShutdownInTime() }()
			filotest.Await(t, "the shutdown", func() bool { return s.Stats().Draining })
			wantFile(c, response, content)
			if err := filotest.Recv(t, done, "the shutdown"); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			c.WantEnd()
		}},
		"Close": {end: func(_ *testing.T, s *filotest.Server, c *filotest.Client, _ *http.Response, _ *os.File, _ []byte) {
			s.Close()
		}},
		"a panic": {path: "panic", end: func(t *testing.T, s *filotest.Server, c *filotest.Client, response *http.Response, _ *os.File, content []byte) {
			wantFile(c, response, content)
			c.Send("GET /work HTTP/1.1\r\nHost: a\r\n\r\n")
			c.Served("GET /work HTTP/1.1\r\nHost: a\r\n\r\n", "worked")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.config == nil {
				test.config = new(filo.Server)
			}
			test.config.Logger = slog.New(slog.DiscardHandler)
			s, file, content, closed := slowFiles(t, test.config)
			c := s.Dial(t)
			test.end(t, s, c, keep(c, s, "/"+test.path), file, content)
			filotest.Await(t, "the file to be closed", func() bool { return closed.Load() > 0 })
			c.Close()
			if err := s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if n := closed.Load(); n != 1 {
				t.Errorf("the file was closed %d times", n)
			}
		})
	}
}

// If the client reads a file at once, the leader that has read the request sends the file.
func TestFilesWithoutHandOff(t *testing.T) {
	filotest.NeedLoops(t)
	file, content := sectionFile(t, 100<<10)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		c.Response.SetBodyStream(io.NewSectionReader(file, 0, int64(len(content))), int64(len(content)))
		return nil
	}})
	c := s.Dial(t)
	// On a busy machine, the server may measure the handler as slow for a while, or the monitor may take the leader's seat away.
	filotest.Await(t, "twenty files in a row without a hand-off", func() bool {
		before := s.Stats()
		for range 20 {
			c.Get("/")
			response, err := http.ReadResponse(c.Reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantFile(c, response, content)
		}
		return s.Stats().Handoffs == before.Handoffs
	})
}

// While no place is free for a worker that waits, a large file is sent completely or not at all. A file is "large" here if it exceeds what
// the client reads at once, or what a leader may send.
func TestFilesWithoutPlace(t *testing.T) {
	filotest.NeedLoops(t)
	file, content := sectionFile(t, slowFileSize)
	occupied, release := make(chan struct{}), make(chan struct{})
	wait := filo.Offload(func(c *filo.Ctx) error {
		close(occupied)
		<-release
		return c.Text(200, "worked")
	})
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Concurrency: 1, Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/wait":
			return wait(c)
		case "/file":
			c.Response.SetBodyStream(io.NewSectionReader(file, 0, slowFileSize), slowFileSize)
		}
		return nil
	}})
	t.Cleanup(func() { close(release) })
	waiter := s.Dial(t)
	waiter.Get("/wait")
	filotest.Recv(t, occupied, "the place to be taken")
	filotest.Await(t, "a file without a place", func() bool {
		whole := false
		var clients []*filotest.Client
		for range 4 {
			c := s.Dial(t)
			c.Get("/") // so that the server has measured the handler as quick
			c.Get("/file")
			clients = append(clients, c)
		}
		for _, c := range clients {
			for range 2 {
				response, err := http.ReadResponse(c.Reader, nil)
				switch {
				case err != nil:
					t.Fatal(err)
				case response.StatusCode == 503:
					io.Copy(io.Discard, response.Body)
				case response.ContentLength == slowFileSize:
					wantFile(c, response, content)
					whole = true
				}
			}
			c.Close()
		}
		return whole
	})
}
