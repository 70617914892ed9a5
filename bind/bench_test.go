package bind_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type product struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Price float64  `json:"price"`
	Tags  []string `json:"tags"`
	Lines []line   `json:"lines"`
	Shop  int      `json:"-" path:"shop"`
	Page  int      `json:"-" query:"page"`
	Live  bool     `json:"-" query:"live"`
	Key   string   `json:"-" header:"Idempotency-Key"`
}

// requiredProduct is a product whose fields are all required.
type requiredProduct struct {
	ID    int            `json:"id" required:"true"`
	Name  string         `json:"name" required:"true"`
	Price float64        `json:"price" required:"true"`
	Tags  []string       `json:"tags" required:"true"`
	Lines []requiredLine `json:"lines" required:"true"`
	Page  int            `query:"page" required:"true"`
	Live  bool           `query:"live" required:"true"`
}

type requiredLine struct {
	SKU string `json:"sku" required:"true"`
	N   uint8  `json:"n" required:"true"`
}

// benchmarkIn runs a benchmark in a handler for the request.
func benchmarkIn(b *testing.B, request string, call func(c *filo.Ctx) error) {
	r := router.New()
	r.Handle("/shops/{shop}", func(c *filo.Ctx) error {
		if err := call(c); err != nil {
			b.Error(err)
			return nil
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := call(c); err != nil {
				b.Error(err)
				break
			}
		}
		return nil
	})
	servertest.New(b, r.Serve).Raw(b, strings.Replace(request, "/?q=1", "/shops/7", 1))
}

// BenchmarkJSON compares with encoding/json alone, for the same bodies.
func BenchmarkJSON(b *testing.B) {
	lines := func(n int) string {
		return `{"id":7,"name":"Chair","price":99.5,"tags":["wood","red"],"lines":[` +
			strings.TrimSuffix(strings.Repeat(`{"sku":"C-1","n":4},`, n), ",") + `]}`
	}
	for _, size := range []int{1, 100} {
		request := postJSON(lines(size))
		for _, c := range []struct {
			name string
			call func(c *filo.Ctx) error
		}{
			{"encoding-json", func(c *filo.Ctx) error {
				var v product
				body, _ := c.Body()
				return json.Unmarshal(body, &v)
			}},
			{"bind", func(c *filo.Ctx) error { var v product; return bind.JSON(c, &v) }},
			{"required", func(c *filo.Ctx) error { var v requiredProduct; return bind.JSON(c, &v) }},
			{"strict", func(c *filo.Ctx) error { var v product; return bind.JSON(c, &v, bind.Strict()) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, len(lines(size))), func(b *testing.B) { benchmarkIn(b, request, c.call) })
		}
	}
}

type productEdit struct {
	Shop int    `path:"shop" required:"true"`
	Page int    `query:"page"`
	Note string `json:"note" required:"true"`
}

func editProduct(_ *filo.Ctx, in productEdit) (line, error) {
	return line{in.Note, uint8(in.Shop)}, nil
}

func editByHand(c *filo.Ctx) error {
	var in productEdit
	if err := bind.All(c, &in); err != nil {
		return err
	}
	out, err := editProduct(c, in)
	if err != nil {
		return err
	}
	return c.JSON(200, out)
}

// BenchmarkHandler compares a handler made by Handler with a handler that does the same by hand.
func BenchmarkHandler(b *testing.B) {
	request := strings.Replace(postJSON(`{"note":"n"}`), "/?q=1", "/shops/7?page=3", 1)
	b.Run("typed", func(b *testing.B) { benchmarkIn(b, request, bind.Handler(editProduct)) })
	b.Run("by-hand", func(b *testing.B) { benchmarkIn(b, request, editByHand) })
}

// BenchmarkText measures the sources of text, each into a struct that outlives the call.
func BenchmarkText(b *testing.B) {
	request := get("/shops/7?page=3&live=true", "Idempotency-Key: 8e03978e")
	var v product
	b.Run("query", func(b *testing.B) {
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.Query(c, &v) })
	})
	b.Run("query-required", func(b *testing.B) {
		var v requiredProduct
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.Query(c, &v) })
	})
	b.Run("query-strict", func(b *testing.B) {
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.Query(c, &v, bind.Strict()) })
	})
	b.Run("path", func(b *testing.B) {
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.Path(c, &v) })
	})
	b.Run("header", func(b *testing.B) {
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.Header(c, &v) })
	})
	b.Run("all", func(b *testing.B) {
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.All(c, &v) })
	})
	b.Run("form", func(b *testing.B) {
		var v upload
		request := post("application/x-www-form-urlencoded", "title=a+b&done=on")
		benchmarkIn(b, request, func(c *filo.Ctx) error { return bind.Form(c, &v) })
	})
}

// BenchmarkLargeErrors measures bodies with an error at their end: one of 1 MB, and one of 256 KB, the largest size for which all
// errors are reported.
func BenchmarkLargeErrors(b *testing.B) {
	for _, size := range []int{1 << 20, 256 << 10} {
		b.Run(fmt.Sprint(size>>10, " KB"), func(b *testing.B) { benchmarkErrors(b, size) })
	}
}

func benchmarkErrors(b *testing.B, size int) {
	fill := func(text string) string { return strings.Repeat(text, (size-100)/len(text)) }
	for name, element := range map[string]string{"names": `"tags":["` + fill(`a","`) + `",1]`,
		"objects": `"lines":[` + fill(`{"sku":"C-1","n":4},`) + `{"n":-1}]`,
		"unknown": fill(`"x":0,`) + `"tags":0`} {
		request := postJSON("{" + element + "}")
		for _, c := range []struct {
			name string
			call func(c *filo.Ctx) error
		}{
			{"encoding-json", func(c *filo.Ctx) error {
				var v product
				body, _ := c.Body()
				_ = json.Unmarshal(body, &v)
				return nil
			}},
			{"bind", func(c *filo.Ctx) error {
				var v product
				if bind.JSON(c, &v) == nil {
					b.Error("no error")
				}
				return nil
			}},
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) { benchmarkIn(b, request, c.call) })
		}
	}
}

// BenchmarkErrors measures a body with fifty errors.
func BenchmarkErrors(b *testing.B) {
	request := postJSON(`{"lines":[` + strings.TrimSuffix(strings.Repeat(`{"sku":1},`, 50), ",") + `]}`)
	benchmarkIn(b, request, func(c *filo.Ctx) error {
		var v product
		if bind.JSON(c, &v) == nil {
			b.Error("no error")
		}
		return nil
	})
}
