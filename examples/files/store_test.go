package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		ok   bool
	}{
		{"note.txt", true},
		{"Ferien am Meer – 1.jpg", true},
		{"写真.png", true},
		{"a..b", true},
		{strings.Repeat("n", maxName), true},
		{strings.Repeat("n", maxName+1), false},
		{"", false},
		{".", false},
		{"..", false},
		{".hidden", false},
		{partsDir, false},
		{"../escape", false},
		{"/etc/passwd", false},
		{"a/b", false},
		{`..\escape`, false},
		{"a\x00b", false},
		{"a\nb", false},
		{"a\u202egpj.exe", false}, // displayed as "aexe.jpg"
		{"a\u00a0b", false},
		{"a\xffb", false},
	} {
		if err := checkName(tc.name); (err == nil) != tc.ok {
			t.Errorf("%q: %v", tc.name, err)
		}
	}
}

// No request can access files outside of the directory, or the files of unfinished uploads.
func TestTraversalRefused(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "files")
	base, _ := start(t, dir)
	for _, name := range []string{"../escape", "..", "/etc/escape", partsDir + "/escape", "a\x00b"} {
		answer, text := request(t, "POST", base+"/uploads", nil, "Upload-Length", "0", "Upload-Metadata", metadata(name))
		expect(t, answer, text, 400)
	}
	if err := os.WriteFile(filepath.Join(above, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	url := create(t, base, "unfinished", 10)
	id := url[strings.LastIndex(url, "/")+1:]
	for _, path := range []string{"..%2Fsecret", "link", partsDir + "/" + id + ".json", ".uploads%2F" + id + ".json"} {
		if answer, text := request(t, "GET", base+"/files/"+path, nil); answer.StatusCode != 404 {
			t.Errorf("GET %s: %d %q, want 404", path, answer.StatusCode, text)
		}
		answer, _ := request(t, "DELETE", base+"/files/"+path, nil)
		if answer.StatusCode/100 != 4 {
			t.Errorf("DELETE %s: %d, want 4xx", path, answer.StatusCode)
		}
	}
	if entries, err := os.ReadDir(above); err != nil || len(entries) != 2 {
		t.Errorf("beside the directory and the secret there is more: %v, %v", entries, err)
	}
	if files := list(t, base); len(files) != 0 {
		t.Errorf("listed are %v", files)
	}
}

// A file never replaces another file.
func TestSecondOfAName(t *testing.T) {
	base := startNew(t)
	long := strings.Repeat("é", 90) + ".jpeg"
	for i := range 3 {
		uploadWhole(t, base, "a.tar.gz", "abc"[:i+1])
		uploadWhole(t, base, "plain", "abc"[:i+1])
		uploadWhole(t, base, long, strings.Repeat("x", i))
		uploadWhole(t, base, strings.Repeat("l", maxName), "abc"[:i+1])
	}
	want := map[string]int64{
		"a.tar.gz": 1, "a.tar (2).gz": 2, "a.tar (3).gz": 3, "plain": 1, "plain (2)": 2, "plain (3)": 3,
		long: 0, strings.Repeat("é", 90) + " (2).jpeg": 1, strings.Repeat("é", 90) + " (3).jpeg": 2,
		strings.Repeat("l", 200): 1, strings.Repeat("l", 196) + " (2)": 2, strings.Repeat("l", 196) + " (3)": 3,
	}
	if got := list(t, base); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestLimits(t *testing.T) {
	base := startNew(t, "-max-total", "1000")
	uploadWhole(t, base, "first", strings.Repeat("x", 600))
	second := create(t, base, "second", 300)
	answer, text := request(t, "POST", base+"/uploads", nil, "Upload-Length", "101", "Upload-Metadata", metadata("third"))
	expect(t, answer, text, 507)
	// An upload that is deleted makes room for another one.
	answer, text = request(t, "DELETE", second, nil)
	expect(t, answer, text, 204)
	for i := range maxUnfinished {
		create(t, base, "unfinished", 1+i%2)
	}
	answer, text = request(t, "POST", base+"/uploads", nil, "Upload-Length", "1", "Upload-Metadata", metadata("one more"))
	expect(t, answer, text, 503)
}

// The store remembers at most maxUploads uploads, and forgets complete ones first.
func TestWholeUploadsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	for i := range maxUploads + 5 {
		if _, err := s.create(record{Name: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
		if err := s.remove(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, partsDir))
	if err != nil || len(s.uploads) != maxUploads || len(entries) != maxUploads {
		t.Errorf("%d uploads, %d records, %v; want %d", len(s.uploads), len(entries), err, maxUploads)
	}
}

func TestFilesHaveALimit(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	for i := range maxFiles - 1 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.create(record{Name: "the last"}); err != nil {
		t.Error(err)
	}
	if _, err := s.create(record{Name: "one more"}); err == nil {
		t.Error("there is room for more than the limit")
	}
}

func openTestStore(t *testing.T, dir string) *store {
	t.Helper()
	s, err := openStore(dir, limits{fileBytes: 1000, totalBytes: 1000, expiry: time.Hour, stall: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

func TestExpiry(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	old, err := s.create(record{Name: "old", Length: 10})
	if err != nil {
		t.Fatal(err)
	}
	busy, err := s.create(record{Name: "busy", Length: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.acquire(busy.id); err != nil {
		t.Fatal(err)
	}
	s.expire(time.Now().Add(50 * time.Minute))
	if len(s.uploads) != 2 {
		t.Fatalf("%d uploads are left before the time is up", len(s.uploads))
	}
	s.expire(time.Now().Add(70 * time.Minute))
	if len(s.uploads) != 1 || s.uploads[busy.id] == nil {
		t.Errorf("left are %v, want the one that is being sent", s.uploads)
	}
	if _, err := s.acquire(old.id); err != errUnknown {
		t.Errorf("the expired one: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, partsDir, old.id+"*")); err != nil || len(left) != 0 {
		t.Errorf("there is still %v, %v", left, err)
	}
}

// After a crash, an upload that is left is either continued or removed.
func TestStartAfterACrash(t *testing.T) {
	dir := t.TempDir()
	parts := filepath.Join(dir, partsDir)
	if err := os.MkdirAll(parts, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"WHOLE.json": `{"name":"whole","length":5,"stored":"whole"}`, "WHOLE.part": "12345", // the crash came before the rename
		"HALF.json": `{"name":"half","length":5}`, "HALF.part": "12",
		"DONE.json":     `{"name":"done","length":5,"stored":"done"}`,
		"LONG.json":     `{"name":"long","length":5}`,
		"LONG.part":     "123456",
		"ORPHAN.part":   "123",
		"LOST.json":     `{"name":"lost","length":5}`,
		"BROKEN.json":   `{"name":"bro`,
		"BROKEN.part":   "1",
		"OUTSIDE.json":  `{"name":"../outside","length":1}`,
		"OUTSIDE.part":  "1",
		"something.txt": "x",
	} {
		if err := os.WriteFile(filepath.Join(parts, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openTestStore(t, dir)
	got := map[string]string{}
	for id, u := range s.uploads {
		got[id] = fmt.Sprint(u.offset, u.whole())
	}
	if want := (map[string]string{"WHOLE": "5 true", "HALF": "2 false", "DONE": "5 true"}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	left, err := os.ReadDir(parts)
	if err != nil || len(left) != 4 {
		t.Errorf("left are %v, %v", left, err)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "whole")); err != nil || string(content) != "12345" {
		t.Errorf("the whole file: %q, %v", content, err)
	}
}

// A client can send a whole file in one request. Nothing is left of a file that is refused or breaks off.
func TestPut(t *testing.T) {
	dir := t.TempDir()
	base, _ := start(t, dir, "-max-bytes", "2000000")
	content := noise(1_000_000)
	for _, name := range []string{"big", "big (2)"} {
		answer, text := request(t, "PUT", base+"/files/big", strings.NewReader(content))
		expect(t, answer, text, 201)
		if at, _ := url.PathUnescape(answer.Header.Get("Location")); at != "/files/"+name {
			t.Errorf("Location is %q", at)
		}
		if stored, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(stored) != content {
			t.Errorf("%d bytes are stored as %s, %v", len(stored), name, err)
		}
	}
	answer, text := request(t, "PUT", base+"/files/empty", nil)
	expect(t, answer, text, 201)
	for _, refused := range []struct {
		name   string
		body   io.Reader
		status int
	}{
		{"large", strings.NewReader(noise(2_000_001)), 413},
		{"unsized", io.MultiReader(strings.NewReader("x")), 411},
		{".hidden", strings.NewReader("x"), 400},
		{"..%2Fescape", strings.NewReader("x"), 400},
	} {
		answer, text := request(t, "PUT", base+"/files/"+refused.name, refused.body)
		expect(t, answer, text, refused.status)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "PUT /files/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nhalf")
	await := func(some bool) {
		for deadline := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
			parts, err := os.ReadDir(filepath.Join(dir, partsDir))
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("there is %v of uploads: %v", parts, err)
			}
			if len(parts) > 0 == some {
				return
			}
		}
	}
	await(true)
	conn.Close()
	await(false)
	if got := fmt.Sprint(list(t, base)); !strings.Contains(got, "empty") || strings.Contains(got, "half") {
		t.Errorf("stored: %s", got)
	}
}
