//go:build linux

// Command trials tries a filo server on networks and systems that fail: packets that get lost, links that vanish, system calls with errors, too
// little memory, a full disk. Clients check each byte. A table shows for each fault what the clients have seen, what the server has logged,
// and what is left behind. It exits with 1 if an answer was wrong, a client got no answer and no error, the server has crashed, or
// something is left behind.
//
// It needs root's rights, and the programs ip and strace. All traffic is on the loopback, or between network namespaces of its own. Files are
// written to the folder for temporary files, where a tmpfs is mounted for the full disk. Besides, it makes a memory cgroup below
// /sys/fs/cgroup. It removes all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if is, err := part(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	o := options{output: os.Stdout}
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "of what links and clients choose at random")
	flag.BoolVar(&o.short, "short", false, "run only a few of the trials, in half a minute")
	flag.StringVar(&o.only, "only", "", "the only `rows` of the table to run: a part of their names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := lacks(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "trials: this machine can't run them:", err)
		os.Exit(1)
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "trials:", err)
		os.Exit(1)
	}
}
