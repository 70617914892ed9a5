package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/abuse"
)

// The command runs each attack in a process of its own executable, which is the test binary here.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args[1:], "-"+oneFlag) {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// run attacks net/http's server with the handler h, and returns the table's rows.
func run(t *testing.T, h http.Handler, attacks ...*abuse.Attack) (rows []string, ok bool) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: protocols(), ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	defer func() {
		s.Close()
		<-served
	}()
	c := config{addr: ln.Addr().String(), attacks: attacks, pids: []string{strconv.Itoa(os.Getpid())}, duration: time.Second,
		before: 200 * time.Millisecond, rate: 400}
	var b strings.Builder
	ok, err = c.runAll(&b)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	rows = lines[len(lines)-len(attacks):]
	for _, row := range rows {
		if strings.Count(row, "|") != strings.Count(header, "|")/2 {
			t.Errorf("not a row of the table: %s", row)
		}
	}
	return rows, ok
}

func find(t *testing.T, name string) *abuse.Attack {
	t.Helper()
	a, err := abuse.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The rows say how the server has reacted to the attacks, and ok says that there is no complaint.
func TestRun(t *testing.T) {
	t.Parallel()
	rows, ok := run(t, new(abuse.Site), find(t, "cookie-90"), find(t, "made-you-reset-priority-length"))
	if !ok || !strings.HasSuffix(rows[0], "| 0 | good |") || !strings.Contains(rows[0], "| cookie-90 | never × 1 |") ||
		!strings.Contains(rows[1], "| GOAWAY FRAME_SIZE_ERROR × ") {
		t.Errorf("%t\n%s", ok, strings.Join(rows, "\n"))
	}
}

// If the server doesn't end an attack that it should end, there is a complaint.
func TestRunNotEnded(t *testing.T) {
	t.Parallel()
	// net/http's server answers PING for ever.
	rows, ok := run(t, new(abuse.Site), find(t, "ping"))
	if ok || !strings.HasSuffix(rows[0], "| 1 of 1 attackers never lost a connection |") {
		t.Errorf("%t\n%s", ok, rows[0])
	}
}

// Errors of the polite client, too much memory and too many running handlers cause complaints.
func TestComplaints(t *testing.T) {
	t.Parallel()
	site := new(abuse.Site)
	var n atomic.Int64
	rows, ok := run(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 10 && r.URL.Path == "/" {
			w.WriteHeader(500)
			return
		}
		site.ServeHTTP(w, r)
	}), find(t, "cookie-90"))
	if ok || !strings.Contains(rows[0], "errors, first: the answer is 500") {
		t.Errorf("%t\n%s", ok, rows[0])
	}

	good := row{attack: find(t, "hpack-bomb"), counted: true, peak: 100}
	good.figure = abuse.Figure{Conns: 1, MaxStreams: 100}
	good.politeBefore.Answers, good.politeDuring.Answers = 1, 1
	for _, test := range []struct {
		want   string
		change func(r *row)
	}{
		{"", func(r *row) {}},
		{"200 MB more memory", func(r *row) { r.before.memory, r.during.peak = 100<<20, 300<<20 }},
		{"101 handlers ran at once, and 1 connections may have 100", func(r *row) { r.peak = 101 }},
		{"the polite client: 0 errors, first: <nil>", func(r *row) { r.politeDuring.Answers = 0 }},
		{"a frame", func(r *row) { r.figure.Wrong = "a frame" }},
	} {
		r := good
		test.change(&r)
		if r.judge(&config{}); strings.Join(r.complaints, "; ") != test.want {
			t.Errorf("%q, want %q", r.complaints, test.want)
		}
	}
}

func TestChoose(t *testing.T) {
	var c config
	if err := c.choose("ping,settings"); err != nil || len(c.attacks) != 2 || c.attacks[1].Name != "settings" {
		t.Errorf("%v, %v", c.attacks, err)
	}
	if c.choose("ping,pong") == nil {
		t.Error("there is no pong")
	}
}

func TestParseStat(t *testing.T) {
	const stat = "1234 (a ) 5 b) S 1 1234 1234 0 -1 4194560 2577 0 14 0 71 29 3 4 20 0 5 0 6170 1272733696 3105 18446744073709551615 1 1"
	if ticks, pages, err := parseStat(stat); ticks != 100 || pages != 3105 || err != nil {
		t.Errorf("%d ticks, %d pages, %v", ticks, pages, err)
	}
	for _, bad := range []string{"", "1234 (a) S 1", "1234", strings.Replace(stat, "71", "x", 1)} {
		if _, _, err := parseStat(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
	if _, _, err := readUsage([]string{"0"}); err == nil {
		t.Error("there is no process 0")
	}
	if cpu, memory, err := readUsage([]string{strconv.Itoa(os.Getpid())}); cpu < 0 || memory < 1<<20 || err != nil {
		t.Errorf("%v, %d bytes, %v", cpu, memory, err)
	}
}
