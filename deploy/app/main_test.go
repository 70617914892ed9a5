package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// patience is how long a test waits for anything.
const patience = time.Minute

func TestMain(m *testing.M) {
	if drain, err := time.ParseDuration(os.Getenv("APP_DRAIN")); err == nil { // this process is the program under test
		program(drain)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// get requests a URL until there is an answer, and returns the answer.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		response, err := http.Get(url)
		if err == nil {
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			return response.StatusCode, string(text)
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// The program answers on the paths of the probes, and its metrics include each metric that an alert or the dashboard names.
func TestApp(t *testing.T) {
	addr, metrics := filotest.FreeAddress(t), filotest.FreeAddress(t)
	settings := map[string]string{"ADDR": addr, "METRICS_ADDR": metrics, "REDIS_URL": "redis://127.0.0.1:1/0"}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, func(name string) string { return settings[name] }, 100*time.Millisecond) }()
	for path, want := range map[string]string{"/": "it works", "/livez": "ok", "/readyz": "ok"} { // even though its Redis is down
		if status, body := get(t, "http://"+addr+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	_, exposed := get(t, "http://"+metrics+"/metrics")
	named := regexp.MustCompile(`\b(?:filo|http|process|go)_[a-z0-9_]+`)
	for _, name := range []string{"../prometheus/alerts.yml", "../grafana/dashboard.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllString(string(text), -1)
		if len(found) < 5 {
			t.Errorf("%s names only %q", name, found)
		}
		for _, metric := range found {
			if !strings.Contains(exposed, "# TYPE "+strings.TrimSuffix(strings.TrimSuffix(metric, "_bucket"), "_count")+" ") && !unseen[metric] {
				t.Errorf("%s names %s, which the program doesn't have", name, metric)
			}
		}
	}
	if status, body := get(t, "http://"+metrics+"/debug/loglevel"); status != 200 || body != `{"level":"INFO"}`+"\n" {
		t.Errorf("the level of the log: %d %s", status, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run returned %v", err)
	}
}

// If a token is set, a client without the token gets nothing from the address of the metrics, even on this machine.
func TestToken(t *testing.T) {
	const token = "0123456789abcdef"
	addr, metrics := filotest.FreeAddress(t), filotest.FreeAddress(t)
	settings := map[string]string{"ADDR": addr, "METRICS_ADDR": metrics, "METRICS_TOKEN": token}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, func(name string) string { return settings[name] }, 0) }()
	for _, path := range []string{"/metrics", "/debug/loglevel", "/debug/pprof/heap"} {
		for url, want := range map[string]int{"http://" + metrics: 401, "http://any:" + token + "@" + metrics: 200} {
			if status, body := get(t, url+path); status != want {
				t.Errorf("%s%s: %d %s, want %d", url, path, status, body, want)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run returned %v", err)
	}
}

// Behind a proxy in TRUSTED_PROXIES, each client has a rate limit of its own. Other clients can't choose whose rate limit they use.
func TestTrustedProxies(t *testing.T) {
	handler, end, err := newHandler("", "10.0.0.0/8, 192.0.2.1/32", health.New(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	s := servertest.New(t, handler)
	for i, test := range []struct{ peer, client, left string }{
		{"10.1.2.3", "203.0.113.1", "599"},
		{"10.1.2.3", "203.0.113.2", "599"},
		{"192.0.2.1", "203.0.113.2", "598"},
		{"198.51.100.1", "203.0.113.3", "599"},
		{"198.51.100.1", "203.0.113.4", "598"},
	} {
		got := s.DoFrom(t, &net.TCPAddr{IP: net.ParseIP(test.peer), Port: 1}, "GET /", "X-Forwarded-For: "+test.client)
		if limit := got.Header.Get("RateLimit"); got.Status != 200 || !strings.Contains(limit, ";r="+test.left) {
			t.Errorf("request %d: %d, RateLimit %s, want %s left", i, got.Status, limit, test.left)
		}
	}
}

// unseen lists metrics that appear only after their first event, while requests run, or if there is a hub or a certificate.
var unseen = map[string]bool{
	"filo_requests_running": true, "filo_requests_running_oldest_seconds": true,
	"http_request_errors_total": true, "http_request_panics_total": true, "filo_drain_start_time_seconds": true,
	"filo_hub_clients": true, "filo_hub_clients_dropped_total": true,
	"filo_certificate_not_after_seconds": true, "filo_certificate_refused": true,
}

func TestBadSettings(t *testing.T) {
	for want, settings := range map[string]map[string]string{
		"redis":    {"REDIS_URL": "http://localhost"},
		"TRUSTED":  {"TRUSTED_PROXIES": "10.0.0.0/8, everybody"},
		"address":  {"METRICS_ADDR": "nowhere"},
		"address ": {"METRICS_ADDR": "127.0.0.1:0", "ADDR": "nowhere"},
	} {
		err := run(t.Context(), func(name string) string { return settings[name] }, 0)
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: got %v", settings, err)
		}
	}
}

// The program uses the socket that systemd has opened, and notifies systemd when it is ready.
func TestSocketActivation(t *testing.T) {
	activate, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal("there is no systemd-socket-activate; `make deps` installs it")
		}
		t.Skip("there is no systemd-socket-activate; `make deps` installs it")
	}
	told := filepath.Join(t.TempDir(), "notify")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: told, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	addr := filotest.FreeAddress(t)
	command := exec.Command(activate, "-l", addr, "-E", "METRICS_ADDR=127.0.0.1:0", "-E", "ADDR="+addr, "-E", "NOTIFY_SOCKET="+told, "-E", "APP_DRAIN=0s", os.Args[0])
	var output strings.Builder
	command.Stderr = &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		command.Process.Kill()
		command.Wait()
	}()
	if status, body := get(t, "http://"+addr+"/"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	notify.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 100)
	n, err := notify.Read(buffer)
	if got := fmt.Sprint(string(buffer[:n])); err != nil || !strings.HasSuffix(got, "\nREADY=1") {
		t.Errorf("systemd was told %q, %v\n%s", got, err, &output)
	}
	if err := command.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	if n, err = notify.Read(buffer); err != nil || string(buffer[:n]) != "STOPPING=1" {
		t.Errorf("systemd was told %q, %v", buffer[:n], err)
	}
}
