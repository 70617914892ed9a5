package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo/examples/internal/sitetest"
)

// asProgram makes the test binary behave as the example itself, for the tests that kill it.
const asProgram = "FILO_FILES_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// longest bounds each wait of a test, since the machine may be busy.
const longest = time.Minute

// start runs the example on a free port, with its files in dir. It ends with the test, or when stop is called.
func start(t *testing.T, dir string, args ...string) (base string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0", "-dir", dir}, args...), out)
		out.CloseWithError(err)
		done <- err
	}()
	base = readBase(t, stdout)
	go io.Copy(io.Discard, stdout)
	stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return base, stop
}

func startNew(t *testing.T, args ...string) (base string) {
	base, _ = start(t, t.TempDir(), args...)
	return base
}

func readBase(t *testing.T, stdout io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("it ended before it listened: %v", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// startProgram runs the example in a separate process.
func startProgram(t *testing.T, path, dir string) (base string, process *os.Process) {
	t.Helper()
	cmd := exec.Command(path, "-addr", "127.0.0.1:0", "-dir", dir)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return readBase(t, stdout), cmd.Process
}

// request sends a request with the field for the tus version and with further fields, given as names and values. It reads the whole answer.
func request(t *testing.T, method, url string, body io.Reader, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Tus-Resumable", "1.0.0")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	if r.Header.Get("Tus-Resumable") == "" {
		r.Header.Del("Tus-Resumable")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(content)
}

func expect(t *testing.T, answer *http.Response, content string, status int) {
	t.Helper()
	if answer.StatusCode != status {
		t.Fatalf("%s %s: got %d %q, want %d", answer.Request.Method, answer.Request.URL.Path, answer.StatusCode, content, status)
	}
}

// create makes an upload and returns its URL.
func create(t *testing.T, base, name string, length int) string {
	t.Helper()
	answer, content := request(t, "POST", base+"/uploads", nil, "Upload-Length", strconv.Itoa(length), "Upload-Metadata", metadata(name))
	expect(t, answer, content, 201)
	return base + answer.Header.Get("Location")
}

func metadata(name string) string {
	return "filename " + base64.StdEncoding.EncodeToString([]byte(name))
}

func patch(t *testing.T, url string, offset int, body io.Reader, fields ...string) (*http.Response, string) {
	t.Helper()
	return request(t, "PATCH", url, body, append([]string{"Upload-Offset", strconv.Itoa(offset), "Content-Type", tusMedia}, fields...)...)
}

// uploadWhole uploads a file in one piece.
func uploadWhole(t *testing.T, base, name, content string) {
	t.Helper()
	answer, text := patch(t, create(t, base, name, len(content)), 0, strings.NewReader(content))
	expect(t, answer, text, 204)
}

// send begins a PATCH on a new connection, sends a part of the announced body, and leaves the connection open.
func send(t *testing.T, url string, offset, announced int, part string) net.Conn {
	t.Helper()
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "PATCH /%s HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nContent-Type: %s\r\nUpload-Offset: %d\r\nContent-Length: %d\r\n\r\n",
		path, tusMedia, offset, announced)
	if _, err := io.WriteString(conn, part); err != nil {
		t.Fatal(err)
	}
	return conn
}

// offset waits until no request is sending to an upload, and returns how much of the upload has arrived.
func offset(t *testing.T, url string) int {
	t.Helper()
	var n int
	eventually(t, "the upload stays locked", func() bool {
		answer, content := request(t, "HEAD", url, nil)
		if answer.StatusCode == 423 {
			return false
		}
		expect(t, answer, content, 200)
		n, _ = strconv.Atoi(answer.Header.Get("Upload-Offset"))
		return true
	})
	return n
}

func eventually(t *testing.T, complaint string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(longest); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}

// list returns the names and sizes of the stored files.
func list(t *testing.T, base string) map[string]int64 {
	t.Helper()
	answer, content := request(t, "GET", base+"/api/files", nil)
	expect(t, answer, content, 200)
	var files []file
	if err := json.Unmarshal([]byte(content), &files); err != nil {
		t.Fatal(err)
	}
	sizes := make(map[string]int64)
	for _, f := range files {
		sizes[f.Name] = f.Size
	}
	return sizes
}

// noise returns content without repetitions.
func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

func expectStored(t *testing.T, base, name, content string) {
	t.Helper()
	answer, got := request(t, "GET", base+"/files/"+name, nil)
	if answer.StatusCode != 200 || got != content {
		t.Errorf("%s: got %d and %d bytes, want 200 and the %d that were sent", name, answer.StatusCode, len(got), len(content))
	}
}

// peakMemory returns the peak resident memory of the process, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("peak memory is read from /proc")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// A page of another site whose name was made to resolve to this server can't read from it (DNS rebinding).
func TestHosts(t *testing.T) {
	base := startNew(t)
	sitetest.Hosts(t, base+"/api/files")
}
