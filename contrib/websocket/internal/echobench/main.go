// Echobench compares the processor time that an echoed WebSocket message takes: of this package in its two modes, and of
// github.com/coder/websocket on net/http. Each server is a process of its own, and they are loaded in turns by the same client.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	serve := flag.String("serve", "", "be this server: "+strings.Join(serverNames(), ", "))
	only := flag.String("only", "", "compare only these servers, by commas")
	conns := flag.Int("conns", 64, "connections, each with one message on its way")
	size := flag.Int("size", 128, "bytes of a message")
	batch := flag.Int("batch", 1, "messages that are sent at once")
	rounds := flag.Int("rounds", 7, "rounds")
	round := flag.Duration("round", time.Second, "time that each server is loaded in a round")
	profile := flag.String("cpuprofile", "", "file for a profile of the server that -serve names")
	flag.Parse()
	var err error
	if *serve != "" {
		err = runServer(*serve, *profile)
	} else {
		err = compare(split(*only), load{*conns, *size, *batch}, *rounds, *round)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func split(names string) []string {
	if names == "" {
		return serverNames()
	}
	return strings.Split(names, ",")
}

// compare loads the servers in turns, and prints the medians.
func compare(names []string, l load, rounds int, round time.Duration) error {
	peers := make([]*peer, len(names))
	for i, name := range names {
		p, err := startPeer(name, l)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer p.stop()
		peers[i] = p
	}
	for r := range rounds + 1 {
		for _, p := range peers {
			result, err := p.measure(round)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if r > 0 { // the first one is for warming up
				p.results = append(p.results, result)
			}
		}
	}
	base := median(peers[len(peers)-1].results, func(r result) float64 { return r.perMessage })
	fmt.Printf("%d connections, %d bytes, %d at once; medians of %d rounds of %v\n", l.conns, l.size, l.batch, rounds, round)
	fmt.Printf("%-14s %12s %12s %8s\n", "", "CPU/message", "messages/s", "ratio")
	for _, p := range peers {
		cpu := median(p.results, func(r result) float64 { return r.perMessage })
		rate := median(p.results, func(r result) float64 { return r.rate })
		fmt.Printf("%-14s %9.2f µs %12.0f %8.2f\n", p.name, cpu/1e3, rate, cpu/base)
	}
	return nil
}

func median(results []result, of func(result) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = of(r)
	}
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}
