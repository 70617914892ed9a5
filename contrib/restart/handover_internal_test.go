//go:build unix

package restart

import (
	"context"
	"testing"
	"time"
)

// A new program that is ready isn't killed, even if the old program is stopped, or ReadyTimeout has elapsed, at the same moment.
func TestReadyInTime(t *testing.T) {
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		ctx     context.Context
		timeout time.Duration
	}{
		"this program stops": {stopped, time.Hour},
		"the time is over":   {context.Background(), -1},
	} {
		for range 50 {
			told := make(chan byte, 1)
			told <- isReady
			r := &Restarter{options: Options{ReadyTimeout: test.timeout}}
			if word, err := r.awaitNext(test.ctx, told); word != isReady || err != nil {
				t.Fatalf("%s: %v, %v", name, word, err)
			}
			if word, err := r.awaitNext(test.ctx, nil); word != nothing || err == nil {
				t.Fatalf("%s, and nothing was told: %v, %v", name, word, err)
			}
		}
	}
}
