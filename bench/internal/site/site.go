// Package site is the code that the compared servers share: their flags, their answers, and how they report their allocations. None of it runs while
// a request is served, except the encoding of JSON, which is the same for all servers.
//
// These are the resources:
//
//	GET  /                 Greeting
//	GET  /json             Message as JSON
//	GET  /json20k          Items as JSON, compressed by gzip at GzipLevel for clients that ask for it
//	POST /echo-length      reads the body as a whole and answers with its length
//	POST /echo             answers with the body
//	POST /upload           counts the body, as a stream where the server has them, and answers with its length
//	GET  /files/NAME       a file of Flags.Files
//	GET  /sleep            Greeting, after Flags.Wait
//	GET  /mixed/quick      Greeting, found by the server's router
//	GET  /mixed/sleep      the same after Wait
//	GET  /limited          Greeting after Wait, for at most Flags.Limit requests at once; others get 503
//	GET  /db?id=ID         that row of Flags.Database as JSON: filo, fasthttp and net/http by package database
//	GET  /websocket        echoes messages
//	     GitHub's routes   Greeting, if Flags.Routes is set and all parameters have values
package site

import (
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/metrics"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/githubapi"
)

const (
	Greeting = "Hello, World!" // the 13-byte answer
	TextType = "text/plain; charset=utf-8"
	JSONType = "application/json"
	Server   = "bench"              // the Server field of all answers
	Wait     = 5 * time.Millisecond // how long handlers sleep, by default
	MaxBody  = 64 << 20
	// GzipLevel is the level at which all servers compress, filo's default. All of them use the same implementation, klauspost/compress.
	GzipLevel = 5
)

// GreetingBytes is Greeting as bytes, which nothing may change.
var GreetingBytes = []byte(Greeting)

// Flags are the settings of a server from its command line: see Parse.
type Flags struct {
	Addr, Files, Database  string
	Secure, Routes, Stream bool
	HTTP2                  bool
	Limit                  int
	Wait                   time.Duration
}

// Parse reads the command line.
func Parse() *Flags {
	f := &Flags{}
	flag.StringVar(&f.Addr, "addr", "127.0.0.1:0", "TCP `address` to listen on")
	flag.BoolVar(&f.Secure, "tls", false, "speak TLS")
	flag.BoolVar(&f.HTTP2, "http2", false, "speak HTTP/2, without TLS by prior knowledge")
	flag.StringVar(&f.Files, "files", ".", "`folder` of the files at /files")
	flag.StringVar(&f.Database, "database", "", "connection `string` of the PostgreSQL that /db asks")
	flag.BoolVar(&f.Routes, "routes", false, "add GitHub's 203 routes to the server's router")
	flag.BoolVar(&f.Stream, "stream", false, "read bodies as streams, where the server has to be told")
	flag.IntVar(&f.Limit, "limit", 0, "requests that /limited serves at once; it may hold for all resources, and be none if it is 0")
	flag.DurationVar(&f.Wait, "wait", Wait, "how long /sleep waits")
	flag.Parse()
	reportOnSignal()
	return f
}

// Listen listens on the address and announces it. With -tls, the connections use TLS.
func (f *Flags) Listen() net.Listener {
	listener, err := net.Listen("tcp", f.Addr)
	if err != nil {
		log.Fatal(err)
	}
	f.Announce(listener.Addr())
	if config := f.TLS(); config != nil {
		return tls.NewListener(listener, config)
	}
	return listener
}

// Announce prints the address at which the server listens. cmd/compare waits for that line.
func (f *Flags) Announce(addr net.Addr) {
	scheme := "http"
	if f.Secure {
		scheme = "https"
	}
	fmt.Printf("listening on %s://%s\n", scheme, addr)
}

// An ECDSA certificate on P-256 for localhost, and its key, which isn't secret.
var (
	//go:embed cert.pem
	certificate []byte
	//go:embed key.pem
	key []byte
)

// TLS returns the TLS configuration, or nil without -tls. There are no session tickets, so every handshake is a full one.
func (f *Flags) TLS() *tls.Config {
	if !f.Secure {
		return nil
	}
	cert, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"}}
	if f.HTTP2 {
		config.NextProtos = []string{"h2"}
	}
	return config
}

// The names of the files to which WriteFiles writes the certificate and its key.
const (
	CertificateFile = "cert.pem"
	KeyFile         = "key.pem"
)

// WriteFiles writes the files that installed servers need to a folder: the certificate, its key, and the greeting as index.html.
func WriteFiles(folder string) error {
	write := func(name string, content []byte) error {
		return os.WriteFile(filepath.Join(folder, name), content, 0o644)
	}
	return errors.Join(write(CertificateFile, certificate), write(KeyFile, key), write("index.html", GreetingBytes))
}

// GitHub yields the routes of GitHub's API and the names of their wildcards. It yields nothing unless f.Routes is set. With colons, it writes wildcards
// with a leading colon instead of braces.
func (f *Flags) GitHub(colons bool) iter.Seq2[githubapi.Route, []string] {
	return func(yield func(githubapi.Route, []string) bool) {
		for _, route := range githubapi.Routes() {
			names := route.Wildcards()
			if colons {
				route.Path = route.Replace(":$1")
			}
			if !f.Routes || !yield(route, names) {
				return
			}
		}
	}
}

// Message is the small document.
type Message struct {
	Message string `json:"message"`
}

// Item is an element of the large document.
type Item struct {
	ID       int      `json:"id"`
	Name     string   `json:"name"`
	Category string   `json:"category"`
	Price    float64  `json:"price"`
	Tags     []string `json:"tags"`
	InStock  bool     `json:"in_stock"`
}

// Items is the large document, 20 KB as JSON.
var Items [150]Item

func init() {
	categories := []string{"tools", "garden", "kitchen", "office", "travel"}
	for i := range Items {
		Items[i] = Item{
			ID: 1000 + i, Name: fmt.Sprintf("Item number %d of the catalogue", i), Category: categories[i%len(categories)],
			Price: float64(i*37%1000) + 0.25, Tags: []string{fmt.Sprintf("tag-%d", i*i%97), "common", "new"}, InStock: i%3 != 0,
		}
	}
}

// SmallJSON returns the small document, which encoding/json encodes anew in each call.
func SmallJSON() []byte { return encode(Message{Greeting}) }

// LargeJSON is SmallJSON for the large document.
func LargeJSON() []byte { return encode(&Items) }

func encode(v any) []byte {
	b, _ := json.Marshal(v) // both documents can be encoded
	return b
}

// reportOnSignal prints the number and the bytes of the process's allocations whenever the process gets SIGUSR1.
func reportOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		samples := []metrics.Sample{
			{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"},
		}
		for range signals {
			metrics.Read(samples)
			// The number of objects is computed as for runtime.MemStats.Mallocs.
			fmt.Printf("allocated %d objects %d bytes\n", samples[0].Value.Uint64()+samples[1].Value.Uint64(), samples[2].Value.Uint64())
		}
	}()
}
