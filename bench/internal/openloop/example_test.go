//go:build linux && (amd64 || arm64)

package openloop_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/filohttp/filo/bench/internal/openloop"
)

// A server gets 200 requests per second for a quarter of a second. Each answer is compared with one that was asked for before.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer server.Close()

	ctx := context.Background()
	options := openloop.Options{Address: server.Listener.Addr().String(), Rate: 200, Duration: 250 * time.Millisecond}
	request := openloop.Request{Target: "/hello"}
	reference, err := openloop.Reference(ctx, options, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Want.Body = reference.Body
	options.Requests = []openloop.Request{request}
	result, err := openloop.Run(ctx, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Answers, "answers,", result.Failed(), "errors, a histogram of", result.Latency.Count)
	// Output: 50 answers, 0 errors, a histogram of 50
}
