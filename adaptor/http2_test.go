package adaptor_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// startHTTP2 serves h on a socket, and returns its URL and a client that speaks HTTP/2 without TLS.
func startHTTP2(t *testing.T, h http.HandlerFunc) (url string, client *http.Client) {
	return startSocket(t, adaptor.FromHTTP(h), true)
}

// startSocket serves h on a socket, and returns its URL and a client that speaks HTTP/1.1, or HTTP/2 without TLS.
func startSocket(t *testing.T, h filo.Handler, http2 bool) (url string, client *http.Client) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Logger: quiet, Handler: h, HTTP2: filo.HTTP2Options{Unencrypted: true}}
	go s.Serve(listener)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(http2)
	protocols.SetHTTP1(!http2)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return "http://" + listener.Addr().String(), &http.Client{Transport: transport}
}

// Over HTTP/2, a short answer with a trailer also has a Content-Length, whether or not all trailer fields were announced or set.
func TestHTTP2LengthBesideTrailer(t *testing.T) {
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/announced":
			w.Header().Set("Trailer", "X-One, X-Two")
			io.WriteString(w, "text")
			w.Header().Set("X-One", "1")
			w.Header().Set("X-Two", "2")
		case "/lacking":
			w.Header().Set("Trailer", "X-One, X-Two")
			io.WriteString(w, "text")
			w.Header().Set("X-One", "1")
		case "/unannounced":
			io.WriteString(w, "text")
			w.Header().Set(http.TrailerPrefix+"X-One", "1")
		}
	})
	for _, test := range []struct{ path, announced, trailer string }{
		{"/announced", "map[X-One:[] X-Two:[]]", "map[X-One:[1] X-Two:[2]]"},
		{"/lacking", "map[X-One:[] X-Two:[]]", "map[X-One:[1] X-Two:[]]"},
		{"/unannounced", "map[]", "map[X-One:[1]]"},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			request, _ := http.NewRequest(method, url+test.path, nil)
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			announced := fmt.Sprint(response.Trailer)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if method == "HEAD" {
				if len(body) != 0 || err != nil {
					t.Errorf("HEAD %s: %q, %v", test.path, body, err)
				}
				continue
			}
			if got := fmt.Sprint(response.Trailer); response.ContentLength != 4 || string(body) != "text" || err != nil || announced != test.announced ||
				got != test.trailer {
				t.Errorf("%s: length %d, %q, %v, announced %s, trailer %s", test.path, response.ContentLength, body, err, announced, got)
			}
		}
	}
}

// After a handler has sent its head, it can read the body although no 100 is sent, since a 100 can't follow the head.
func TestHTTP2ContinueBehindHead(t *testing.T) {
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "early ")
		w.(http.Flusher).Flush()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	})
	client.Transport.(*http.Transport).ExpectContinueTimeout = 10 * time.Millisecond
	request, _ := http.NewRequest("POST", url, strings.NewReader("body"))
	request.Header.Set("Expect", "100-continue")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "early body" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

// In HTTP/2 a handler may close the body while another of its goroutines waits in Read, as grpc-go's handler does. Then the Read ends.
func TestHTTP2CloseEndsRead(t *testing.T) {
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		begun, ended := make(chan bool, 1), make(chan error)
		go func() {
			r.Body.Read(make([]byte, 1))
			begun <- true
			_, err := r.Body.Read(make([]byte, 1))
			ended <- err
		}()
		<-begun
		r.Body.Close()
		if err := <-ended; err != http.ErrBodyReadAfterClose {
			t.Errorf("Read returns %v", err)
		}
		io.WriteString(w, "done")
	})
	body, more := io.Pipe()
	defer more.Close()
	go more.Write([]byte("a"))
	client.Timeout = time.Minute
	response, err := client.Post(url, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer := make([]byte, 4)
	if _, err := io.ReadFull(response.Body, answer); string(answer) != "done" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
}

// Over HTTP/2 a request may have a trailer behind a body of known length, and a body of unknown length has no Transfer-Encoding.
func TestHTTP2RequestTrailer(t *testing.T) {
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		before := fmt.Sprint(r.Trailer)
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%q %v %d %v %s %v %v", body, err, r.ContentLength, r.TransferEncoding, before, r.Trailer, r.Header["Trailer"])
	})
	for length, want := range map[int64]string{
		5:  `"hello" <nil> 5 [] map[X-Sum:[]] map[X-Sum:[7]] []`,
		-1: `"hello" <nil> -1 [] map[X-Sum:[]] map[X-Sum:[7]] []`,
	} {
		request, err := http.NewRequest("POST", url, io.NopCloser(strings.NewReader("hello")))
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength, request.Trailer = length, http.Header{"X-Sum": {"7"}}
		if body := fetch(t, client, request); body != want {
			t.Errorf("length %d: got %s, want %s", length, body, want)
		}
	}
}

// fetch sends a request, and returns the body of the answer.
func fetch(t *testing.T, client *http.Client, request *http.Request) string {
	t.Helper()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
