package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// serve serves a page with a script, and a favicon.
func serve(t *testing.T, script string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<!doctype html><title>page</title><script>%s</script>`, script)
		case "/favicon.ico":
			w.WriteHeader(http.StatusNoContent)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTwoTabs(t *testing.T) {
	base := serve(t, "")
	first := Tab(t)
	second := Another(t, first)
	if err := chromedp.Do(first, chromedp.Navigate(base)); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(second, chromedp.Navigate(base)); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Run(first, chromedp.Evaluate[chromedp.Void](`localStorage.name = "Ada"; undefined`)); err != nil {
		t.Fatal(err)
	}
	// The tabs share their storage, both are visible, and each behaves as if it had the focus.
	got, err := chromedp.Run(second, chromedp.Evaluate[string](`localStorage.name + " " + document.visibilityState + " " + document.hasFocus()`))
	if err != nil || got != "Ada visible true" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := chromedp.Run(first, chromedp.Evaluate[string](`document.visibilityState + " " + document.hasFocus()`)); err != nil || got != "visible true" {
		t.Errorf("got %q, %v", got, err)
	}
}

// recorder is a testing.TB that records its failures.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Failed() bool     { return len(r.errors) > 0 }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// end runs the cleanups, as at the end of a test.
func (r *recorder) end() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}

func TestErrorsFailTheTest(t *testing.T) {
	all := `setTimeout(() => { throw new Error("not caught") });
		Promise.reject(new Error("not handled"));
		console.error("written", 7, {});
		console.log("all is well");
		fetch("/missing")`
	base := serve(t, all)
	r := &recorder{TB: t}
	defer r.end() // deferred, so that it also runs after a t.Fatal
	tab := Tab(r)
	Allow(tab, `allowed`)
	if err := chromedp.Do(tab, chromedp.Navigate(base)); err != nil {
		t.Fatal(err)
	}
	// When this fetch has ended, those of the page have ended, too.
	again := chromedp.Evaluate[bool](`fetch("/missing").then(() => { console.error("allowed"); return true })`, chromedp.EvalAwaitPromise)
	if _, err := chromedp.Run(tab, again); err != nil {
		t.Fatal(err)
	}
	r.end()
	got := strings.Join(r.errors, "\n")
	for _, want := range []string{"Error: not caught", "Error: not handled", "console: \"written\" 7 Object", "404"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q isn't among the errors:\n%s", want, got)
		}
	}
	for _, forbidden := range []string{"well", "allowed", "any more"} {
		if strings.Contains(got, forbidden) {
			t.Errorf("%q is among the errors:\n%s", forbidden, got)
		}
	}
}
