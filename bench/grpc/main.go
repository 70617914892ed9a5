// Command grpc compares what calls cost the servers of contrib/grpc, grpc-go and connect-go: CPU time per call or message, and the memory of
// streams and connections that wait.
//
//	go run ./grpc                                     # all rows, 10 rounds
//	go run ./grpc -rows unary-100,stream -rounds 3
//
// Each figure comes from a server process of its own, which is this program started with -serve. In each round the servers take turns.
package main

import "github.com/filohttp/filo/bench/internal/turns"

func main() {
	comparison := turns.Comparison{Rows: rows, Servers: servers, Order: "grpc-go,filo,connect-go", Check: check}
	comparison.Main()
}
