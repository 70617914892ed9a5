package debug

import (
	"bytes"
	_ "embed"
	"html/template"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

var (
	//go:embed index.html
	indexText     string
	indexTemplate = template.Must(template.New("index").Parse(indexText))

	//go:embed style.css
	style []byte
)

var (
	cssType = filo.NewField("Content-Type", "text/css; charset=utf-8")
	// contentPolicy lets the page load its style sheet, and nothing else.
	contentPolicy = filo.NewField("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
)

var processStart = time.Now()

// descriptions describe the runtime's own profiles.
var descriptions = map[string]string{
	"allocs":        "where all memory was allocated, including memory that was freed",
	"block":         "where goroutines waited for channels and locks, if runtime.SetBlockProfileRate was called",
	"goroutine":     "the stacks of all goroutines",
	"goroutineleak": "goroutines that nothing can wake up any more",
	"heap":          "where the memory in use was allocated",
	"mutex":         "where locks were held that others waited for, if runtime.SetMutexProfileFraction was called",
	"threadcreate":  "where threads of the operating system were started",
}

type indexPage struct {
	// Up is the relative path from the page to the mount's root.
	Up       string
	Program  string
	Facts    []string
	Profiles []profileLine
	Vars     bool
	LogLevel bool
}

type profileLine struct {
	Name, Description string
	Count             int
}

// index answers with a page of relative links, since it doesn't know the path at which it is mounted.
func (h *handler) index(c *filo.Ctx) error {
	page := indexPage{Program: filepath.Base(os.Args[0]), Vars: h.vars, LogLevel: h.level}
	if strings.HasSuffix(c.Route(), "/pprof/{$}") {
		page.Up = "../"
	}
	page.Facts = []string{
		"up " + time.Since(processStart).Round(time.Second).String(),
		runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, profile := range pprof.Profiles() {
		page.Profiles = append(page.Profiles, profileLine{profile.Name(), descriptions[profile.Name()], profile.Count()})
	}
	return answerHTML(c, indexTemplate, page)
}

// answerPage answers with a page or, with format=json, with the page's content as JSON.
func answerPage(c *filo.Ctx, t *template.Template, page any) error {
	if c.Query("format") == "json" {
		return answerJSON(c, page)
	}
	return answerHTML(c, t, page)
}

func answerHTML(c *filo.Ctx, t *template.Template, page any) error {
	var b bytes.Buffer
	if err := t.Execute(&b, page); err != nil {
		return err
	}
	c.Response.Header.SetField(&contentPolicy)
	return c.HTML(200, b.String())
}

func serveStyle(c *filo.Ctx) error {
	c.Response.Header.SetField(&cssType)
	c.Response.SetBodyNoCopy(style)
	return nil
}
