// Command grpc compares what calls cost the servers of contrib/grpc, grpc-go, connect-go and gRPC's C++ library: CPU time per call or message, the memory of
// streams and connections that wait, and latencies at a constant rate.
//
//	go run ./grpc                                     # all rows, 10 rounds
//	go run ./grpc -rows unary-100,stream -rounds 3
//
// Each figure comes from a server process of its own, which is this program started with -serve. In each round the servers take turns.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/filohttp/filo/bench/internal/measure"
)

func main() {
	log.SetFlags(0)
	name := flag.String("serve", "", "serve as one of the servers, until standard input ends")
	rounds := flag.Int("rounds", 10, "how often each row is measured with each server")
	only := flag.String("rows", "", "the rows, separated by commas; default all")
	servers := flag.String("servers", "grpc-go,filo,connect-go,"+nameCpp, "the servers, separated by commas; the first one is what the others are compared with")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if *name != "" {
		log.Fatal(serve(*name))
	}
	chosen := rows
	if *only != "" {
		names := strings.Split(*only, ",")
		chosen = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(names, r.name) })
	}
	if err := run(ctx, chosen, strings.Split(*servers, ","), *rounds); err != nil {
		log.Fatal(err)
	}
}

// run compares the servers. The one by gRPC's C++ library is left out if it can't be built.
func run(ctx context.Context, chosen []row, names []string, rounds int) error {
	if i := slices.Index(names, nameCpp); i >= 0 {
		dir, err := os.MkdirTemp("", "grpc")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if cppProgram, err = buildCpp(dir); err != nil {
			log.Printf("%s is left out: %v", nameCpp, err)
			names = slices.Delete(names, i, i+1)
		}
	}
	return compare(ctx, chosen, names, rounds)
}

// compare measures the rows, and prints a table after each round.
func compare(ctx context.Context, chosen []row, servers []string, rounds int) error {
	figures := make(map[string][]float64) // of a row and a server, one for each round
	for round := range rounds {
		for _, r := range chosen {
			for _, name := range servers {
				figure, err := r.run(ctx, name)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, name, err)
				}
				figures[r.name+" "+name] = append(figures[r.name+" "+name], figure)
			}
		}
		fmt.Printf("\nafter %d of %d rounds: medians, and the median of each round's ratio to %s with the smallest and the largest one\n",
			round+1, rounds, servers[0])
		for _, r := range chosen {
			fmt.Printf("%-16s", r.name)
			base := figures[r.name+" "+servers[0]]
			for _, name := range servers {
				all := figures[r.name+" "+name]
				fmt.Printf("  %s %.2f %s", name, measure.Median(all), r.unit)
				if name != servers[0] {
					ratios := make([]float64, len(all))
					for i := range all {
						ratios[i] = all[i] / base[i]
					}
					fmt.Printf(" × %.2f (%.2f to %.2f)", measure.Median(ratios), slices.Min(ratios), slices.Max(ratios))
				}
			}
			fmt.Println()
		}
	}
	return nil
}
