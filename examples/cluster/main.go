// Command cluster is a chat that three instances serve behind HAProxy, with Redis. It starts all of these processes, without containers. Its page
// shows which instance serves each request while the instances are restarted one by one.
//
//	go run ./cluster                  # http://localhost:8080; needs haproxy and redis-server in PATH
//	go run ./cluster -addr :9000
//	curl -X POST localhost:8080/cluster/restart      # one instance after the other
//	curl -X POST localhost:8080/cluster/kill         # one of them with SIGKILL
//
// Ctrl-C ends all processes. No data is kept: Redis writes to a temporary directory.
package main

import (
	"context"
	"flag"
	"io"
	"time"

	"github.com/filohttp/filo/examples/internal/program"
)

// drainTime is how long an instance continues to serve after its readiness probe has begun to fail. HAProxy checks every 200 ms, and notices after
// two failed checks.
const drainTime = time.Second

func main() { program.Main("cluster", run) }

// run starts the cluster, and serves until ctx ends. With -instance it runs one of the instances instead.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` on which HAProxy listens; there is no login")
	name := flags.String("instance", "", "serve as the instance with this `name`, which the program does for itself")
	dir := flags.String("dir", "", "`directory` with the sockets, for -instance")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	if *name != "" {
		return runInstance(ctx, *name, *dir)
	}
	return runCluster(ctx, *addr, stdout)
}
