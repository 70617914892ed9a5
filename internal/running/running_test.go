package running

import (
	"net/netip"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
)

type conn struct{}

// A record describes its request from Begin to End, and is listed from Add to Remove.
func TestRecord(t *testing.T) {
	var set Set[conn]
	var first, second Record[conn]
	set.Add(&first)
	set.Add(&second)
	if n := len(set.All()); n != 0 {
		t.Errorf("%d requests before the first one", n)
	}
	first.Is(Reading) // there is no request yet
	start, owner, route := clock.Time(time.Hour), new(conn), &class.Class{Name: "GET /"}
	first.Begin(start, nil, owner, Handler)
	first.Begin(start.Add(time.Second), route, owner, Reading) // now the request's class is known
	request, ok := first.Look(start.Add(3 * time.Second))
	if want := (Request[conn]{Name: "GET /", State: Reading, Conn: owner, Age: 3 * time.Second}); !ok || request != want {
		t.Errorf("%+v, %t", request, ok)
	}
	if all := set.All(); len(all) != 1 || all[0] != &first {
		t.Errorf("%d requests", len(all))
	}
	client := netip.MustParseAddrPort("192.0.2.1:1")
	second.Begin(start, nil, nil, Queued)
	second.SetClient(client)
	second.Is(Answering)
	if request, ok := second.Look(start - 1); !ok || request != (Request[conn]{State: Answering, Client: client}) {
		t.Errorf("%+v, %t", request, ok)
	}
	second.End()
	if request, ok := second.Look(start); ok {
		t.Errorf("after the end: %+v", request)
	}
	second.Begin(start, nil, owner, Handler)
	if request, _ := second.Look(start); request.Name != "" || request.Client.IsValid() {
		t.Errorf("the next request has what the last one had: %+v", request)
	}
	for range 2 {
		set.Remove(&first)
		set.Remove(&second)
	}
	if n := len(set.All()); n != 0 || first.IsOn() || second.IsOn() {
		t.Errorf("%d requests in the end", n)
	}
	var none *Record[conn]
	none.Begin(start, nil, nil, Handler)
	none.Is(Reading)
	none.End()
}
