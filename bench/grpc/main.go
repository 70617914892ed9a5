// Command grpc compares servers that use contrib/grpc, grpc-go and connect-go: their CPU time per call or message, and the memory of idle streams and
// connections.
//
//	go run ./grpc                                     # all rows, 10 rounds
//	go run ./grpc -rows unary-100,stream -rounds 3
//
// Each figure comes from a new server process: this program, started with -serve. In each round the servers take turns.
package main

import (
	"log"
	"os"
	"syscall"

	"github.com/filohttp/filo/bench/internal/turns"
)

func main() {
	comparison := turns.Comparison{Rows: rows, Servers: servers, Order: "grpc-go,filo,connect-go", Check: check}
	program, isServer := os.LookupEnv(cppVariable)
	if !isServer {
		dir, err := os.MkdirTemp("", "grpc")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if program, err = buildCpp(dir); err != nil {
			log.Printf("%s is left out: %v", nameCpp, err)
		}
		os.Setenv(cppVariable, program)
	}
	if program != "" {
		comparison.Order += "," + nameCpp
		// The process replaces itself with the C++ server, so its resource usage is measured.
		servers[nameCpp] = func() (string, func() error, error) { return "", nil, syscall.Exec(program, []string{program}, nil) }
	}
	comparison.Main()
}
