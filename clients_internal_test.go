package filo

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/logtest"
)

// testClient returns one of many addresses.
func testClient(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(10<<24+i))))
}

// Among 100,000 addresses, of which no more than a bounded number is kept, the hog is first by requests and by refusals, with its figures
// complete. Two minutes later nothing is left of it.
func TestClientHistory(t *testing.T) {
	s := &Server{Logger: slog.New(slog.DiscardHandler)}
	hog := netip.MustParseAddr("2001:db8::")
	now := clock.Time(time.Hour)
	s.clients.turned = now
	for i := range 100_000 {
		s.clients.addEnded(now, testClient(i), 1)
		s.clients.addRefused(now, refusedConcurrency, testClient(i))
		if i%50 == 0 {
			s.clients.addEnded(now, hog, 3)
			s.clients.addRefused(now, refusedMaxConnsPerIP, hog)
		}
	}
	for _, kind := range [...]*heavyClients{&s.clients.ended[0], &s.clients.refused[0]} {
		if len(kind.heap) != maxHeavy || len(kind.known) != maxHeavy {
			t.Errorf("%d and %d clients are kept", len(kind.heap), len(kind.known))
		}
		for i, c := range kind.heap {
			if c.index != i || kind.known[c.address] != c || i > 0 && kind.heap[(i-1)/2].weight > c.weight {
				t.Fatalf("the heap is wrong at %d", i)
			}
		}
	}
	found := func(now clock.Time) (requests, ended, refusals uint64) {
		for _, c := range s.clients.all(now) {
			if c.address == hog {
				requests, ended, refusals = requests+c.requests, ended+c.ended, refusals+c.refusals
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

// The first refusal for a reason is logged, and then one each ten seconds, with the number since the last one; each reason by itself.
func TestRefusalRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, logger := logtest.New(t)
		s := &Server{Logger: logger}
		client := netip.MustParseAddrPort("192.0.2.7:1234")
		refuse := func(reason refusalReason, times int) {
			for range times {
				s.refused(reason, client)
			}
		}
		refuse(refusedQueueFull, 100)
		refuse(refusedConcurrency, 1)
		refuse(refusedProxyProtocol, 1) // it has records of its own
		time.Sleep(refusalLogInterval - 1)
		refuse(refusedQueueFull, 1)
		time.Sleep(time.Nanosecond)
		refuse(refusedQueueFull, 1)
		lines := records.Lines("refused")
		if len(lines) != 3 {
			t.Fatalf("records: %q", lines)
		}
		for i, want := range []string{
			`"reason":"queue_full","client":"192.0.2.7","count":1`, `"reason":"concurrency","client":"192.0.2.7","count":1`,
			`"reason":"queue_full","client":"192.0.2.7","count":101`,
		} {
			if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "WARN") {
				t.Errorf("record %d is %s, want %s", i, lines[i], want)
			}
		}
		if r := s.Stats().Refusals; r.QueueFull != 102 || r.Concurrency != 1 || r.ProxyProtocol != 1 {
			t.Errorf("Refusals is %+v", r)
		}
	})
}
