package redisfilo_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/servertest"
	"github.com/redis/go-redis/v9"
)

// patience is how long a test waits for something that must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	flag.Set("test.parallel", "8") // each test has its own Redis, and waits for it most of the time
	os.Exit(m.Run())
}

// silent discards go-redis's records about connections that tests break.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// redisServer is a redis-server on a Unix socket that only one test uses.
type redisServer struct {
	t      testing.TB
	path   string // the path of the program
	dir    string
	flags  []string
	cmd    *exec.Cmd
	output bytes.Buffer
}

// startRedis starts a redis-server. If durable is set, the server stores each write on disk; otherwise its data is lost when it ends.
func startRedis(t testing.TB, durable bool) *redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal("there is no redis-server; `make deps` installs it")
		}
		t.Skip("there is no redis-server; `make deps` installs it")
	}
	dir, err := os.MkdirTemp("", "redis") // not t.TempDir: the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &redisServer{t: t, path: path, dir: dir, flags: []string{"--port", "0", "--unixsocket", filepath.Join(dir, "s"), "--dir", dir, "--save", ""}}
	if durable {
		s.flags = append(s.flags, "--appendonly", "yes", "--appendfsync", "always")
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// start starts the server, or restarts it after kill, and waits until it answers.
func (s *redisServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.path, s.flags...)
	s.cmd.Stdout = &s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := s.client()
	defer client.Close()
	poll(s.t, "redis-server to answer", func() bool { return client.Ping(context.Background()).Err() == nil })
}

func (s *redisServer) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the server at once, as a power failure does.
func (s *redisServer) kill() {
	if s.cmd.ProcessState == nil {
		s.signal(syscall.SIGKILL)
		s.cmd.Wait()
	}
}

func (s *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: filepath.Join(s.dir, "s"), ContextTimeoutEnabled: true,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 10 * time.Millisecond,
	})
}

// connect returns a Redis with a separate client, as if it belonged to another process.
func (s *redisServer) connect(options redisfilo.Options) *redisfilo.Redis {
	client := s.client()
	s.t.Cleanup(func() { client.Close() })
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return redisfilo.New(client, options)
}

// poll waits until the condition holds.
func poll(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// within calls f in a request.
func within(t *testing.T, f func(c *filo.Ctx)) {
	t.Helper()
	s := servertest.New(t, func(c *filo.Ctx) error {
		f(c)
		return nil
	})
	s.Do(t, "GET /")
}

// records collects the lines of a log.
type records struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *records) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), text)
}

func (r *records) logger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Writer(r), nil)) }
