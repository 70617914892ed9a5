package humafilo_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type sum struct {
	Body struct {
		Sum int `json:"sum"`
	}
}

// BenchmarkOperation measures routing, huma and the operation, but not reading the request: the handler of a single request calls the router
// repeatedly. The benchmark "filo alone" sends the same answer without huma.
func BenchmarkOperation(b *testing.B) {
	bench := func(name string, h filo.Handler) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			servertest.New(b, func(c *filo.Ctx) error {
				b.ResetTimer()
				for range b.N {
					c.Response.SetBody(nil)
					c.Response.Header.Reset()
					if err := h(c); err != nil || c.Status() != http.StatusOK {
						b.Errorf("got %d, %v", c.Status(), err)
						break
					}
				}
				b.StopTimer()
				return nil
			}).Raw(b, "GET /sum/1/2 HTTP/1.1\r\nHost: x\r\n\r\n")
		})
	}
	r, api := newAPI()
	huma.Get(api, "/sum/{a}/{b}", func(_ context.Context, input *struct {
		A int `path:"a"`
		B int `path:"b"`
	}) (*sum, error) {
		answer := &sum{}
		answer.Body.Sum = input.A + input.B
		return answer, nil
	})
	bench("huma", r.Serve)

	plain := router.New()
	plain.GET("/sum/{a:int}/{b:int}", func(c *filo.Ctx) error {
		var answer sum
		answer.Body.Sum = len(c.ParamBytes("a")) + len(c.ParamBytes("b"))
		return c.JSON(http.StatusOK, &answer.Body)
	})
	bench("filo alone", plain.Serve)
}

// BenchmarkStream measures a response of 1 MB that is written in pieces of 32 KB.
func BenchmarkStream(b *testing.B) {
	r, api := newAPI()
	piece := make([]byte, 32<<10)
	streamed(api, "/", func(ctx huma.Context) {
		w := ctx.BodyWriter()
		for range 32 {
			w.Write(piece)
		}
	})
	s := servertest.New(b, r.Serve)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		response, err := s.Client().Get(s.URL)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, response.Body); n != 1<<20 || err != nil {
			b.Fatalf("got %d bytes, %v", n, err)
		}
		response.Body.Close()
	}
}
