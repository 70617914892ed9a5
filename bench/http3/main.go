// Command http3 compares what HTTP/3 costs the servers of contrib/http3 and of quic-go with net/http, and HTTP/2 filo's: CPU time per request,
// memory of idle connections, and the CPU time and speed of large answers and bodies.
//
//	go run ./http3                                    # all rows, 10 rounds
//	go run ./http3 -rows get-1,down-cpu -rounds 3
//	go run ./http3 -report                            # ends with the table of docs/HTTP3.md
//
// Each figure comes from a server process of its own, which is this program started with -serve. In each round the servers take turns.
package main

import "github.com/filohttp/filo/bench/internal/turns"

func main() {
	comparison := turns.Comparison{Rows: rows, Servers: servers, Order: "quic-go,filo,filo-http2", Check: check}
	comparison.Main()
}
