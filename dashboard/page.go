package dashboard

import (
	"embed"
	"io/fs"
	"path"

	"github.com/filohttp/filo"
)

//go:embed assets
var assets embed.FS

// contentPolicy lets the page load only resources of its own server and run only script files from there, and keeps other pages
// from embedding it. Trusted types keep its scripts from turning text into HTML.
var contentPolicy = filo.NewField("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
	"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
	"require-trusted-types-for 'script'; trusted-types 'none'")

// contentTypes has the types of all files, because the system's table of extensions may have other types.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// routes registers the page and its resources, relative to the page's path.
func (d *Dashboard) routes() {
	files, err := fs.ReadDir(assets, "assets")
	must(err == nil, "%v", err)
	for _, file := range files {
		body, err := assets.ReadFile("assets/" + file.Name())
		must(err == nil, "%v", err)
		contentType := contentTypes[path.Ext(file.Name())]
		must(contentType != "", "no type for %s", file.Name())
		pattern := "/" + file.Name()
		if file.Name() == "index.html" {
			pattern = "/{$}"
		}
		d.router.GET(pattern, func(c *filo.Ctx) error {
			c.Response.Header.SetField(&contentPolicy)
			return c.BytesNoCopy(200, contentType, body)
		}).Always()
	}
	d.router.GET("/history", d.history).Offload().Always()
	d.router.GET("/events", d.events).Always()
	for _, route := range d.router.Routes() {
		if route.Path != "/{$}" {
			d.own[route.Pattern] = true
			d.own[route.Pattern+" (parked)"] = true
		}
	}
}
