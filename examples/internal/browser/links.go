package browser

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// maxPages is the maximum number of addresses that CheckLinks requests.
const maxPages = 500

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	// lasting matches links to profiles and traces of the next seconds. CheckLinks requests these with HEAD, which is answered without waiting.
	lasting = regexp.MustCompile(`[?&]seconds=`)
)

// CheckLinks follows all links on the page that the tab shows, including those that scripts have added. It also follows the links on the linked
// pages, as long as they are on the same server. A link whose answer is an error fails the test, unless allowed has the link's path with that status.
// The requests are made outside of the browser, without the tab's cookies.
func CheckLinks(t testing.TB, tab context.Context, allowed map[string]int) {
	t.Helper()
	found, err := chromedp.Run(tab, chromedp.Evaluate[[]string](`[location.href, ...[...document.querySelectorAll("[href], [src]")].map((e) => e.href || e.src)]`))
	if err != nil {
		t.Fatal(err)
	}
	start, err := url.Parse(found[0])
	if err != nil {
		t.Fatal(err)
	}
	from := make(map[string]string) // the page on which an address was first found
	var queue []string
	add := func(base *url.URL, link string) {
		target, err := base.Parse(link)
		if err != nil {
			t.Errorf("%s has the link %q: %v", base, link, err)
			return
		}
		target.Fragment = ""
		if _, known := from[target.String()]; known || target.Scheme != start.Scheme || target.Host != start.Host {
			return
		}
		from[target.String()] = base.String()
		queue = append(queue, target.String())
	}
	for _, link := range found {
		add(start, link)
	}
	for asked := 0; len(queue) > 0; asked++ {
		if asked == maxPages {
			t.Fatalf("there are more than %d links", maxPages)
		}
		link := queue[0]
		queue = queue[1:]
		method := http.MethodGet
		if lasting.MatchString(link) {
			method = http.MethodHead
		}
		request, err := http.NewRequestWithContext(tab, method, link, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode >= 400 && response.StatusCode != allowed[request.URL.Path] {
			t.Errorf("%s leads to %s: %s", from[link], link, response.Status)
		}
		body := ""
		if strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
			content, err := io.ReadAll(response.Body)
			if err != nil {
				t.Errorf("%s: %v", link, err)
			}
			body = string(content)
		}
		response.Body.Close()
		for _, match := range reference.FindAllStringSubmatch(body, -1) {
			add(response.Request.URL, html.UnescapeString(match[1]))
		}
	}
	if len(from) < 2 {
		t.Errorf("%s has no links", start)
	}
}
