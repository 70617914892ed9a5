package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRefusesWhatTheProtocolForbids(t *testing.T) {
	base := startNew(t, "-max-bytes", "1000")
	unfinished := create(t, base, "unfinished", 10)
	expectOK(t, unfinished, 0, "0123")
	for _, tc := range []struct {
		name, method, url, body string
		fields                  []string
		status                  int
	}{
		{"a client of another version", "POST", base + "/uploads", "", []string{"Tus-Resumable", "0.2.2"}, 412},
		{"a client of none", "HEAD", unfinished, "", []string{"Tus-Resumable", ""}, 412},
		{"no length", "POST", base + "/uploads", "", []string{"Upload-Metadata", metadata("a")}, 400},
		{"a negative length", "POST", base + "/uploads", "", []string{"Upload-Length", "-1", "Upload-Metadata", metadata("a")}, 400},
		{"a length with a sign", "POST", base + "/uploads", "", []string{"Upload-Length", "+1", "Upload-Metadata", metadata("a")}, 400},
		{"a length beyond 64 bits", "POST", base + "/uploads", "", []string{"Upload-Length", "9223372036854775808", "Upload-Metadata", metadata("a")}, 400},
		{"more than -max-bytes", "POST", base + "/uploads", "", []string{"Upload-Length", "1001", "Upload-Metadata", metadata("a")}, 413},
		{"no name", "POST", base + "/uploads", "", []string{"Upload-Length", "1"}, 400},
		{"a name that isn't Base64", "POST", base + "/uploads", "", []string{"Upload-Length", "1", "Upload-Metadata", "filename a"}, 400},
		{"an upload that isn't there", "HEAD", base + "/uploads/x", "", nil, 404},
		{"a piece for one that isn't there", "PATCH", base + "/uploads/x", "4", []string{"Upload-Offset", "0", "Content-Type", tusMedia}, 404},
		{"an id that leads elsewhere", "HEAD", base + "/uploads/..%2Funfinished", "", nil, 404},
		{"a piece of another type", "PATCH", unfinished, "4", []string{"Upload-Offset", "4", "Content-Type", "text/plain"}, 415},
		{"a piece without an offset", "PATCH", unfinished, "4", []string{"Content-Type", tusMedia}, 400},
		{"a piece that was there", "PATCH", unfinished, "3", []string{"Upload-Offset", "3", "Content-Type", tusMedia}, 409},
		{"a piece beyond what is there", "PATCH", unfinished, "5", []string{"Upload-Offset", "5", "Content-Type", tusMedia}, 409},
		{"more than was announced", "PATCH", unfinished, "4567890", []string{"Upload-Offset", "4", "Content-Type", tusMedia}, 413},
		{"a page of another site", "DELETE", unfinished, "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"to give up what isn't there", "DELETE", base + "/uploads/x", "", nil, 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, content := request(t, tc.method, tc.url, strings.NewReader(tc.body), tc.fields...)
			expect(t, answer, content, tc.status)
			if got := offset(t, unfinished); got != 4 {
				t.Errorf("the offset is %d afterwards, want 4", got)
			}
		})
	}
}

func expectOK(t *testing.T, url string, offset int, piece string) {
	t.Helper()
	answer, content := patch(t, url, offset, strings.NewReader(piece))
	expect(t, answer, content, 204)
}

