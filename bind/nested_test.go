package bind_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/servertest"
)

// The rules of lists in a type that contains itself don't make the work grow with depth times size. Documents of a usual depth are checked.
func TestNestedLists(t *testing.T) {
	type limited struct {
		Text     string     `json:"text"`
		Children []*limited `json:"children" maxItems:"10"`
	}
	type different struct {
		Text     string       `json:"text"`
		Children []*different `json:"children" uniqueItems:"true"`
	}
	bound := func(v func() any) filo.Handler {
		return func(c *filo.Ctx) error {
			if err := bind.JSON(c, v()); err != nil {
				return err
			}
			return c.NoContent()
		}
	}
	document := func(depth, size int) string {
		return strings.Repeat(`{"children":[`, depth) + `{"text":"` + strings.Repeat("x", size) + `"}` + strings.Repeat("]}", depth)
	}
	for name, h := range map[string]filo.Handler{
		"maxItems":    bound(func() any { return new(limited) }),
		"uniqueItems": bound(func() any { return new(different) }),
	} {
		s := servertest.New(t, h)
		for _, test := range []struct {
			depth, size, status int
		}{{1, 1 << 20, 204}, {20, 10_000, 204}, {100, 1000, 204}, {450, 1 << 20, 422}} {
			got := s.DoBody(t, "POST /", document(test.depth, test.size), "Content-Type: application/json")
			if got.Status != test.status || test.status == http.StatusUnprocessableEntity && !strings.Contains(got.Body, "nested too deeply") {
				t.Errorf("%s, depth %d, %d bytes: %d %.200s, want %d", name, test.depth, test.size, got.Status, got.Body, test.status)
			}
		}
	}
}
