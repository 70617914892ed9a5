//go:build linux

package static_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
)

// These tests run commands that a person would type. `make deps` installs the tools.

// curl can resume an interrupted download.
func TestCurlResumes(t *testing.T) {
	content := noise(5<<20 + 3)
	dir := tree(t, map[string]string{"large.bin": string(content), "small.bin": string(content[:5000])})
	drivers(t, func(t *testing.T, driver filo.Driver) {
		address := tcptest.Serve(t, &filo.Server{Handler: open(t, dir).Serve, Driver: driver})
		for name, want := range map[string][]byte{"large.bin": content, "small.bin": content[:5000]} {
			out := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(out, want[:len(want)/3], 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := tool(t, "curl", "-sS", "-f", "-m", "20", "-C", "-", "-o", out, "-w", "%{http_code} %{size_download}", "http://"+address+"/"+name)
			said, err := cmd.CombinedOutput()
			if wantSaid := fmt.Sprintf("206 %d", len(want)-len(want)/3); err != nil || string(said) != wantSaid {
				t.Errorf("%s: curl: %v, %q, want %q", name, err, said, wantSaid)
			}
			if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: the file has %d bytes that aren't the server's %d; %v", name, len(got), len(want), err)
			}
		}
	})
}

// serveDirectory is the environment variable that makes TestServeDirectory a server: a driver and a directory.
const serveDirectory = "STATIC_TEST_SERVE"

// TestServeDirectory is no test, but the server of TestSendfile. It prints its address, and ends when its standard input ends.
func TestServeDirectory(t *testing.T) {
	driver, dir, ok := strings.Cut(os.Getenv(serveDirectory), " ")
	if !ok {
		t.Skip("it is the server of another test")
	}
	number, err := strconv.Atoi(driver)
	if err != nil {
		t.Fatal(err)
	}
	address := tcptest.Serve(t, &filo.Server{Handler: open(t, dir).Serve, Driver: filo.Driver(number)})
	fmt.Printf("listens %d %s\n", os.Getpid(), address)
	io.Copy(io.Discard, os.Stdin)
}

// sendfileCall finds the number of bytes that a call has sent, even if strace has split the call's line because another thread made a call
// at the same time.
var sendfileCall = regexp.MustCompile(`(?m)sendfile(?:64)?(?:\(| resumed>).*\) += (\d+)$`)

// A file of 256 MB, whole and in ranges, is sent with sendfile, and needs hardly any memory.
func TestSendfile(t *testing.T) {
	const size = 256 << 20
	dir := t.TempDir()
	sparse(t, dir, size)
	drivers(t, func(t *testing.T, driver filo.Driver) {
		log := filepath.Join(t.TempDir(), "strace")
		server := tool(t, "strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=/^sendfile(64)?$", "-e", "signal=none", "-o", log,
			os.Args[0], "-test.run=^TestServeDirectory$")
		server.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", serveDirectory, driver, dir))
		server.Stderr = os.Stderr
		stdin, err := server.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		pid, address := 0, ""
		lines := bufio.NewReader(stdout)
		if line, err := lines.ReadString('\n'); err != nil {
			t.Fatalf("the server says %q; %v", line, err)
		} else if _, err := fmt.Sscanf(line, "listens %d %s", &pid, &address); err != nil {
			t.Fatalf("the server says %q; %v", line, err)
		}
		request(t, address, "/sparse.bin", "Range: bytes=0-500000").Body.Close()
		before := peakMemory(t, pid)
		want := int64(0)
		for _, field := range []string{"X: y", "Range: bytes=1000-30000000", "Range: bytes=0-9999999,200000000-209999999"} {
			response := request(t, address, "/sparse.bin", field)
			n, err := drain(response)
			if err != nil || n != response.ContentLength {
				t.Fatalf("%s: %d bytes of %d; %v", field, n, response.ContentLength, err)
			}
			want += n
		}
		if grown := peakMemory(t, pid) - before; grown > 32<<20 {
			t.Errorf("%d bytes of files took %d bytes of memory", want, grown)
		}
		stdin.Close()
		io.Copy(io.Discard, lines)
		if err := server.Wait(); err != nil {
			t.Fatal(err)
		}
		calls, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		sent := int64(0)
		for _, call := range sendfileCall.FindAllSubmatch(calls, -1) {
			n, err := strconv.ParseInt(string(call[1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		// Only the heads of the two parts aren't sent with sendfile.
		if sent < want-1000 {
			t.Errorf("%d of %d bytes went out by sendfile: %.500s", sent, want, calls)
		}
	})
}

// peakMemory returns the peak resident memory of a process in bytes.
func peakMemory(t *testing.T, pid int) (size int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(line, "%d kB", &size); err != nil {
		t.Fatal(err)
	}
	return size << 10
}
