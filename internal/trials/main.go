//go:build linux

// Command trials tests a filo server on networks and systems that fail: lost packets, links that vanish, system calls that fail, too little
// memory, a full disk. Clients check each byte. A table shows for each fault the results of the clients, the server's log, and the resources
// that are left behind. The command exits with 1 if an answer was wrong, a client got neither an answer nor an error, the server has crashed,
// or resources are left behind.
//
// It must run as root, and needs the programs ip and strace. All traffic is on the loopback, or between network namespaces that it creates.
// It writes files to the directory for temporary files, where it also mounts a tmpfs as the disk that becomes full. It creates a memory
// cgroup below /sys/fs/cgroup. At the end, it removes all of them.
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
