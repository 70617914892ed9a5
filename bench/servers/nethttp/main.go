// Command nethttp serves the resources of package site with net/http.
package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/filohttp/filo/bench/internal/database"
	"github.com/filohttp/filo/bench/internal/site"
	"github.com/klauspost/compress/gzhttp"
)

func main() {
	flags := site.Parse()
	s := &http.Server{Handler: newHandler(flags), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(!flags.HTTP2)
	s.Protocols.SetHTTP2(flags.HTTP2)
	s.Protocols.SetUnencryptedHTTP2(flags.HTTP2)
	log.Fatal(s.Serve(flags.Listen()))
}

// newHandler returns a handler that finds fixed paths with a switch. A ServeMux finds all other paths.
func newHandler(flags *site.Flags) http.Handler {
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(site.GzipLevel), gzhttp.EnableZstd(false))
	if err != nil {
		log.Fatal(err)
	}
	compressed := compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, jsonType, site.LargeJSON())
	}))
	places := make(chan struct{}, flags.Limit)
	pool, err := database.Open(context.Background(), flags.Database)
	if err != nil {
		log.Fatal(err)
	}
	mux := newMux(flags)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			greet(w)
		case "/json":
			answer(w, jsonType, site.SmallJSON())
		case "/json20k":
			compressed.ServeHTTP(w, r)
		case "/echo-length":
			length(w, r, true)
		case "/echo":
			echo(w, r)
		case "/upload":
			length(w, r, false)
		case "/sleep":
			sleep(w, flags.Wait)
		case "/limited":
			limited(w, places)
		case "/db":
			product(w, r, pool)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func newMux(flags *site.Flags) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /mixed/quick", func(w http.ResponseWriter, r *http.Request) { greet(w) })
	mux.HandleFunc("GET /mixed/sleep", func(w http.ResponseWriter, r *http.Request) { sleep(w, site.Wait) })
	files := http.StripPrefix("/files", http.FileServer(http.Dir(flags.Files)))
	mux.HandleFunc("GET /files/", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Server"] = server
		files.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /websocket", webSocket)
	for route, names := range flags.GitHub(false) {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			for _, name := range names {
				if r.PathValue(name) == "" {
					http.Error(w, "a parameter is empty", http.StatusBadRequest)
					return
				}
			}
			greet(w)
		})
	}
	return mux
}

// Field values that are assigned to the header map directly, which is cheaper than Header.Set.
var (
	server   = []string{site.Server}
	textType = []string{site.TextType}
	jsonType = []string{site.JSONType}
)

func answer(w http.ResponseWriter, contentType []string, body []byte) {
	header := w.Header()
	header["Server"] = server
	header["Content-Type"] = contentType
	w.Write(body)
}

func greet(w http.ResponseWriter) { answer(w, textType, site.GreetingBytes) }

func sleep(w http.ResponseWriter, wait time.Duration) {
	time.Sleep(wait)
	greet(w)
}

// limited sleeps. At most as many requests as the channel's capacity sleep at once.
func limited(w http.ResponseWriter, places chan struct{}) {
	select {
	case places <- struct{}{}:
		sleep(w, site.Wait)
		<-places
	default:
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
	}
}

func product(w http.ResponseWriter, r *http.Request, pool *database.Pool) {
	body, err := pool.Product(r.Context(), r.URL.Query().Get("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, jsonType, body)
}

// length reads a body as a whole or, for an upload, as it arrives.
func length(w http.ResponseWriter, r *http.Request, whole bool) {
	reader, body, n := http.MaxBytesReader(w, r.Body, site.MaxBody), []byte(nil), int64(0)
	var err error
	if whole {
		body, err = io.ReadAll(reader)
		n = int64(len(body))
	} else {
		n, err = io.Copy(io.Discard, reader)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, textType, strconv.AppendInt(nil, n, 10))
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, site.MaxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // otherwise it would be sent in chunks
	answer(w, textType, body)
}

func webSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}
