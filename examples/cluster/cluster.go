package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/filohttp/filo"
)

// names are the instances' names, which haproxy.cfg also uses.
var names = []string{"one", "two", "three"}

//go:embed haproxy.cfg
var haproxyConfig string

// startTime is how long a program may take until it answers. It is long enough for a busy machine.
const startTime = time.Minute

// cluster holds the processes that this program has started. They end when this program ends.
type cluster struct {
	dir  string
	self string // the path of this program

	mu         sync.Mutex
	instances  map[string]*process // guarded by mu, like all fields below
	restarting bool
	rounds     int // how many rounds of restarts have ended
	failed     error
	next       int // the index in names of the instance to kill next
}

// process is the process of an instance, which may have ended.
type process struct {
	*exec.Cmd
	state  string // "starting", "ready", "draining" or "down"
	starts int
	ended  chan struct{}
}

// runCluster starts Redis, the instances and HAProxy, and serves the page until ctx ends, or until Redis or HAProxy ends unexpectedly.
func runCluster(ctx context.Context, addr string, stdout io.Writer) (err error) {
	paths := make(map[string]string)
	for _, name := range []string{"redis-server", "haproxy"} {
		if paths[name], err = exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is needed, which `make deps` installs: %w", name, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cluster") // the paths of sockets must be short
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	c := &cluster{dir: dir, self: self, instances: make(map[string]*process)}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var programs sync.WaitGroup
	defer programs.Wait()
	defer cancel(nil)
	keep := func(command *exec.Cmd) error {
		if err := command.Start(); err != nil {
			return err
		}
		programs.Go(func() {
			err := command.Wait()
			cancel(fmt.Errorf("%s has ended: %v", command.Path, err))
		})
		return nil
	}
	redis := c.command(ctx, paths["redis-server"], "--port", "0", "--unixsocket", redisSocket(dir), "--dir", dir, "--save", "", "--appendonly", "yes")
	redis.Stdout = nil // Redis prints too much
	if err := keep(redis); err != nil {
		return err
	}
	if err := await(ctx, func() error { return dial(redisSocket(dir)) }); err != nil {
		return fmt.Errorf("starting Redis: %w", err)
	}
	defer c.stopAll()
	for _, name := range names {
		if err := c.start(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.awaitReady(ctx, name); err != nil {
			return err
		}
	}
	server := &filo.Server{Handler: c.routes(ctx)}
	served := make(chan error, 1)
	go func() { served <- server.RunUnix(ctx, filepath.Join(dir, "supervisor"), 0o600) }()
	if err := c.startHAProxy(ctx, paths["haproxy"], listener, keep); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	err = <-served
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// command returns a command that gets SIGTERM when ctx ends.
func (c *cluster) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, args...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	command.SysProcAttr = childAttributes()
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = startTime
	return command
}

// startHAProxy starts HAProxy on the listener, and waits until requests to it reach the supervisor.
func (c *cluster) startHAProxy(ctx context.Context, path string, listener net.Listener, keep func(*exec.Cmd) error) error {
	config := filepath.Join(c.dir, "haproxy.cfg")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(haproxyConfig, "DIR", c.dir)), 0o600); err != nil {
		return err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer file.Close()
	command := c.command(ctx, path, "-q", "-f", config)
	command.ExtraFiles = []*os.File{file} // file descriptor 3 in the child
	if err := keep(command); err != nil {
		return err
	}
	url := "http://" + listener.Addr().String() + "/cluster/status"
	err = await(ctx, func() error {
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != 200 {
			return errors.New(response.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("starting HAProxy: %w", err)
	}
	return nil
}

// start starts an instance.
func (c *cluster) start(name string) error {
	// No context kills the instance: stop ends it, so that it can drain first.
	command := c.command(context.Background(), c.self, "-instance", name, "-dir", c.dir)
	os.Remove(instanceSocket(c.dir, name)) // a killed instance leaves its socket file
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting instance %s: %w", name, err)
	}
	p := &process{Cmd: command, state: "starting", starts: 1, ended: make(chan struct{})}
	c.mu.Lock()
	if before := c.instances[name]; before != nil {
		p.starts += before.starts
	}
	c.instances[name] = p
	c.mu.Unlock()
	go func() {
		command.Wait()
		c.setState(p, "down")
		close(p.ended)
	}()
	return nil
}

func (c *cluster) instance(name string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.instances[name]
}

func (c *cluster) setState(p *process, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.state = state
}

// awaitReady waits until an instance is ready for requests.
func (c *cluster) awaitReady(ctx context.Context, name string) error {
	p := c.instance(name)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", instanceSocket(c.dir, name))
		},
	}}
	err := await(ctx, func() error {
		select {
		case <-p.ended:
			return errEnded
		default:
		}
		response, err := client.Get("http://instance/readyz")
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != 200 {
			return errors.New(response.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for instance %s: %w", name, err)
	}
	c.setState(p, "ready")
	return nil
}

// stop sends a signal to an instance, and waits until the instance has ended.
func (c *cluster) stop(name string, signal syscall.Signal) {
	p := c.instance(name)
	if signal == syscall.SIGTERM {
		c.setState(p, "draining")
	}
	p.Process.Signal(signal) // an error means that the instance has already ended
	<-p.ended
}

// stopAll kills all running instances at once.
func (c *cluster) stopAll() {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.instances))
	c.mu.Unlock()
	for _, p := range all {
		p.Process.Kill() // no client can reach the instance any more
		<-p.ended
	}
}

// restart restarts instances one by one: each is ready again before the next one ends.
func (c *cluster) restart(ctx context.Context, signal syscall.Signal, names ...string) error {
	for _, name := range names {
		c.stop(name, signal)
		if err := c.start(name); err != nil {
			return err
		}
		if err := c.awaitReady(ctx, name); err != nil {
			return err
		}
		// HAProxy uses the instance again after its next check.
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

var errEnded = errors.New("it has ended")

// await calls a function until it succeeds, for at most startTime.
func await(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := try()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func dial(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}
