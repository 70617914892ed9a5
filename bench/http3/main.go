// Command http3 compares three servers: HTTP/3 with contrib/http3, HTTP/3 with quic-go and net/http, and HTTP/2 with filo. It measures the CPU time
// per request, the memory of idle connections, and the CPU time and speed of large answers and bodies.
//
//	go run ./http3                                    # all rows, 10 rounds
//	go run ./http3 -rows get-1,down-cpu -rounds 3
//	go run ./http3 -report                            # ends with the table of docs/HTTP3.md
//
// Each figure comes from a new server process: this program, started with -serve. In each round the servers take turns.
package main

import "github.com/filohttp/filo/bench/internal/turns"

func main() {
	comparison := turns.Comparison{Rows: rows, Servers: servers, Order: "quic-go,filo,filo-http2", Check: check}
	comparison.Main()
}
