package failsafe_test

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/failsafe"
	"github.com/filohttp/filo/servertest"
)

func Example() {
	limiter := failsafe.Recommended(4, 1_000, 10).Build()
	limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter, MaxWait: 50 * time.Millisecond})
	handler := limit(func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprintf("%d of %d", limiter.Inflight(), limiter.Limit()))
	})

	listener := servertest.NewListener()
	server := &filo.Server{Handler: handler}
	go server.Serve(listener)
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	response, err := client.Get("http://filo.test/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(text))
	// Output:
	// 200 1 of 10
}
