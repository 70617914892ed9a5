package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/filohttp/filo"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// page is the handler of GET /. It shows the running program, commands to try, and the server's current counters.
type page struct {
	scheme  string
	started time.Time
}

func newPage(scheme string) *page {
	return &page{scheme: scheme, started: time.Now()}
}

// pageData holds the values of the template.
type pageData struct {
	Base       string // "http://host:port", as the browser called it
	Curl       string // "curl", with -k if the certificate may be self-signed
	PID        int
	Uptime     time.Duration
	GoVersion  string
	GOMAXPROCS int
	Stats      filo.Stats
	Answers    []classCount
}

type classCount struct {
	Class string
	Count uint64
}

func (p *page) serve(c *filo.Ctx) error {
	stats := c.Server().Stats()
	data := pageData{
		Base:       p.scheme + "://" + c.Host(),
		Curl:       "curl",
		PID:        os.Getpid(),
		Uptime:     time.Since(p.started).Round(time.Second),
		GoVersion:  runtime.Version(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Stats:      stats,
	}
	if p.scheme == "https" {
		data.Curl = "curl -k"
	}
	for class := 1; class < len(stats.Requests); class++ {
		data.Answers = append(data.Answers, classCount{fmt.Sprintf("%dxx", class), stats.Requests[class]})
	}
	var buf bytes.Buffer
	if err := pageTemplate.Execute(&buf, data); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	// Only this request uses the buffer, so the response can take it without a copy.
	return c.BytesNoCopy(http.StatusOK, "text/html; charset=utf-8", buf.Bytes())
}
