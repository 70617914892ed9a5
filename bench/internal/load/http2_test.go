package load

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// newHTTP2Job is newJob with HTTP/2, with or without TLS.
func newHTTP2Job(t *testing.T, secure bool) *Job {
	j := newJob(t, func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP2(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		if secure {
			s.EnableHTTP2, s.TLS = true, &tls.Config{NextProtos: []string{"h2"}}
			s.StartTLS()
		} else {
			s.Start()
		}
	})
	j.Row.TLS, j.Row.Streams = secure, 3
	return j
}

func TestOpenHTTP2(t *testing.T) {
	for name, secure := range map[string]bool{"h2c": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			j := newHTTP2Job(t, secure)
			j.Rate = 200
			r, err := openCalm(t, j)
			if err != nil || r.Answers == 0 || r.Latency.P50 <= 0 || r.Latency.P99 < r.Latency.P50 {
				t.Errorf("%+v, %v", r, err)
			}
			for want, change := range map[string]func(){
				"and not":      func() { j.Row.Requests[0].Want.Body = []byte("jello") },
				"5 of 7 bytes": func() { j.Row.Requests[0].Want.Body = []byte(greeting + "!!") },
				`status "503"`: func() { j.Row.Requests[0].Target = "/busy" },
			} {
				before := j.Row.Requests[0]
				change()
				if _, err := openCalm(t, j); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
				j.Row.Requests[0] = before
			}
		})
	}
}

func TestH2load(t *testing.T) {
	if _, err := exec.LookPath("h2load"); err != nil {
		t.Skip("h2load isn't installed: make deps")
	}
	j := newHTTP2Job(t, false)
	j.Duration = time.Second
	if r, err := H2load(t.Context(), j); err != nil || r.Answers == 0 || r.Seconds < 1 {
		t.Errorf("%+v, %v", r, err)
	}
	j.Row.Requests[0].Target = "/busy"
	if r, err := H2load(t.Context(), j); err == nil {
		t.Errorf("refusals: %+v", r)
	}
}

func TestReadH2load(t *testing.T) {
	const good = "starting\n\nfinished in 1.00s, 10.00 req/s\nrequests: 12 total, 12 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout\n" +
		"status codes: 10 2xx, 0 3xx, 0 4xx, 0 5xx\n"
	if r, err := readH2load(good, 2*time.Second); err != nil || r.Answers != 10 || r.Seconds != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "nothing", strings.Replace(good, "0 failed", "1 failed", 1), strings.Replace(good, "10 succeeded", "9 succeeded", 1),
		strings.Replace(good, "0 errored", "2 errored", 1), strings.Replace(good, "10 2xx", "0 2xx", 1),
	} {
		if r, err := readH2load(bad, time.Second); err == nil {
			t.Errorf("%q: %+v", bad, r)
		}
	}
}
