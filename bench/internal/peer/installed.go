package peer

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// configurations of the installed programs. They answer everything but nginx's /files with the greeting.
var configurations = map[string]string{"nginx": nginxConfiguration, "haproxy": haproxyConfiguration}

// nginx names itself, in as many bytes as the others' "bench", and adds Connection: keep-alive: neither can be changed by its
// configuration.
const nginxConfiguration = `
daemon off;
worker_processes {{.Threads}};
worker_rlimit_nofile 20000;
{{if .Root}}user root;{{end}}
pid {{.Folder}}/nginx.pid;
error_log stderr error;
events { worker_connections 16384; }
http {
	access_log off;
	server_tokens off;
	keepalive_requests 1000000000;
	keepalive_timeout 60s;
	sendfile on;
	default_type text/plain;
	client_body_temp_path {{.Folder}}/body;
	proxy_temp_path {{.Folder}}/proxy;
	fastcgi_temp_path {{.Folder}}/fastcgi;
	uwsgi_temp_path {{.Folder}}/uwsgi;
	scgi_temp_path {{.Folder}}/scgi;
	server {
		listen {{.Address}} backlog=4096;
		location / {
			default_type "text/plain; charset=utf-8";
			return 200 "Hello, World!";
		}
		location /files/ { default_type application/octet-stream; alias {{.Files}}/; }
	}
}
`

const haproxyConfiguration = `
global
	nbthread {{.Threads}}
	maxconn 9500
defaults
	mode http
	timeout client 60s
	timeout http-keep-alive 60s
	timeout http-request 10s
frontend bench
	bind {{.Address}} backlog 4096
	http-request return status 200 content-type "text/plain; charset=utf-8" string "Hello, World!" hdr server bench hdr date "%[date,http_date]"
`

// installedArgs writes the configuration and returns the arguments to start with.
func (p *Peer) installedArgs(folder, address string, o *Options) ([]string, error) {
	parsed, err := template.New(p.Name).Parse(configurations[p.Name])
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, map[string]any{
		"Threads": o.threads(), "Root": os.Geteuid() == 0, "Folder": folder, "Address": address, "Files": o.Files,
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, p.Name+".conf")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		return nil, err
	}
	if p.Name == "haproxy" {
		return []string{"-db", "-f", file}, nil
	}
	return []string{"-p", folder, "-c", file}, nil
}

// freeAddress returns one that nobody listens on at the moment.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// waitForPort tries until somebody listens, at most for five seconds, or until gone is closed.
func waitForPort(address string, gone <-chan struct{}) error {
	for try := 0; ; try++ {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if try == 500 {
			return err
		}
		select {
		case <-gone:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
