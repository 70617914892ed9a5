package http2conf

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCollect(t *testing.T) {
	for name, serve := range map[string]func(*testing.T) func() (net.Conn, error){"clear": serveClear, "TLS": serveTLS} {
		dial := serve(t)
		over, _, err := look(dial, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		gate := make(chan bool, 200)
		for _, c := range Table() {
			if c.Over != Any && c.Over != over {
				continue
			}
			gate <- true
			group.Go(func() {
				defer func() { <-gate }()
				r := &runner{Case: c, dial: dial, timeout: 2 * time.Second, abrupt: true}
				if err := r.whole(); err != nil {
					fmt.Printf("DEV\t%s\t%s\t%s\n", name, c.Name, strings.ReplaceAll(err.Error(), "\n", "\t"))
				}
			})
		}
		group.Wait()
	}
}
