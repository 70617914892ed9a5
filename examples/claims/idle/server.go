package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/filohttp/filo"
	"github.com/valyala/fasthttp"
)

// childVariable names the environment variable that makes the program one of the servers.
const childVariable = "FILO_CLAIMS_IDLE_SERVER"

// names are the names of the servers; filo is the first.
var names = []string{"filo", "net/http", "fasthttp"}

const body = "Hello, World!"

func serve(name string, l net.Listener) error {
	switch name {
	case "filo":
		return filo.Serve(l, func(c *filo.Ctx) error { return c.Text(200, body) })
	case "net/http":
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) }))
	case "fasthttp":
		return fasthttp.Serve(l, func(ctx *fasthttp.RequestCtx) { ctx.WriteString(body) })
	}
	return fmt.Errorf("there is no server %q", name)
}

// child runs one of the servers until its input ends. First it prints the server's address. For each line of input it then collects garbage, returns
// free memory to the system, and prints how much memory and how many goroutines the process has.
func child(name string, in io.Reader, out io.Writer) {
	log.SetFlags(0)
	log.SetPrefix("idle: " + name + ": ")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(serve(name, l)) }()
	fmt.Fprintln(out, l.Addr())
	for lines := bufio.NewScanner(in); lines.Scan(); {
		debug.FreeOSMemory()
		resident, err := residentMemory()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintln(out, resident, runtime.NumGoroutine())
	}
}

// residentMemory returns the resident memory of the process, in bytes, as Linux reports it.
func residentMemory() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "\nVmRSS:")
	var kilobytes int
	if _, err := fmt.Sscanf(after, "%d kB", &kilobytes); err != nil {
		return 0, fmt.Errorf("/proc/self/status has no VmRSS: %w", err)
	}
	return kilobytes << 10, nil
}
