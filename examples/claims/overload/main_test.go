package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/examples/internal/program"
)

// The table has a row for each server. A storm as short as this one overloads no server, so the claim doesn't hold.
func TestCompare(t *testing.T) {
	for storm := 20 * time.Millisecond; ; storm *= 2 {
		var out strings.Builder
		if err := compare(t.Context(), &out, config{storm: storm, after: storm}, 1000); err == nil || !strings.Contains(out.String(), "FAIL: ") {
			t.Fatalf("%v\n%s", err, &out)
		}
		var silent []string
		for _, each := range contestants(nil) {
			_, row, found := strings.Cut(out.String(), "| "+each.name+" |")
			if cells := strings.Split(row, "|"); !found || len(cells) < 8 || strings.HasPrefix(cells[0], " 0/s") {
				silent = append(silent, each.name)
			}
		}
		if len(silent) == 0 {
			return
		}
		if storm > 100*time.Millisecond { // on a busy machine a server may answer nothing in a shorter time
			t.Fatalf("%q have no row, or have answered nothing:\n%s", silent, &out)
		}
	}
}

// While the resource is blocked, 200 requests arrive at once. Servers with a limit refuse some of them. Servers without a limit let all of them wait.
func TestRefusals(t *testing.T) {
	r := make(resource, places)
	for _, each := range contestants(r) {
		for range places {
			r <- struct{}{}
		}
		address, stop, err := program.Background(each.serve)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{}
		const requests = 200
		load := &load{url: "http://" + address, client: &http.Client{Transport: transport}}
		statuses := make(chan int, requests)
		for range requests {
			go func() { statuses <- load.get() }()
		}
		count := make(map[int]int)
		free := func() {
			for range places {
				<-r
			}
		}
		if !each.limited {
			free()
		}
		for range requests {
			status := <-statuses
			if count[status]++; status == 503 && count[503] == 1 && each.limited {
				free()
			}
		}
		if (count[503] > 0) != each.limited || count[204]+count[503] != requests {
			t.Errorf("%s answers with %v", each.name, count)
		}
		transport.CloseIdleConnections()
		if err := stop(); err != nil {
			t.Errorf("%s: %v", each.name, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	limited, unlimited := result{"filo", true, 0.97, 0}, result{"net/http", false, 0.2, 0.9}
	for _, test := range []struct {
		limited, unlimited result
		good               bool
	}{
		{limited, unlimited, true},
		{result{"filo", true, 0.5, 0}, unlimited, false},
		{result{"filo", true, 0.97, 0.1}, unlimited, false},
		{limited, result{"net/http", false, 0.97, 0}, false},
	} {
		var out strings.Builder
		err := verdict(&out, []*result{&test.limited, &test.unlimited})
		if said := strings.Contains(out.String(), "PASS: "); (err == nil) != test.good || said != test.good {
			t.Errorf("%+v: %v, %s", test, err, &out)
		}
	}
}

func TestFlags(t *testing.T) {
	if err := run(t.Context(), []string{"-storm", "1ms"}, nil); err == nil {
		t.Error("a storm of a millisecond is accepted")
	}
}

func TestMeasure(t *testing.T) {
	if got, most := measure(), places/work.Seconds(); got <= 0 || got > most {
		t.Errorf("a resource of %d places and %v does %.0f a second", places, work, got)
	}
}
