package setup_test

import (
	"testing"

	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/internal/setup"
)

type options struct{ Limit int }

func TestOne(t *testing.T) {
	if got := setup.One[options]("a: New", nil); got != (options{}) {
		t.Errorf("none: %v", got)
	}
	if got := setup.One("a: New", []options{{3}}); got.Limit != 3 {
		t.Errorf("one: %v", got)
	}
	const want = "a: New takes one setup_test.options at most, and was given 2: set all of them in one"
	if got := mwtest.PanicOf(func() { setup.One("a: New", []options{{}, {}}) }); got != want {
		t.Errorf("two: %q, want %q", got, want)
	}
}

func TestChecker(t *testing.T) {
	check := setup.Checker("a")
	for _, test := range []struct {
		f    func()
		want string
	}{
		{func() { check(true, "wrong") }, ""},
		{func() { check(false, "%d is wrong", 7) }, "a: 7 is wrong"},
		{func() { setup.CheckMethods(check, "Methods", []string{"GET", "M-SEARCH"}) }, ""},
		{func() { setup.CheckMethods(check, "Methods", []string{"GET", "GET /"}) }, `a: Methods: "GET /" isn't a method`},
		{func() { setup.CheckMethods(check, "Methods", []string{""}) }, `a: Methods: "" isn't a method`},
	} {
		if got := mwtest.PanicOf(test.f); got != test.want {
			t.Errorf("panics with %q, want %q", got, test.want)
		}
	}
}
