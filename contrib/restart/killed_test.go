//go:build linux

package restart_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/filotest"
)

// If one of the two programs is killed at any moment of a restart, the other program serves, or ends and leaves the address free. No client
// waits for a program that holds the address and doesn't answer, and no process is left (see program.start).
func TestKilledAtAnyTime(t *testing.T) {
	const moments, apart = 12, 15 * time.Millisecond
	for i := range moments {
		for _, victim := range []string{"old", "new"} {
			t.Run(fmt.Sprintf("%s, %v after the signal", victim, time.Duration(i)*apart), func(t *testing.T) {
				t.Parallel()
				address := filotest.FreeAddress(t)
				p, old := start(t, "tcp "+address)
				p.signal(old, syscall.SIGUSR2)
				time.Sleep(time.Duration(i) * apart) // each iteration kills at a different moment
				killed := old
				if victim == "new" {
					killed = p.await("starting")
				}
				syscall.Kill(killed, syscall.SIGKILL) // has no effect if the process has already ended
				if killed == old {
					p.first.Wait()
				}
				for late := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
					c := client{network: "tcp", address: address}
					pid, err := c.ask()
					if err == nil && pid != killed {
						return
					}
					if errors.Is(err, syscall.ECONNREFUSED) && p.ended() {
						return
					}
					if time.Now().After(late) {
						t.Fatalf("process %d was killed, and afterwards: %d, %v", killed, pid, err)
					}
				}
			})
		}
	}
}

// ended reports whether no process of the program is left: all of them print to the same pipe.
func (p *program) ended() bool {
	for {
		select {
		case _, ok := <-p.lines:
			if !ok {
				return true
			}
		default:
			return false
		}
	}
}
