package conns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// lifeChild is the environment variable that makes the test binary run the server of TestOutOfDescriptors and the tests after it.
const lifeChild = "FILO_TEST_OUT_OF_DESCRIPTORS"

// lifeOutOfDescriptors is a server in a child process with a low limit for descriptors.
type lifeOutOfDescriptors struct {
	*filotest.Server
	t     *testing.T
	stdin io.WriteCloser
	lines chan string // of its log
	child *exec.Cmd
}

// lifeDescriptors is more than the number of descriptors that the child has for connections.
const lifeDescriptors = 60

func newLifeOutOfDescriptors(t *testing.T, mode string) *lifeOutOfDescriptors {
	child := exec.Command(os.Args[0], "-test.run=^TestOutOfDescriptorsChild$", "-test.count=1")
	child.Env = append(os.Environ(), lifeChild+"="+mode)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	switch err := child.Start(); {
	case errors.Is(err, syscall.ENOEXEC):
		t.Skip("the system can't start this binary: it runs in an emulator")
	case err != nil:
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	c := &lifeOutOfDescriptors{t: t, stdin: stdin, lines: lines, child: child}
	t.Cleanup(func() {
		stdin.Close()
		child.Wait()
	})
	c.Server = &filotest.Server{Addr: strings.TrimPrefix(c.until("listening on "), "listening on ")}
	return c
}

// until waits for the child's next log line that contains the text, and returns the line.
func (c *lifeOutOfDescriptors) until(text string) (line string) {
	c.t.Helper()
	for !strings.Contains(line, text) {
		line = filotest.Recv(c.t, c.lines, "the child to say "+text)
	}
	return line
}

// overfill opens more connections than the child has descriptors for, and sends a request on each.
func (c *lifeOutOfDescriptors) overfill() (clients []*filotest.Client) {
	for range lifeDescriptors {
		client := c.Dial(c.t)
		client.Get("/")
		clients = append(clients, client)
	}
	return clients
}

// end ends the child, and returns the remaining lines of its log.
func (c *lifeOutOfDescriptors) end() (rest []string) {
	c.stdin.Close()
	for line := range c.lines {
		rest = append(rest, line)
	}
	if err := c.child.Wait(); err != nil {
		c.t.Errorf("the child: %v", err)
	}
	return rest
}

// A server that runs out of descriptors logs this once, continues to serve its connections, and accepts again when descriptors are free. If a
// handler can't take a connection over because no descriptor is free, the request gets an answer, and the connection stays open.
func TestOutOfDescriptors(t *testing.T) {
	s := newLifeOutOfDescriptors(t, "1")
	clients := s.overfill()
	s.until("accepting connections fails")
	clients[0].Want(200, "quick", false) // the first accepted connection
	for range 10 {
		clients[0].Get("/")
		clients[0].Want(200, "quick", false)
	}
	for _, path := range []string{"/hijack", "/upgrade"} {
		if filotest.Blocking() {
			continue // with the blocking driver, taking over needs no further descriptor
		}
		clients[0].Send("GET " + path + takeOverRest)
		if response, body := clients[0].Answer(); response.StatusCode != 500 || response.Close {
			t.Errorf("%s: got %d %q, close %v", path, response.StatusCode, body, response.Close)
		}
		clients[0].Get("/")
		clients[0].Want(200, "quick", false)
	}
	for _, c := range clients[:lifeDescriptors*2/3] {
		c.Close()
	}
	for i, c := range clients[lifeDescriptors*2/3:] {
		c.Want(200, "quick", false)
		if i > 0 {
			continue
		}
		for { // repeat until enough descriptors are free
			c.Send("GET /upgrade" + takeOverRest)
			if response, _ := c.Answer(); response.StatusCode == 101 {
				break
			}
		}
		if rest, err := io.ReadAll(c.Reader); string(rest) != "taken" || err != nil {
			t.Errorf("behind the 101 comes %q, %v", rest, err)
		}
	}
	s.until("accepting connections again")
	for _, line := range s.end() {
		if strings.Contains(line, "accepting connections fails") {
			t.Errorf("said again: %s", line)
		}
	}
}

// Descriptors may run out repeatedly, for example while refused connections linger. The server logs one record when accepting fails and one
// when accepting works again, and has no other failure.
func TestOutOfDescriptorsAgain(t *testing.T) {
	s := newLifeOutOfDescriptors(t, "max")
	for round := range 10 {
		var clients []*filotest.Client
		for range lifeDescriptors {
			client := s.Dial(t)
			client.Send("G") // begin a request, because the server would close an idle connection to make room
			clients = append(clients, client)
		}
		if round == 0 {
			s.until("accepting connections fails")
		}
		for i := len(clients) - 1; i >= 0; i-- {
			clients[i].Close()
		}
		filotest.Await(t, "a connection to be served", func() bool {
			c := s.Dial(t)
			defer c.Close()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the server may have refused and closed the connection
			response, _, err := c.TryAnswer()
			return err == nil && response.StatusCode == 200
		})
	}
	fails, again := 1, 0
	for _, line := range s.end() {
		switch {
		case strings.Contains(line, "accepting connections fails"):
			fails++
		case strings.Contains(line, "accepting connections again"):
			again++
		case strings.Contains(line, filotest.DriverVariable):
		case strings.Contains(line, "msg=refused reason=max_conns"): // logged once a minute, if a connection arrives while all others are open
		case strings.Contains(line, "level=INFO msg=serving"), strings.Contains(line, "level=INFO msg=stopped"):
		case strings.Contains(line, "level="):
			t.Errorf("said: %s", line)
		}
	}
	if again > fails { // once a minute
		t.Errorf("said %d times that accepting fails, and %d times that it works again", fails, again)
	}
}

// By default, a server limits its connections so that descriptors never run out: it closes the oldest idle connections to make room for new
// ones. It also does so if descriptors run out before the limit is reached.
func TestDescriptorsSuffice(t *testing.T) {
	for _, mode := range []string{"derived", "many"} {
		t.Run(mode, func(t *testing.T) {
			s := newLifeOutOfDescriptors(t, mode)
			var last *filotest.Client
			for range 400 {
				last = s.Dial(t)
				last.Get("/")
				last.Want(200, "quick", false)
			}
			last.Get("/")
			last.Want(200, "quick", false)
			for _, line := range s.end() {
				if mode == "derived" && strings.Contains(line, "level=ERROR") {
					t.Errorf("said: %s", line)
				}
			}
		})
	}
}

// If the logger blocks in the record about missing descriptors, it blocks one worker, and no loop.
func TestOutOfDescriptorsLoggerWaits(t *testing.T) {
	filotest.NeedLoops(t)
	s := newLifeOutOfDescriptors(t, "logger")
	clients := s.overfill()
	s.until("the logger waits")
	clients[0].Want(200, "quick", false)
	for range 500 {
		clients[0].Get("/")
		clients[0].Want(200, "quick", false)
	}
	io.WriteString(s.stdin, "how many workers run?\n")
	running := 0
	if _, err := fmt.Sscanf(s.until("workers run"), "%d workers run", &running); err != nil || running > 10 {
		t.Errorf("%d workers run, %v; want the one that logs, and few that a busy machine holds up", running, err)
	}
	for _, c := range clients[:lifeDescriptors*2/3] {
		c.Close()
	}
	for _, c := range clients[lifeDescriptors*2/3:] {
		c.Want(200, "quick", false)
	}
	s.end()
}

// lifeWaitingLog is a log handler that blocks in a record about failing accepts until it is released.
type lifeWaitingLog struct {
	slog.Handler
	release chan struct{}
}

func (h lifeWaitingLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "accepting connections fails") {
		fmt.Println("the logger waits")
		<-h.release
	}
	return nil
}

