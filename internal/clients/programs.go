package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/gotool"
)

var (
	//go:embed programs/client.mjs
	nodeProgram []byte
	//go:embed programs/Client.java
	javaProgram []byte
	//go:embed programs/grpc.go
	grpcProgram []byte
)

// write writes a program into the temporary directory, and returns its name.
func (r *running) write(name string, program []byte) (string, error) {
	name = filepath.Join(r.dir, name)
	return name, os.WriteFile(name, program, 0o600)
}

// runNode uses the server with Node's fetch, its module http with a keep-alive Agent, and its module http2.
func runNode(r *running) (figure result, err error) {
	name, err := r.write("client.mjs", nodeProgram)
	if err != nil {
		return figure, err
	}
	return r.program("node", name, r.plain, r.tls, fmt.Sprint(r.duration.Milliseconds()))
}

// runJava uses the server with Java's HttpClient: over HTTP/2 with TLS, and without TLS, where the client first requests an upgrade to HTTP/2.
func runJava(r *running) (figure result, err error) {
	name, err := r.write("Client.java", javaProgram)
	if err != nil {
		return figure, err
	}
	return r.program("java", name, r.plain, r.tls, fmt.Sprint(r.duration.Milliseconds()), r.authority)
}

// grpcVersion is the version of grpc-go whose client and interoperability tests run.
const grpcVersion = "v1.85.0"

// runGRPC builds a gRPC server on filo together with gRPC's own client, and runs the calls of gRPC's interoperability tests.
func runGRPC(r *running) (figure result, err error) {
	repository, err := gotool.Repository()
	if err != nil {
		return figure, err
	}
	dir := filepath.Join(r.dir, "grpc")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return figure, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), grpcProgram, 0o600); err != nil {
		return figure, err
	}
	for _, args := range [][]string{
		{"mod", "init", "grpcclient"},
		{"mod", "edit", "-require=" + gotool.Filo + "@v0.0.0", "-replace=" + gotool.Filo + "=" + repository, "-require=google.golang.org/grpc@" + grpcVersion},
		{"build", "-mod=mod", "-o", "grpcclient", "main.go"},
	} {
		cmd := gotool.Command(dir, args...)
		cmd.Stdout, cmd.Stderr = nil, nil
		if out, err := cmd.CombinedOutput(); err != nil {
			return figure, fmt.Errorf("go %s: %w\n%s", args[0], err, out)
		}
	}
	return r.program(filepath.Join(dir, "grpcclient"), r.duration.String(), string(rune('0'+int(r.driver))))
}

// curlCalls are the arguments with which curl is called in turn. FILE stands for the name of a file of 200 KB. TLS and PLAIN stand for the
// server's URLs.
var curlCalls = []string{
	"--http1.1 PLAIN/small PLAIN/medium PLAIN/large",
	"--http1.1 TLS/small TLS/medium TLS/large",
	"--http2 TLS/small TLS/medium TLS/large TLS/events",
	"--http2 -Z TLS/small TLS/medium TLS/large TLS/small TLS/medium TLS/large TLS/slow TLS/events",
	"--http2 PLAIN/small PLAIN/large",
	"--http2-prior-knowledge PLAIN/small",
	"--http2-prior-knowledge PLAIN/large",
	"--http1.1 -T FILE PLAIN/body",
	"--http2 -T FILE TLS/body",
	"--http2 --data-binary @FILE TLS/body",
	"--http2-prior-knowledge --data-binary @FILE PLAIN/body",
	"--http1.1 -T - PLAIN/body",
	"--http2 -T - TLS/body",
	"--http2 --compressed TLS/medium",
	"--http2 -r 0-99 TLS/large",
	"--http2 -I TLS/large",
	"--http2 -d a=b TLS/early",
	"--http1.1 --data-binary @FILE PLAIN/early",
	"--http2 --data-binary @FILE TLS/early",
}

// runCurl runs one process of curl after the other.
func runCurl(r *running) (figure result, err error) {
	path, err := exec.LookPath("curl")
	if err != nil {
		return figure, fmt.Errorf("curl %w", errMissing)
	}
	file, err := r.write("upload", body)
	if err != nil {
		return figure, err
	}
	names := strings.NewReplacer("TLS", r.tls, "PLAIN", r.plain, "FILE", file)
	for end := time.Now().Add(r.duration); time.Now().Before(end); {
		for _, call := range curlCalls {
			args := strings.Fields(names.Replace(call))
			answers, urls := 0, strings.Count(call, "PLAIN")+strings.Count(call, "TLS")
			common := []string{"-sS", "--max-time", "20", "--cacert", r.authority, "-w", `%{http_code}\n`}
			for range urls {
				common = append(common, "-o", os.DevNull)
			}
			cmd := exec.Command(path, append(common, args...)...)
			cmd.Stdin = bytes.NewReader(body)
			var output, said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &said
			err := cmd.Run()
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				return figure, err
			}
			want := "200"
			if strings.Contains(call, "/early") {
				want = "401"
			}
			for lines := bufio.NewScanner(bytes.NewReader(output.Bytes())); lines.Scan(); {
				if lines.Text() == want {
					answers++
				}
			}
			figure.Requests += urls
			if err != nil || answers != urls {
				figure.failed("curl %s: %v, %d of %d answers: %s", call, err, answers, urls, strings.TrimSpace(said.String()))
			}
		}
	}
	return figure, nil
}

// program runs a client that prints a result.
func (r *running) program(name string, args ...string) (figure result, err error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return figure, fmt.Errorf("%s %w", name, errMissing)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+r.authority)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return figure, err
	}
	return figure, json.Unmarshal(out, &figure)
}
