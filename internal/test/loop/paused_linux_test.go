package loop

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

const (
	// pausedChild is the environment variable that makes the test binary run the server of TestPaused.
	pausedChild = "FILO_TEST_PAUSED"
	pausedTime  = time.Second // the child's time-outs
)

// TestPausedChild runs the server of TestPaused, in a child process that can be paused.
func TestPausedChild(t *testing.T) {
	if os.Getenv(pausedChild) == "" {
		t.Skip("started by TestPaused")
	}
	config := func() *filo.Server {
		return &filo.Server{
			ReadHeaderTimeout: pausedTime, ReadTimeout: pausedTime, IdleTimeout: pausedTime, MinTransferRate: -1, Concurrency: 1000,
			HTTP2: filo.HTTP2Options{Unencrypted: true},
			Handler: func(c *filo.Ctx) error {
				body, err := c.Body()
				if err != nil {
					return err
				}
				return c.Text(200, fmt.Sprint(len(body)))
			},
		}
	}
	fmt.Println("listening on", filotest.Serve(t, config()).Addr, filotest.ListenTLS(t, config()).Addr)
	io.Copy(io.Discard, os.Stdin)
}

// pausedServer is the child process.
type pausedServer struct {
	plain, tls string // addresses
	process    *os.Process
}

func newPausedServer(t *testing.T, driver string) *pausedServer {
	child := exec.Command(os.Args[0], "-test.run=^TestPausedChild$", "-test.count=1")
	child.Env = append(os.Environ(), pausedChild+"=1", filotest.DriverVariable+"="+driver)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Skip(err) // in an emulator, the system can't start this binary
	}
	t.Cleanup(func() {
		stdin.Close()
		child.Wait()
	})
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		s := &pausedServer{process: child.Process}
		if n, _ := fmt.Sscanf(line, "listening on %s %s", &s.plain, &s.tls); n == 2 {
			go io.Copy(io.Discard, lines)
			return s
		}
	}
}

// pause stops the process, and returns after all threads have stopped.
func (s *pausedServer) pause(t *testing.T) {
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal(err, status)
	}
}

func (s *pausedServer) goOn() { s.process.Signal(syscall.SIGCONT) }

// pausedCase is a connection whose server is paused while it waits for second. The client sends second in time, during the pause.
type pausedCase struct {
	name          string
	first, second string
	answers       int // the number of answers to first
	size          int // the size of the body

	// For HTTP/2, these functions replace first and second. The test waits for the answer on stream 3.
	begin, finish func(c *filotest.RawHTTP2)
}

const pausedGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