// TestOutOfDescriptorsChild runs in the child process. It serves until its standard input ends.
func TestOutOfDescriptorsChild(t *testing.T) {
	mode := os.Getenv(lifeChild)
	if mode == "" {
		t.Skip("it is a part of TestOutOfDescriptors")
	}
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	// The limit allows 40 more descriptors than are open now. The open ones include the descriptor for reading this directory, and each loop
	// needs some.
	limit := syscall.Rlimit{Cur: uint64(len(open) + 40), Max: uint64(len(open) + 40)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	log := lifeWaitingLog{slog.NewTextHandler(os.Stdout, nil), make(chan struct{})}
	s := &filo.Server{Handler: takenOver, Leaders: 2, MaxConns: -1, Logger: slog.New(log.Handler)}
	switch mode {
	case "derived":
		s.MaxConns = 0
	case "many":
		s.MaxConns = 1000
	case "max":
		s.MaxConns = 10
	case "logger":
		s.Logger = slog.New(log)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	fmt.Printf("listening on %s\n", listener.Addr())
	for questions := bufio.NewScanner(os.Stdin); questions.Scan(); {
		fmt.Printf("%d workers run\n", s.Stats().WorkersRunning)
	}
	close(log.release)
	s.Close()
	if err := <-served; err != filo.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
}

const takeOverRest = " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// takenOver is a handler that takes the connection over for some paths.
func takenOver(c *filo.Ctx) error {
	take := func() (net.Conn, []byte, error) { return c.Upgrade("echo") }
	switch c.Path() {
	case "/hijack":
		take = c.Hijack
	case "/upgrade":
	default:
		return c.Text(200, "quick")
	}
	conn, _, err := take()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "taken")
	return err
}

// A server doesn't replace a socket file if another process listens there, even if the backlog of that socket is full.
func TestUnixSocketBusy(t *testing.T) { lifeUnixInUse(t, lifeBusySocket) }

// lifeBusySocket listens on a Unix socket without accepting, and fills the backlog, so that connect fails with EAGAIN.
func lifeBusySocket(t *testing.T, path string) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("the backlog can't be filled here")
}

