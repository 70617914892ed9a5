package main

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"syscall"

	coder "github.com/coder/websocket"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
)

// servers serve an echo on a listener. The names sort so that the one to compare with is the last.
var servers = map[string]func(net.Listener) error{
	"filo-serve":  func(ln net.Listener) error { return serveFilo(ln, upgrader.Serve) },
	"filo-accept": func(ln net.Listener) error { return serveFilo(ln, accept) },
	"net-coder":   func(ln net.Listener) error { return http.Serve(ln, http.HandlerFunc(serveCoder)) },
}

func serverNames() []string { return slices.Sorted(maps.Keys(servers)) }

var upgrader = websocket.New(websocket.Options{
	OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
		return c.Write(kind, message)
	},
})

func serveFilo(ln net.Listener, h filo.Handler) error {
	server := filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() == "/cpu" {
			return c.Text(200, cpuTime())
		}
		return h(c)
	}}
	own, err := server.Listen(ln.Addr().String()) // with a socket for each loop
	if err != nil {
		return err
	}
	fmt.Println(own.Addr())
	return server.Serve(own)
}

func accept(c *filo.Ctx) error {
	conn, err := upgrader.Accept(c)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read()
		if err != nil {
			return err
		}
		if err := conn.Write(kind, message); err != nil {
			return err
		}
	}
}

func serveCoder(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/cpu" {
		fmt.Fprint(w, cpuTime())
		return
	}
	conn, err := coder.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if err := conn.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}

// cpuTime returns the processor time of this process in nanoseconds.
func cpuTime() string {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return fmt.Sprint(usage.Utime.Nano() + usage.Stime.Nano())
}

// runServer serves until it is interrupted. It prints its address.
func runServer(name, profile string) error {
	serve := servers[name]
	if serve == nil {
		return fmt.Errorf("there is no server %q", name)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	failed := make(chan error, 1)
	if name == "net-coder" {
		fmt.Println(ln.Addr())
	} else {
		ln.Close() // its address is used again
	}
	go func() { failed <- serve(ln) }()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	select {
	case err := <-failed:
		return err
	case <-interrupted:
		return nil
	}
}
