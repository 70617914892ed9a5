package templates_test

import (
	"fmt"
	"os"
	"testing/fstest"

	"github.com/filohttp/filo/templates"
)

func ExampleNew() {
	// A program would use an embed.FS here, or os.DirFS with Reload in development.
	views := fstest.MapFS{
		"layouts/main.html":   {Data: []byte("<title>{{block \"title\" .}}Shop{{end}}</title>\n<main>{{template \"content\" .}}</main>\n")},
		"partials/price.html": {Data: []byte(`<b>{{printf "%.2f" .}} €</b>`)},
		"products/show.html":  {Data: []byte(`{{define "title"}}{{.Name}}{{end}}{{.Name}}: {{template "partials/price.html" .Price}}`)},
	}
	pages, err := templates.New(views, templates.Options{Layout: "layouts/main.html"})
	if err != nil {
		fmt.Println(err)
		return
	}
	product := struct {
		Name  string
		Price float64
	}{"Cup & saucer", 7.5}
	// With filo.Server{Renderer: pages} a handler calls c.Render(200, "products/show.html", product).
	if err := pages.Render(os.Stdout, "products/show.html", product); err != nil {
		fmt.Println(err)
	}
	// Output:
	// <title>Cup &amp; saucer</title>
	// <main>Cup &amp; saucer: <b>7.50 €</b></main>
}