func TestDescribesItself(t *testing.T) {
	base := startNew(t, "-max-bytes", "1000")
	answer, content := request(t, "OPTIONS", base+"/uploads", nil, "Tus-Resumable", "")
	expect(t, answer, content, 204)
	for field, want := range map[string]string{
		"Tus-Resumable": "1.0.0", "Tus-Version": "1.0.0", "Tus-Max-Size": "1000", "Tus-Extension": "creation,expiration,termination",
	} {
		if got := answer.Header.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
}

// A file can be uploaded in pieces of any size. It isn't visible before it is complete.
func TestPieces(t *testing.T) {
	base := startNew(t)
	content := noise(100_000)
	url := create(t, base, "pieces", len(content))
	for at, n := 0, 1; at < len(content); n *= 7 {
		end := min(at+n, len(content))
		if files := list(t, base); len(files) != 0 {
			t.Fatalf("with %d bytes of %d there is %v", at, len(content), files)
		}
		expectOK(t, url, at, content[at:end])
		at = end
	}
	expectStored(t, base, "pieces", content)

	answer, text := request(t, "HEAD", url, nil)
	expect(t, answer, text, 200)
	for field, want := range map[string]string{
		"Upload-Offset": "100000", "Upload-Length": "100000", "Upload-Metadata": metadata("pieces"), "Cache-Control": "no-store",
	} {
		if got := answer.Header.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if expires, err := time.Parse(time.RFC1123, answer.Header.Get("Upload-Expires")); err != nil || time.Until(expires) < 23*time.Hour {
		t.Errorf("Upload-Expires is %v, %v", expires, err)
	}
	// Nothing can be added to a complete upload. A client that hasn't received the answer to its last piece continues at the end, with an empty
	// piece.
	answer, text = patch(t, url, len(content), strings.NewReader("x"))
	expect(t, answer, text, 413)
	expectOK(t, url, len(content), "")
}

// A chunked piece doesn't announce its length. If the piece is too long, none of it is kept.
func TestChunkedPieces(t *testing.T) {
	base := startNew(t)
	url := create(t, base, "chunked", 1000)
	answer, text := patch(t, url, 0, io.MultiReader(strings.NewReader(noise(1001))))
	expect(t, answer, text, 413)
	if got := offset(t, url); got != 0 {
		t.Errorf("the offset is %d, want 0", got)
	}
	answer, text = patch(t, url, 0, io.MultiReader(strings.NewReader(noise(1000))))
	expect(t, answer, text, 204)
	expectStored(t, base, "chunked", noise(1000))
}

// A client that can only send POST names the intended method in a field.
func TestMethodOverride(t *testing.T) {
	base := startNew(t)
	url := create(t, base, "posted", 5)
	answer, text := request(t, "POST", url, strings.NewReader("hello"), "X-HTTP-Method-Override", "PATCH",
		"Upload-Offset", "0", "Content-Type", tusMedia)
	expect(t, answer, text, 204)
	expectStored(t, base, "posted", "hello")
}

// An upload whose connection breaks continues where it broke off.
func TestInterruptedUploadResumes(t *testing.T) {
	base := startNew(t)
	content := noise(3_000_000)
	url := create(t, base, "broken.bin", len(content))
	conn := send(t, url, 0, len(content), content[:1_234_567])
	conn.Close()
	at := 0
	eventually(t, "not all of what was sent has come", func() bool { at = offset(t, url); return at == 1_234_567 })
	expectOK(t, url, at, content[at:])
	expectStored(t, base, "broken.bin", content)
}

// While one connection sends, others can neither add to the upload nor learn its offset, which is about to change.
func TestConcurrentPieceRefused(t *testing.T) {
	base := startNew(t)
	content := noise(1_000_000)
	url := create(t, base, "contended", len(content))
	conn := send(t, url, 0, len(content), content[:500_000])
	eventually(t, "the piece isn't begun", func() bool {
		answer, _ := request(t, "HEAD", url, nil)
		return answer.StatusCode == 423
	})
	answer, text := patch(t, url, 0, strings.NewReader("x"))
	expect(t, answer, text, 423)
	answer, text = request(t, "DELETE", url, nil)
	expect(t, answer, text, 423)
	io.WriteString(conn, content[500_000:])
	eventually(t, "the piece doesn't end", func() bool { return offset(t, url) == len(content) })
	expectStored(t, base, "contended", content)
}

// A connection on which nothing more arrives doesn't block its upload for ever.
func TestStalledUploadBreaksOff(t *testing.T) {
	dir := t.TempDir()
	base, stop := start(t, dir, "-stall", "2s")
	content := noise(1_000_000)
	url := create(t, base, "stalled", len(content))
	send(t, url, 0, len(content), content[:500_000])
	eventually(t, "the upload isn't free again", func() bool { return offset(t, url) == 500_000 })
	stop()

	// The rest is sent to a server without the short limit, since on a busy machine sending might also pause for that long.
	again, _ := start(t, dir)
	expectOK(t, again+strings.TrimPrefix(url, base), 500_000, content[500_000:])
	expectStored(t, again, "stalled", content)
}

// A shutdown doesn't wait for the end of an upload, which continues after the next start.
func TestShutdownEndsUploads(t *testing.T) {
	dir := t.TempDir()
	base, stop := start(t, dir)
	content := noise(1_000_000)
	url := create(t, base, "interrupted", len(content))
	conn := send(t, url, 0, len(content), "")
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		for i := range len(content) {
			if _, err := io.WriteString(conn, content[i:i+1]); err != nil {
				return
			}
		}
	}()
	eventually(t, "the upload isn't begun", func() bool {
		answer, _ := request(t, "HEAD", url, nil)
		return answer.StatusCode == 423
	})
	began := time.Now()
	stop()
	if took := time.Since(began); took >= shutdownGrace {
		t.Errorf("shutting down took %v", took)
	}
	<-slow
	again, _ := start(t, dir)
	url = again + strings.TrimPrefix(url, base)
	at := offset(t, url)
	expectOK(t, url, at, content[at:])
	expectStored(t, again, "interrupted", content)
}

// When a process is killed, the received bytes are kept, and the next process continues the upload.
func TestKilledHalfWay(t *testing.T) {
	dir := t.TempDir()
	base, process := startProgram(t, os.Args[0], dir)
	content := noise(2_000_000)
	url := create(t, base, "killed", len(content))
	send(t, url, 0, len(content), content[:1_000_000])
	parts, err := filepath.Glob(filepath.Join(dir, partsDir, "*.part"))
	if err != nil || len(parts) != 1 {
		t.Fatalf("there are %v, %v", parts, err)
	}
	eventually(t, "nothing was written", func() bool {
		info, err := os.Stat(parts[0])
		return err == nil && info.Size() > 0
	})
	process.Signal(syscall.SIGKILL)
	process.Wait()

	again, _ := start(t, dir)
	url = again + strings.TrimPrefix(url, base)
	at := offset(t, url)
	if at == 0 || at > 1_000_000 {
		t.Fatalf("the offset is %d, and 1000000 bytes were sent", at)
	}
	expectOK(t, url, at, content[at:])
	expectStored(t, again, "killed", content)
}

// The server's memory doesn't depend on the size of the files that it receives and sends.
func TestMemoryStaysSmall(t *testing.T) {
	program := filepath.Join(t.TempDir(), "files")
	// Build without the race detector, which multiplies the memory.
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	base, process := startProgram(t, program, t.TempDir())
	const size = 256 << 20
	answer, text := patch(t, create(t, base, "big", size), 0, io.LimitReader(zeros{}, size))
	expect(t, answer, text, 204)
	if got := list(t, base)["big"]; got != size {
		t.Fatalf("%d bytes are stored", got)
	}
	download, err := http.Get(base + "/files/big")
	if err != nil {
		t.Fatal(err)
	}
	defer download.Body.Close()
	if n, err := io.Copy(io.Discard, download.Body); n != size || err != nil {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	if peak := peakMemory(t, process.Pid); peak > 48<<20 {
		t.Errorf("after %d bytes the peak is %d bytes of memory, want at most 48 MB", size, peak)
	} else {
		t.Logf("%d bytes: peak memory %.1f MB", size, float64(peak)/(1<<20))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
