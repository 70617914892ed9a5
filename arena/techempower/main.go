// Command techempower serves the tests of the TechEmpower Framework Benchmarks: plain text, JSON, and rows of PostgreSQL.
package main

import (
	"context"
	"embed"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/templates"
)

// databaseURL is where the benchmark has its database. The environment variable DATABASE_URL overrides it.
const databaseURL = "postgres://benchmarkdbuser:benchmarkdbpass@tfb-database:5432/hello_world"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		url = databaseURL
	}
	if err := run(ctx, url, (*filo.Server).Listen); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, url string, listen func(s *filo.Server, addr string) (net.Listener, error)) error {
	d, err := openDatabase(ctx, url)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	s, err := newServer(d)
	if err != nil {
		return err
	}
	listener, err := listen(s, ":8080")
	if err != nil {
		return err
	}
	return s.RunListener(ctx, listener)
}

//go:embed pages
var pages embed.FS

// newServer makes the server. Handlers that ask the database wait for it, so they never run where requests are read.
func newServer(d *database) (*filo.Server, error) {
	below, err := fs.Sub(pages, "pages")
	if err != nil {
		return nil, err
	}
	renderer, err := templates.New(below)
	if err != nil {
		return nil, err
	}
	r := router.New()
	r.GET("/plaintext", func(c *filo.Ctx) error { return c.Text(200, "Hello, World!") })
	r.GET("/json", func(c *filo.Ctx) error { return c.JSON(200, greeting{"Hello, World!"}) })
	r.GET("/db", d.one).Offload()
	r.GET("/queries", d.many).Offload()
	r.GET("/updates", d.updated).Offload()
	r.GET("/fortunes", d.told).Offload()
	r.GET("/cached-worlds", d.remembered)
	return &filo.Server{Handler: r.Serve, Renderer: renderer}, nil
}

type greeting struct {
	Message string `json:"message"`
}

// count returns the number of rows that a request asks for: 1 to 500, 1 if it gives no number.
func count(c *filo.Ctx) int {
	n, err := strconv.Atoi(c.Query("queries"))
	if err != nil {
		return 1
	}
	return min(max(n, 1), 500)
}

func (d *database) one(c *filo.Ctx) error {
	worlds, err := d.worlds(c.Context(), randomIDs(1))
	if err != nil {
		return err
	}
	return c.JSON(200, worlds[0])
}

func (d *database) many(c *filo.Ctx) error {
	worlds, err := d.worlds(c.Context(), randomIDs(count(c)))
	if err != nil {
		return err
	}
	return c.JSON(200, worlds)
}

func (d *database) updated(c *filo.Ctx) error {
	worlds, err := d.update(c.Context(), randomIDs(count(c)))
	if err != nil {
		return err
	}
	return c.JSON(200, worlds)
}

func (d *database) remembered(c *filo.Ctx) error {
	worlds, err := d.cached(c.Context(), randomIDs(count(c)))
	if err != nil {
		return err
	}
	return c.JSON(200, worlds)
}

func (d *database) told(c *filo.Ctx) error {
	fortunes, err := d.fortunes(c.Context())
	if err != nil {
		return err
	}
	fortunes = append(fortunes, fortune{Message: "Additional fortune added at request time."})
	slices.SortFunc(fortunes, func(a, b fortune) int { return strings.Compare(a.Message, b.Message) })
	return c.Render(200, "fortunes.html", fortunes)
}
