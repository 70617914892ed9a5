package bind_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// Binding allocates only the bound values: nothing for a number, and the text for a string. For JSON it allocates as much as
// encoding/json.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var v product
	var required requiredProduct
	for _, c := range []struct {
		name, request string
		call          func(c *filo.Ctx) error
		want          float64
	}{
		{"query", get("/shops/7?page=3&live=true"), func(c *filo.Ctx) error { return bind.Query(c, &v) }, 0},
		{"strict query", get("/shops/7?page=3&live=true"), func(c *filo.Ctx) error { return bind.Query(c, &v, bind.Strict()) }, 0},
		{"required query", get("/shops/7?page=3&live=true"), func(c *filo.Ctx) error { return bind.Query(c, &required) }, 0},
		{"path", get("/shops/7"), func(c *filo.Ctx) error { return bind.Path(c, &v) }, 0},
		{"header", get("/shops/7", "Idempotency-Key: k2"), func(c *filo.Ctx) error { return bind.Header(c, &v) }, 1},
		{"all", get("/shops/7?page=3", "Idempotency-Key: k2"), func(c *filo.Ctx) error { return bind.All(c, &v) }, 1},
	} {
		if got := allocations(t, c.request, c.call); got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
	request := strings.Replace(postJSON(`{"note":"n"}`), "/?q=1", "/shops/7?page=3", 1)
	typed := bind.Handler(editProduct)
	if typed, byHand := allocations(t, request, typed), allocations(t, request, editByHand); typed > byHand {
		t.Errorf("Handler: %v allocations, and %v by hand", typed, byHand)
	}
	request = strings.Replace(postJSON(`{"id":1,"tags":["a"],"lines":[{"sku":"x"}]}`), "/?q=1", "/shops/7", 1)
	alone := allocations(t, request, func(c *filo.Ctx) error {
		var v product
		body, _ := c.Body()
		return json.Unmarshal(body, &v)
	})
	for _, options := range [][]bind.Option{nil, {bind.Strict()}} {
		got := allocations(t, request, func(c *filo.Ctx) error { var v product; return bind.JSON(c, &v, options...) })
		if more := got - alone; more > 2*float64(len(options)) {
			t.Errorf("JSON with %d options: %v allocations more than encoding/json", len(options), more)
		}
	}
}

func allocations(t *testing.T, request string, call func(c *filo.Ctx) error) (allocations float64) {
	t.Helper()
	r := router.New()
	r.Handle("/shops/{shop}", func(c *filo.Ctx) error {
		var err error
		allocations = testing.AllocsPerRun(100, func() { err = call(c) })
		if err != nil {
			t.Error(err)
		}
		return nil
	})
	servertest.New(t, r.Serve).Raw(t, request)
	return allocations
}

// If many goroutines bind a type for the first time at once, each of them binds it correctly.
func TestConcurrentFirstUse(t *testing.T) {
	type fresh struct {
		Page  int               `query:"page"`
		Inner []struct{ N int } `json:"inner"`
	}
	server := servertest.New(t, func(c *filo.Ctx) error {
		var v fresh
		if err := bind.All(c, &v, bind.Strict()); err != nil {
			return err
		}
		return c.JSON(200, v)
	})
	request := strings.Replace(postJSON(`{"inner":[{"N":1}]}`), "q=1", "page=3", 1)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if raw := server.Raw(t, request); !strings.Contains(raw, `{"Page":3,"inner":[{"N":1}]}`) {
				t.Errorf("%q", raw)
			}
		})
	}
	group.Wait()
}