var pausedCases = []pausedCase{
	{name: "new", second: pausedGet},
	{name: "head", first: pausedGet[:20], second: pausedGet[20:]},
	{name: "idle", first: pausedGet, answers: 1, second: pausedGet},
	{name: "small body", first: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", second: "cd", size: 4},
	{name: "body", first: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\nab", second: strings.Repeat("x", 19998), size: 20000},
	{name: "chunked body", first: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab", second: "cd\r\n0\r\n\r\n", size: 4},
	{
		name: "HTTP/2: new", begin: func(*filotest.RawHTTP2) {},
		finish: func(c *filotest.RawHTTP2) { c.Request(3, "/", true).Send() },
	}, {
		name:   "HTTP/2: head",
		begin:  func(c *filotest.RawHTTP2) { c.Request(3, "/", true).Write(c.Out.Next(c.Out.Len() - 5)) },
		finish: func(c *filotest.RawHTTP2) { c.Send() },
	}, {
		name:   "HTTP/2: idle",
		begin:  func(c *filotest.RawHTTP2) { c.Request(1, "/", true).Send().WantAnswer(1, "200 0") },
		finish: func(c *filotest.RawHTTP2) { c.Request(3, "/", true).Send() },
	}, {
		name: "HTTP/2: small body",
		begin: func(c *filotest.RawHTTP2) {
			c.Request(3, "/", false, ":method", "POST", "content-length", "4").Data(3, false, []byte("ab")).Send()
		},
		finish: func(c *filotest.RawHTTP2) { c.Data(3, true, []byte("cd")).Send() }, size: 4,
	}, {
		name: "HTTP/2: body",
		begin: func(c *filotest.RawHTTP2) {
			c.Request(3, "/", false, ":method", "POST").Data(3, false, make([]byte, 10)).Send()
		},
		finish: func(c *filotest.RawHTTP2) {
			c.Data(3, false, make([]byte, 10000)).Data(3, true, make([]byte, 10000)).Send()
		}, size: 20010,
	},
}

// pausedClient is a client of TestPaused.
type pausedClient struct {
	*pausedCase
	client *filotest.Client
	http2  *filotest.RawHTTP2
	sent   chan struct{}
}

func (s *pausedServer) dial(t *testing.T, use *pausedCase, secure bool) *pausedClient {
	address := s.plain
	if secure {
		address = s.tls
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if secure {
		config := &tls.Config{InsecureSkipVerify: true} // the child has another certificate than this process
		if use.begin != nil {
			config.NextProtos = []string{"h2"}
		}
		conn = tls.Client(conn, config)
	}
	p := &pausedClient{pausedCase: use, client: filotest.NewClient(t, conn), sent: make(chan struct{})}
	if use.begin != nil {
		p.http2 = filotest.NewRawHTTP2(t, conn)
		use.begin(p.http2)
		return p
	}
	if use.first != "" {
		p.client.Send(use.first)
	}
	for range use.answers {
		p.client.Want(200, "0", false)
	}
	return p
}

// finish sends the rest of the request. If the TLS handshake is still to be made, finish waits for the server.
func (p *pausedClient) finish() {
	defer close(p.sent)
	if p.http2 != nil {
		p.pausedCase.finish(p.http2)
	} else {
		io.WriteString(p.client, p.second)
	}
}

// check reads and checks the answer.
func (p *pausedClient) check(t *testing.T, secure bool) {
	<-p.sent
	want := fmt.Sprint("200 ", p.size)
	if p.http2 != nil {
		s := p.http2.Streams[3]
		for !s.Ended && !s.Reset {
			if err := p.http2.Take(); err != nil {
				t.Errorf("%s, TLS %t: %v, %v", p.name, secure, s, err)
				return
			}
		}
		if s.String() != want {
			t.Errorf("%s, TLS %t: %v", p.name, secure, s)
		}
		return
	}
	response, body, err := p.client.TryAnswer()
	if err != nil || fmt.Sprint(response.StatusCode, " ", body) != want {
		t.Errorf("%s, TLS %t: %q, %v", p.name, secure, body, err)
	}
}

// If bytes arrive in time while the process is paused for longer than a time-out, the server doesn't refuse them.
func TestPaused(t *testing.T) {
	for _, driver := range []string{"loop", "blocking"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := newPausedServer(t, driver)
			for tries := 1; !s.pausedIn(t); tries++ {
				if tries == 5 {
					t.Skip("the machine is too busy")
				}
			}
		})
	}
}

// pausedIn creates clients of all kinds, pauses the server for longer than its time-outs, and checks the answers. It returns false if a
// time-out may have expired before the pause.
func (s *pausedServer) pausedIn(t *testing.T) bool {
	start := time.Now()
	var clients []*pausedClient
	secure := func(i int) bool {
		// In the blocking driver, a handshake may time out after the pause, because the server can't find out that crypto/tls is about to
		// read the ClientHello.
		return i < len(pausedCases) && (strings.HasSuffix(t.Name(), "/loop") || !strings.HasSuffix(pausedCases[i].name, "new"))
	}
	for i := range 3 * len(pausedCases) {
		clients = append(clients, s.dial(t, &pausedCases[i%len(pausedCases)], secure(i)))
	}
	s.pause(t)
	inTime := time.Since(start) < pausedTime*3/4
	if inTime {
		for _, p := range clients {
			go p.finish()
		}
		time.Sleep(pausedTime) // the length of the pause
	}
	s.goOn()
	if !inTime {
		return false
	}
	for i, p := range clients {
		p.check(t, secure(i))
	}
	return true
}
