package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/examples/internal/sitetest"
)

// patience is how long anything may take that a test waits for, on a machine that does much else.
const patience = time.Minute

// start runs the example on a port of its own, with its files in dir, until the test ends.
func start(t *testing.T, dir string, args ...string) (base string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0", "-dir", dir}, args...), out)
		out.CloseWithError(err)
		done <- err
	}()
	base = readBase(t, stdout)
	go io.Copy(io.Discard, stdout)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
	return base
}

func readBase(t *testing.T, stdout io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("it ended before it listened: %v", err)
	}
	base, _, _ := strings.Cut(strings.TrimPrefix(line, "listening on "), ",")
	return base
}

// send stores body of the given length (-1: chunked) and returns the status and the answer.
func send(t *testing.T, method, url string, body io.Reader, length int64) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestStoresAndLists(t *testing.T) {
	dir := t.TempDir()
	base := start(t, dir, "-fsync")
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MB: over the server's limit for bodies
	cases := []struct {
		name, method, file string
		body               []byte
		chunked            bool
		status             int
	}{
		{"a new file", "PUT", "note.txt", []byte("so long"), false, 201},
		{"the same file again", "PUT", "note.txt", []byte("so short"), false, 200},
		{"an empty file", "POST", "empty", nil, false, 201},
		{"a large file", "POST", "large", large, false, 201},
		{"a large chunked file", "PUT", "chunked", large, true, 201},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			length := int64(len(tc.body))
			if tc.chunked {
				length = -1
			}
			status, answer := send(t, tc.method, base+"/files/"+tc.file, bytes.NewReader(tc.body), length)
			if want := fmt.Sprintf(`{"name":%q,"size":%d}`, tc.file, len(tc.body)); status != tc.status || strings.TrimSpace(answer) != want {
				t.Errorf("got %d %q, want %d %q", status, answer, tc.status, want)
			}
			stored, err := os.ReadFile(filepath.Join(dir, tc.file))
			if err != nil || !bytes.Equal(stored, tc.body) {
				t.Errorf("%d bytes are stored of %d, error %v", len(stored), len(tc.body), err)
			}
		})
	}
	status, answer := send(t, "GET", base+"/files", nil, 0)
	var files []file
	if err := json.Unmarshal([]byte(answer), &files); err != nil || status != 200 {
		t.Fatalf("the list: %d %q, %v", status, answer, err)
	}
	want := []file{{"chunked", 16 << 20}, {"empty", 0}, {"large", 16 << 20}, {"note.txt", 8}}
	if fmt.Sprint(files) != fmt.Sprint(want) {
		t.Errorf("the list is %v, want %v", files, want)
	}
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	base := start(t, dir, "-max-bytes", "10")
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"a way out", "PUT", "/files/..%2Fescape", "x", 400},
		{"a hidden name, as temporary files have", "PUT", "/files/.upload-x", "x", 400},
		{"a folder", "PUT", "/files/a/b", "x", 400},
		{"a NUL", "PUT", "/files/a%00b", "x", 400},
		{"a name that no file system takes", "PUT", "/files/" + strings.Repeat("n", maxName+1), "x", 400},
		{"more than -max-bytes", "PUT", "/files/large", strings.Repeat("x", 11), 413},
		{"a method that isn't there", "DELETE", "/files/note", "", 405},
		{"an upload without a name", "POST", "/files", "x", 405},
		{"another path", "GET", "/", "", 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if status, answer := send(t, tc.method, base+tc.path, strings.NewReader(tc.body), int64(len(tc.body))); status != tc.status {
				t.Errorf("got %d %q, want %d", status, answer, tc.status)
			}
		})
	}
	expectEmpty(t, dir)
}

// expectEmpty waits until nothing is in dir, hidden files included.
func expectEmpty(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", entries)
		}
	}
}

// Nothing is left of an upload whose sender goes away.
func TestRemovesABrokenUpload(t *testing.T) {
	dir := t.TempDir()
	base := start(t, dir)
	for name, head := range map[string]string{
		"announced": "Content-Length: 1000000\r\n\r\n",
		"chunked":   "Transfer-Encoding: chunked\r\n\r\nf4240\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT /files/%s HTTP/1.1\r\nHost: localhost\r\n%s", name, head)
		conn.Write(make([]byte, 500_000))
		waitForEntry(t, dir)
		conn.Close()
		expectEmpty(t, dir)
	}
}

func waitForEntry(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the upload hasn't begun to be written")
		}
	}
}

func TestStartRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, tempPrefix+"LEFT"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
	expectEmpty(t, dir)
}

// The server's memory doesn't depend on the upload's size: below 40 MB at 256 MB, and at as many bytes as
// FILO_UPLOAD_BYTES says.
func TestMemoryStaysSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("peak memory is read from /proc")
	}
	size := int64(256 << 20)
	if s := os.Getenv("FILO_UPLOAD_BYTES"); s != "" {
		var err error
		if size, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	// A program of its own, without the race detector, which multiplies memory.
	dir := t.TempDir()
	program := filepath.Join(dir, "upload")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-dir", filepath.Join(dir, "files"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	base := readBase(t, stdout)

	for _, length := range []int64{size, -1} {
		if status, answer := send(t, "PUT", base+"/files/big", io.LimitReader(zeros{}, size), length); status/100 != 2 {
			t.Fatalf("got %d %q", status, answer)
		}
		info, err := os.Stat(filepath.Join(dir, "files", "big"))
		if err != nil || info.Size() != size {
			t.Fatalf("stored: %v, %v; want %d bytes", info, err, size)
		}
		if peak := peakMemory(t, cmd.Process.Pid); peak > 40<<20 {
			t.Errorf("after %d bytes (announced as %d) the peak is %d bytes of memory, want at most 40 MB", size, length, peak)
		} else {
			t.Logf("%d bytes (announced as %d): peak memory %.1f MB", size, length, float64(peak)/(1<<20))
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// peakMemory is the most memory that the process has had resident, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM in /proc/PID/status")
	return 0
}

// A page of another site stores nothing: a form can send a POST anywhere.
func TestOtherSites(t *testing.T) {
	dir := t.TempDir()
	base := start(t, dir)
	for _, field := range [][2]string{{"Origin", "http://evil.test"}, {"Sec-Fetch-Site", "cross-site"}, {"Origin", "null"}} {
		r, err := http.NewRequest("POST", base+"/files/note", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(field[0], field[1])
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 403 {
			t.Errorf("%s: got %d, want 403", field, response.StatusCode)
		}
	}
	expectEmpty(t, dir)
}

// A page whose own name leads here reads nothing: that is DNS rebinding.
func TestHosts(t *testing.T) {
	base := start(t, t.TempDir())
	sitetest.Hosts(t, base+"/files")
}
