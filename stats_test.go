package filo

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/logtest"
)

// leftover names each count that isn't zero although nothing is open, including counts below zero.
func TestLeftover(t *testing.T) {
	s := &Server{Handler: func(*Ctx) error { return nil }}
	if left := s.leftover(); left != "" {
		t.Errorf("before the server is configured: %s", left)
	}
	s.configure()
	if left := s.leftover(); left != "" {
		t.Errorf("of a new server: %s", left)
	}
	s.pool.places.TakeBeyond()
	s.pool.spawned++
	s.answers.Wait(1)
	if left := s.leftover(); !strings.Contains(left, "ordinary places: 1\nworkers that haven't retired: 1\n") ||
		!strings.Contains(left, "handlers that wait for windows: 1\n") {
		t.Errorf("%q", left)
	}
}

// overdue reports a request that waits in the queue while a place is free, but no request that waits because no place is free.
func TestOverdueInQueue(t *testing.T) {
	s := &Server{Handler: func(*Ctx) error { return nil }, Concurrency: 1, Queue: 1, QueueTimeout: time.Hour}
	found := func() (all []string) {
		s.overdue(func(w hooks.OverdueWait) { all = append(all, w.What) })
		return all
	}
	if all := found(); len(all) > 0 {
		t.Errorf("before the server is configured: %q", all)
	}
	s.configure()
	places, left, ended := &s.pool.places, make(chan struct{}), make(chan struct{})
	places.JoinQueue()
	go func() {
		defer close(ended)
		places.AwaitPlace(func() bool { return false }, left, time.Time{})
		places.LeaveQueue()
	}()
	for places.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	if all := found(); len(all) != 1 || !strings.Contains(all[0], "a place is free") {
		t.Errorf("while a place is free: %q", all)
	}
	places.TakeBeyond()
	if all := found(); len(all) > 0 {
		t.Errorf("while all places are taken: %q", all)
	}
	close(left)
	<-ended
}

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
		s.refused(refusedProxyProtocol, client, "error", errUntrustedPeer)
		time.Sleep(census.LogInterval - 1)
		refuse(refusedQueueFull, 1)
		time.Sleep(time.Nanosecond)
		refuse(refusedQueueFull, 1)
		lines := records.Lines("refused")
		if len(lines) != 4 {
			t.Fatalf("records: %q", lines)
		}
		for i, want := range []string{
			`"reason":"queue_full","client":"192.0.2.7","count":1`, `"reason":"concurrency","client":"192.0.2.7","count":1`,
			`"reason":"proxy_protocol","client":"192.0.2.7","count":1,"error":"the peer isn't among ProxyProtocol.TrustedPeers"`,
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