// serversOption reads a socket option of the server's end of a connection, which is in this process, too.
func serversOption(t *testing.T, client net.Conn, level, option int) int {
	t.Helper()
	want := client.LocalAddr().(*net.TCPAddr)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		peer, _ := syscall.Getpeername(fd)
		if v4, ok := peer.(*syscall.SockaddrInet4); !ok || v4.Port != want.Port || !want.IP.Equal(net.IP(v4.Addr[:])) {
			continue
		}
		value, err := syscall.GetsockoptInt(fd, level, option)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	t.Fatal("the server has no such connection")
	return 0
}

// Each connection has TCP_NODELAY and keep-alive, whoever has opened the listener, even if the connection arrived before Serve was called.
func TestOptionsOfConnections(t *testing.T) {
	for name, listen := range map[string]func(s *filo.Server) (net.Listener, error){
		"the server's":  func(s *filo.Server) (net.Listener, error) { return s.Listen("127.0.0.1:0") },
		"the program's": func(*filo.Server) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		"without Multipath TCP": func(*filo.Server) (net.Listener, error) {
			var config net.ListenConfig
			config.SetMultipathTCP(false)
			return config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		},
		"inherited": func(*filo.Server) (net.Listener, error) { // as from systemd
			listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
			defer listener.Close()
			file, err := listener.(*net.TCPListener).File()
			if err != nil {
				return nil, err
			}
			defer file.Close()
			return net.FileListener(file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := &filo.Server{Handler: filotest.NewGate().Handle}
			listener, err := listen(config)
			if err != nil {
				t.Fatal(err)
			}
			s := &filotest.Server{Addr: listener.Addr().String()}
			var clients []*filotest.Client
			for range 3 {
				clients = append(clients, s.Dial(t))
			}
			s = filotest.Serve(t, config, listener)
			for i := range 6 {
				if i == len(clients) {
					clients = append(clients, s.Dial(t))
				}
				c := clients[i]
				c.Get("/")
				c.Want(200, "quick", false)
				for option, of := range map[string]struct{ level, name, want int }{
					"TCP_NODELAY":  {syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1},
					"SO_KEEPALIVE": {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
					"TCP_KEEPIDLE": {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 15},
				} {
					if got := serversOption(t, c, of.level, of.name); got != of.want {
						t.Errorf("connection %d: %s is %d, want %d", i, option, got, of.want)
					}
				}
			}
		})
	}
}

// The system buffers only a little unsent output of an HTTP/2 connection, so that an urgent answer can overtake a large one.
func TestUnsentLimit(t *testing.T) {
	const tcpNotSentLowat = 25
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		var client net.Conn
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { client = info.Conn }})
		answer, err := c.Fetch(ctx, "GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if _, ok := client.LocalAddr().(*net.TCPAddr); !ok {
			return // the connection is in memory, and has no such limit
		}
		if got := serversOption(t, client, syscall.IPPROTO_TCP, tcpNotSentLowat); got != 128<<10 {
			t.Errorf("TCP_NOTSENT_LOWAT is %d", got)
		}
	})
}

// A Unix socket's file never has more permissions than mode, not even for a moment.
func TestUnixSocketPermissions(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "socket")
	done := make(chan struct{})
	watched := make(chan fs.FileMode)
	go func() {
		var seen fs.FileMode
		for {
			if info, err := os.Lstat(path); err == nil {
				seen |= info.Mode().Perm()
			}
			select {
			case <-done:
				watched <- seen
				return
			default:
			}
		}
	}()
	for range 300 {
		listener, err := filo.ListenUnix(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		listener.Close()
	}
	close(done)
	if seen := <-watched; seen&^0o600 != 0 {
		t.Errorf("for a moment its permissions were %v", seen)
	}
}

// An abstract socket has no file, so the server sets no mode, and doesn't change a file of the same name.
func TestAbstractUnixSocket(t *testing.T) {
	t.Chdir(t.TempDir())
	name := fmt.Sprintf("@filo-test-%d", os.Getpid())
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := filo.ListenUnix(name, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	filotest.Serve(t, &filo.Server{Handler: filotest.NewGate().Handle}, listener)
	conn, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	c := filotest.NewClient(t, conn)
	c.Get("/")
	c.Want(200, "quick", false)
	if info, err := os.Lstat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
