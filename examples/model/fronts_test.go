package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/filotest"
)

// bound limits each wait. No wait of a passing test takes that long.
const bound = time.Minute

// fronts are the ways in which clients reach the server: directly, or through a proxy. Each function returns the address for the clients.
var fronts = []struct {
	name  string
	start func(t *testing.T, server string) (address string)
}{
	{"direct", func(_ *testing.T, server string) string { return server }},
	{"nginx", nginx},
	{"HAProxy", haproxy},
}

// nginx needs no setting against buffering, since package sse turns it off with X-Accel-Buffering.
func nginx(t *testing.T, server string) string {
	address, dir := filotest.FreeAddress(t), t.TempDir()
	startProxy(t, address, "nginx", filepath.Join(dir, "nginx.conf"), fmt.Sprintf(`
daemon off; master_process off; pid %[3]s/pid; error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[3]s/body; proxy_temp_path %[3]s/proxy; fastcgi_temp_path %[3]s/fastcgi; uwsgi_temp_path %[3]s/uwsgi; scgi_temp_path %[3]s/scgi;
	server {
		listen %[1]s;
		location / {
			proxy_pass http://%[2]s;
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_set_header Connection "";
			proxy_read_timeout 1m; # sse sends a comment every 15 seconds
		}
	}
}
`, address, server, dir), "-e", "stderr", "-c")
	return address
}

// haproxy with http-no-delay sends each event at once.
func haproxy(t *testing.T, server string) string {
	address := filotest.FreeAddress(t)
	startProxy(t, address, "haproxy", filepath.Join(t.TempDir(), "haproxy.cfg"), fmt.Sprintf(`
defaults
	mode http
	option http-no-delay
	option abortonclose
	timeout connect 5s
	timeout client 1m
	timeout server 1m
frontend clients
	bind %s
	default_backend model
backend model
	server filo %s
`, address, server), "-db", "-f")
	return address
}

// startProxy starts a program with a configuration, and waits until it accepts connections at the address. If the program isn't installed, it skips
// the test, except in CI.
func startProxy(t *testing.T, address, name, file, config string, flags ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal(err)
		}
		t.Skip(name + " isn't installed: make deps")
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	proxy := exec.Command(path, append(flags, file)...)
	proxy.Stdout, proxy.Stderr = &printed, &printed
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proxy.Process.Kill()
		if proxy.Wait(); t.Failed() {
			t.Logf("%s printed:\n%s", name, &printed)
		}
	})
	await(t, name, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// await polls until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(bound); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
