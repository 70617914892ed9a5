package filo

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/logtest"
)

// The first refusal for a reason is logged, and then one in ten seconds, with the number of refusals since the last record. Each reason has
// its own records.
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
		time.Sleep(census.LogInterval - 1)
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
