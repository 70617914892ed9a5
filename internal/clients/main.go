// Command clients runs widely used HTTP clients against a filo server, each in its typical way: Go's, curl, Node's, Java's and gRPC's. It
// prints the number of requests of each client. It exits with 1 if a request of a client has failed, or if the server has refused a request.
//
// The server runs in this process, the clients run in other processes. A client whose program isn't installed is skipped. gRPC's client is
// built in a temporary module, so that this module doesn't depend on gRPC.
package main

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// result is what a client prints when its time is over.
type result struct {
	Requests int    `json:"requests"`
	Failures int    `json:"failures"`
	First    string `json:"first"` // the first failure
}

// failed counts a failure.
func (r *result) failed(format string, args ...any) {
	r.Failures++
	r.First = cmp.Or(r.First, fmt.Sprintf(format, args...))
}

// running is a running server, with the data that clients need to connect to it.
type running struct {
	server     *filo.Server
	plain, tls string // URLs
	authority  string // the file of the certificate that clients must trust
	dir        string // for temporary files
	duration   time.Duration
	driver     filo.Driver
}

// clients lists all clients by name.
var clients = []struct {
	name string
	run  func(*running) (result, error)
}{
	{"go", runGo}, {"curl", runCurl}, {"node", runNode}, {"java", runJava}, {"grpc", runGRPC},
}

// errMissing says that the program of a client isn't installed.
var errMissing = errors.New("isn't installed")

func main() {
	only := flag.String("only", "", "the only `clients` to run, with commas between them")
	duration := flag.Duration("for", 2*time.Minute, "how long each client runs")
	blocking := flag.Bool("blocking", false, "use filo's blocking driver")
	flag.Parse()
	ok, err := run(*only, *duration, *blocking)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(only string, duration time.Duration, blocking bool) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "clients")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	fmt.Print("| client | time | connections | requests | failures | refused | timed out | the first failure |\n",
		"| --- | --: | --: | --: | --: | --- | --- | --- |\n")
	ok = true
	for _, client := range clients {
		if only != "" && !slices.Contains(strings.Split(only, ","), client.name) {
			continue
		}
		r, err := start(dir, duration, blocking)
		if err != nil {
			return false, err
		}
		began := time.Now()
		figure, err := client.run(r)
		stats := r.server.Stats()
		r.server.Close()
		if errors.Is(err, errMissing) {
			fmt.Printf("| %s | | | | | | | %v |\n", client.name, err)
			continue
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", client.name, err)
		}
		refused, timeouts := nonZero(stats.Refusals), nonZero(stats.Timeouts)
		fmt.Printf("| %s | %.0f s | %d | %d | %d | %s | %s | %s |\n", client.name, time.Since(began).Seconds(), stats.ConnsAccepted,
			figure.Requests, figure.Failures, refused, timeouts, figure.First)
		ok = ok && figure.Requests > 0 && figure.Failures == 0 && refused == ""
	}
	return ok, nil
}

// nonZero lists the counters of a struct that aren't 0.
func nonZero(counters any) string {
	text, err := json.Marshal(counters)
	if err != nil {
		panic(err)
	}
	values := map[string]json.Number{}
	json.Unmarshal(text, &values)
	var list []string
	for name, n := range values {
		if n != "0" {
			list = append(list, fmt.Sprint(name, " ", n))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// start starts a server for one client.
func start(dir string, duration time.Duration, blocking bool) (*running, error) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	r := &running{dir: dir, duration: duration, authority: filepath.Join(dir, "authority.pem"), driver: filo.DriverAuto}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates.Certificate().Raw})
	if err := os.WriteFile(r.authority, text, 0o600); err != nil {
		return nil, err
	}
	if blocking {
		r.driver = filo.DriverBlocking
	}
	r.server = &filo.Server{
		Handler: site, Driver: r.driver, TLSConfig: &tls.Config{Certificates: certificates.TLS.Certificates},
		HTTP2: filo.HTTP2Options{Unencrypted: true},
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		plain.Close()
		return nil, err
	}
	go r.server.Serve(plain)
	go r.server.ServeTLS(secure, "", "")
	r.plain, r.tls = "http://"+plain.Addr().String(), "https://"+secure.Addr().String()
	return r, nil
}
