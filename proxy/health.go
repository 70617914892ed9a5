package proxy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/syntax"
)

// HealthCheck configures the checks of upstreams. A check is a GET; a healthy upstream answers with a status from 200 to 399. An
// unhealthy upstream gets no requests. An upstream that was avoided because requests failed gets requests again after it passes a check.
type HealthCheck struct {
	// Path is the path of the check, appended to the upstream's own path. Default "/".
	Path string
	// Interval is the time between one check and the next. Default 10 s.
	Interval time.Duration
	// Timeout is the maximum time until an upstream has answered a check. Default 2 s.
	Timeout time.Duration
}

func (h *HealthCheck) setDefaults() {
	h.Path = cmp.Or(h.Path, "/")
	must(strings.HasPrefix(h.Path, "/"), "the path of a health check must begin with a slash: %s", h.Path)
	if h.Interval <= 0 {
		h.Interval = 10 * time.Second
	}
	if h.Timeout <= 0 {
		h.Timeout = 2 * time.Second
	}
}

// startChecks starts a goroutine for each upstream, which checks the upstream until Close.
func (p *Proxy) startChecks() {
	for _, u := range p.upstreams {
		p.checks.Go(func() {
			ticker := time.NewTicker(p.options.HealthCheck.Interval)
			defer ticker.Stop()
			for {
				p.check(u)
				select {
				case <-ticker.C:
				case <-p.closing.Done():
					return
				}
			}
		})
	}
}

// check sends a health check to an upstream, and records the result.
func (p *Proxy) check(u *upstream) {
	err := p.ask(u)
	if p.closing.Err() != nil {
		return
	}
	sick := err != nil
	if !sick {
		u.endRest()
	}
	if u.sick.Swap(sick) != sick {
		if sick {
			p.options.Logger.Warn("proxy: an upstream isn't healthy", "upstream", u.url.Redacted(), "error", syntax.LoggedError(err))
		} else {
			p.options.Logger.Info("proxy: an upstream is healthy again", "upstream", u.url.Redacted())
		}
	}
}

func (p *Proxy) ask(u *upstream) error {
	ctx, cancel := context.WithTimeout(p.closing, p.options.HealthCheck.Timeout)
	defer cancel()
	at := strings.TrimSuffix(u.url.String(), "/") + p.options.HealthCheck.Path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "filo-proxy-health")
	response, err := p.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	io.CopyN(io.Discard, response.Body, 64<<10)
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return fmt.Errorf("proxy: the health check was answered with status %d", response.StatusCode)
	}
	return nil
}
