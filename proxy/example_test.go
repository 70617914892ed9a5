package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/proxy"
	"github.com/filohttp/filo/servertest"
)

func Example() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "from upstream: ", r.URL.Path)
	}))
	defer upstream.Close()

	p := proxy.New(proxy.Options{Upstreams: []string{upstream.URL}, Balance: proxy.LeastConnections})
	defer p.Close()
	s := &filo.Server{Handler: p.Serve}
	ln := servertest.NewListener()
	go s.Serve(ln)
	defer s.Shutdown(context.Background())

	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://filo.test/page")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(body))
	// Output: 200 from upstream: /page
}
