package census

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// testClient returns one of many addresses.
func testClient(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(10<<24+i))))
}

// Only a bounded number of 100,000 addresses is kept. Among them the hog has the most requests and refusals, and its counts are complete. Two minutes
// later its counts are dropped.
func TestHistory(t *testing.T) {
	var clients History
	hog := netip.MustParseAddr("2001:db8::")
	now := clock.Time(time.Hour)
	clients.turned = now
	for i := range 100_000 {
		clients.AddEnded(now, testClient(i), 1)
		clients.AddRefused(now, 2, testClient(i))
		if i%50 == 0 {
			clients.AddEnded(now, hog, 3)
			clients.AddRefused(now, 1, hog)
		}
	}
	for _, kind := range [...]*sketch{&clients.ended[0], &clients.refused[0]} {
		if len(kind.heap) != maxHeavy || len(kind.known) != maxHeavy {
			t.Errorf("%d and %d clients are kept", len(kind.heap), len(kind.known))
		}
		for i, c := range kind.heap {
			if c.index != i || kind.known[c.Address] != c || i > 0 && kind.heap[(i-1)/2].weight > c.weight {
				t.Fatalf("the heap is wrong at %d", i)
			}
		}
	}
	found := func(now clock.Time) (requests, ended, refusals uint64) {
		for _, c := range clients.All(now) {
			if c.Address == hog {
				requests, ended, refusals = requests+c.Requests, ended+c.Ended, refusals+c.Refusals
			}
		}
		return
	}
	for _, each := range []struct {
		after time.Duration
		want  uint64
	}{{0, 2000}, {61 * time.Second, 2000}, {119 * time.Second, 2000}, {120 * time.Second, 0}} {
		requests, ended, refusals := found(now.Add(each.after))
		if requests != 3*each.want || ended != each.want || refusals != each.want {
			t.Errorf("after %v the hog has %d requests, %d connections, %d refusals", each.after, requests, ended, refusals)
		}
	}
}
