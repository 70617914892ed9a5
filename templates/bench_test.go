package templates_test

import (
	"html/template"
	"io"
	"testing"

	"github.com/filohttp/filo/templates"
)

// BenchmarkRender compares with html/template alone, which writes while it executes. With Reload each page checks four files.
func BenchmarkRender(b *testing.B) {
	const text = `<h1>{{.Name}}</h1><ul>{{range .Items}}<li>{{.}}</li>{{end}}</ul>`
	data := map[string]any{"Name": "A & B", "Items": []string{"one", "two", "three"}}
	alone := template.Must(template.New("a").Parse(text))
	b.Run("html-template", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := alone.Execute(io.Discard, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, options := range map[string]templates.Options{"templates": {}, "layout": {Layout: "layouts/l.html"}, "reload": {Reload: true}} {
		b.Run(name, func(b *testing.B) {
			pages, err := templates.New(files("a.html", text, "b.html", "", "c.html", "", "layouts/l.html", `<main>{{template "content" .}}</main>`), options)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := pages.Render(io.Discard, "a.html", data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
