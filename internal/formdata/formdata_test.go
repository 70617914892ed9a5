package formdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

const testFormType = "multipart/form-data; boundary=xyz"

// testForm returns a form body: name=value parts, and file parts where the name starts with "@".
func testForm(parts ...string) string {
	var form strings.Builder
	for i := 0; i < len(parts); i += 2 {
		name, isFile := strings.CutPrefix(parts[i], "@")
		form.WriteString("--xyz\r\nContent-Disposition: form-data; name=\"" + name + `"`)
		if isFile {
			form.WriteString(`; filename="` + name + `.txt"`)
		}
		form.WriteString("\r\n\r\n" + parts[i+1] + "\r\n")
	}
	return form.String() + "--xyz--\r\n"
}

// temporaryFiles sets a directory for this test's temporary files, and returns a function that counts the files in it.
func temporaryFiles(t *testing.T) func() int {
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	return func() int {
		entries, err := os.ReadDir(directory)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
}

func fileContent(t *testing.T, header *multipart.FileHeader) string {
	t.Helper()
	file, err := header.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestRead(t *testing.T) {
	files := temporaryFiles(t)
	body := testForm("a", "1", "@small", "in memory", "a", "2", "@empty", "", "@large", strings.Repeat("x", 5000), "b", "--xy\r\n--")
	for name, reader := range map[string]io.Reader{
		"whole":       strings.NewReader(body),
		"byte":        iotest.OneByteReader(strings.NewReader(body)),
		"half":        iotest.HalfReader(strings.NewReader(body)),
		"data or err": iotest.DataErrReader(strings.NewReader(body)),
	} {
		form, err := Read(reader, testFormType, Limits{MaxMemory: 1000, MaxParts: 6, MaxPartBytes: 5000})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := fmt.Sprint(form.Value); got != "map[a:[1 2] b:[--xy\r\n--]]" {
			t.Errorf("%s: values %q", name, got)
		}
		for file, want := range map[string]string{"small": "in memory", "empty": "", "large": strings.Repeat("x", 5000)} {
			if header := form.File[file][0]; header.Filename != file+".txt" || fileContent(t, header) != want {
				t.Errorf("%s: file %q is %q", name, file, header.Filename)
			}
		}
		if files() != 1 {
			t.Errorf("%s: %d temporary files, want 1", name, files())
		}
		if err := form.RemoveAll(); err != nil || files() != 0 {
			t.Errorf("%s: %v, %d temporary files left", name, err, files())
		}
	}
}

// The heads of parts are limited, too: their number, and, together with the parts, the memory that they occupy.
func TestHeads(t *testing.T) {
	for _, test := range []struct {
		parts, heads int
		field        string
		tooMuch      bool
	}{
		{1, 9_990, "A:b\r\n", false}, {900, 10, "A:b\r\n", false}, {900, 10, "A%d:b\r\n", false},
		{1, 10_010, "A:b\r\n", true}, {900, 12, "A:b\r\n", true},
	} {
		var form strings.Builder
		for part := range test.parts {
			fmt.Fprintf(&form, "--xyz\r\nContent-Disposition: form-data; name=\"n%d\"; filename=\"f\"\r\n", part)
			for head := range test.heads {
				form.WriteString(strings.ReplaceAll(test.field, "%d", fmt.Sprint(head)))
			}
			form.WriteString("\r\n\r\n")
		}
		form.WriteString("--xyz--\r\n")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read, err := Read(strings.NewReader(form.String()), testFormType, Limits{})
		runtime.ReadMemStats(&after)
		var refused *Fault
		if tooMuch := errors.As(err, &refused) && refused.Status == 413; tooMuch != test.tooMuch || err != nil && !tooMuch {
			t.Errorf("%d parts with %d fields: %v", test.parts, test.heads, err)
		}
		if read != nil {
			read.RemoveAll()
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
			t.Errorf("%d parts with %d fields took %d bytes", test.parts, test.heads, taken)
		}
	}
}

func TestReadErrors(t *testing.T) {
	files := temporaryFiles(t)
	large := strings.Repeat("x", 200<<10)
	for _, test := range []struct {
		sentence    string
		contentType string
		body        string
		limits      Limits
		status      int
		wrapped     error
	}{
		{"another media type", "application/json", "", Limits{}, 415, nil},
		{"no media type", "", "", Limits{}, 415, nil},
		{"form-data only", "multipart/mixed; boundary=xyz", "", Limits{}, 415, nil},
		{"the boundary is required", "multipart/form-data", "", Limits{}, 400, nil},
		{"the boundary isn't empty", `multipart/form-data; boundary=""`, "", Limits{}, 400, nil},
		{"no longer than 70 characters", "multipart/form-data; boundary=" + strings.Repeat("a", 71), "", Limits{}, 400, nil},
		{"bcharsnospace at the end", `multipart/form-data; boundary="a "`, "", Limits{}, 400, nil},
		{"white space at the end", "multipart/form-data; boundary=\"a\t\"", "", Limits{}, 400, nil},
		{"control characters", `multipart/form-data; boundary*=utf-8''a%0d%0ab`, "", Limits{}, 400, nil},
		{"malformed parameter", "multipart/form-data; boundary", "", Limits{}, 400, nil},
		{"an empty body", testFormType, "", Limits{}, 400, nil},
		{"the closing delimiter is missing", testFormType, strings.TrimSuffix(testForm("a", "1"), "--xyz--\r\n"), Limits{}, 400, nil},
		{"the body ends inside a part", testFormType, testForm("@a", large)[:100<<10], Limits{MaxMemory: 1}, 400, io.ErrUnexpectedEOF},
		{"a malformed part header", testFormType, "--xyz\r\nno colon\r\n\r\n\r\n--xyz--", Limits{}, 400, nil},
		{"too many values", testFormType, testForm("a", "1", "b", "2", "c", "3"), Limits{MaxParts: 2}, 413, ErrTooManyParts},
		{"too many files", testFormType, testForm("@a", large, "@a", large, "@a", "3"), Limits{MaxParts: 2, MaxMemory: 1}, 413, ErrTooManyParts},
		{"more than 1000 parts", testFormType, testForm(strings.Split(strings.Repeat("a,1,", 1001)[:4003], ",")...), Limits{}, 413, ErrTooManyParts},
		{"a value over its limit", testFormType, testForm("a", "12345"), Limits{MaxPartBytes: 4}, 413, ErrPartTooLarge},
		{"a file over its limit", testFormType, testForm("@a", "12345"), Limits{MaxPartBytes: 4}, 413, ErrPartTooLarge},
		{"a file far over its limit", testFormType, testForm("@a", large), Limits{MaxPartBytes: 4, MaxMemory: 1}, 413, ErrPartTooLarge},
		{"a file over its limit, in a file", testFormType, testForm("@a", "12", "@b", "12345"), Limits{MaxPartBytes: 4, MaxMemory: -1}, 413, ErrPartTooLarge},
		{"values over the memory", testFormType, testForm("@a", large, "b", strings.Repeat("x", 11<<20)), Limits{MaxMemory: 1}, 413, multipart.ErrMessageTooLarge},
	} {
		form, err := Read(strings.NewReader(test.body), test.contentType, test.limits)
		var fault *Fault
		if form != nil || !errors.As(err, &fault) || fault.Status != test.status {
			t.Errorf("%s: error %v, want status %d", test.sentence, err, test.status)
		} else if test.wrapped != nil && !errors.Is(err, test.wrapped) {
			t.Errorf("%s: error %v doesn't wrap %v", test.sentence, err, test.wrapped)
		}
		if files() != 0 {
			t.Fatalf("%s: %d temporary files left", test.sentence, files())
		}
	}
}

// An error of the body, such as that of its own limit, is returned unchanged.
func TestReadBodyError(t *testing.T) {
	files := temporaryFiles(t)
	bodyError := errors.New("the body's own")
	body := testForm("a", "1", "@b", strings.Repeat("x", 100<<10))
	for _, length := range []int{0, 10, 60, 500, 50 << 10} {
		reader := io.MultiReader(strings.NewReader(body[:length]), iotest.ErrReader(bodyError))
		if _, err := Read(reader, testFormType, Limits{MaxMemory: 1}); err != bodyError {
			t.Errorf("after %d bytes: %v", length, err)
		}
		if files() != 0 {
			t.Fatalf("after %d bytes: %d temporary files left", length, files())
		}
	}
}

func TestReadNoDirectory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	_, err := Read(strings.NewReader(testForm("@a", "12345")), testFormType, Limits{MaxMemory: 1})
	var fault *Fault
	if err == nil || errors.As(err, &fault) {
		t.Errorf("the server's own trouble is %v", err)
	}
}

// The limits are enforced while the body is read, not just afterwards: no disk space or time is spent on the rest.
func TestLimitsStopReading(t *testing.T) {
	temporaryFiles(t)
	for _, test := range []struct {
		name          string
		parts, length int
		limits        Limits
	}{
		{"many parts", 1000, 1 << 10, Limits{MaxParts: 3}},
		{"a large part", 1, 1 << 20, Limits{MaxPartBytes: 10 << 10}},
	} {
		part := strings.TrimSuffix(testForm("@a", strings.Repeat("x", test.length)), "--xyz--\r\n")
		body := strings.NewReader(strings.Repeat(part, test.parts))
		size := body.Len()
		if _, err := Read(body, testFormType, test.limits); err == nil {
			t.Fatalf("%s: no error", test.name)
		}
		if read := size - body.Len(); read > 100<<10 {
			t.Errorf("%s: %d of %d bytes were read", test.name, read, size)
		}
	}
}

// The same delimiters are found regardless of how the body is split into reads.
func TestPartLimiterSplits(t *testing.T) {
	body := testForm("a", "1\r\n--xy\n", "b", "2\n--xyz not at the end", "c", "-\n\n--xy")
	const delimiters = 5
	for first := 0; first <= len(body); first++ {
		for _, second := range []int{1, 2, 3, 4, 5, 6, 7, 40, len(body)} {
			l := newPartLimiter(nil, "xyz", Limits{})
			l.scan([]byte(body[:first]))
			l.scan([]byte(body[first:min(first+second, len(body))]))
			l.scan([]byte(body[min(first+second, len(body)):]))
			if l.parts != delimiters {
				t.Fatalf("split at %d and %d more: %d delimiters, want %d", first, second, l.parts, delimiters)
			}
		}
	}
}

func TestNewReader(t *testing.T) {
	for _, contentType := range []string{testFormType, "multipart/mixed; boundary=xyz"} {
		reader, err := NewReader(strings.NewReader(testForm("a", "1")), contentType)
		if err != nil {
			t.Fatal(err)
		}
		part, err := reader.NextPart()
		if err != nil || part.FormName() != "a" {
			t.Fatalf("%q, %v", part.FormName(), err)
		}
	}
	for contentType, status := range map[string]int{"text/plain": 415, "multipart/alternative; boundary=xyz": 415, "multipart/mixed": 400} {
		_, err := NewReader(strings.NewReader(""), contentType)
		var fault *Fault
		if !errors.As(err, &fault) || fault.Status != status {
			t.Errorf("%q: %v", contentType, err)
		}
	}
}

// FuzzRead checks that no body exceeds the limits or leaves a temporary file, and a form that mime/multipart has written is read back whole.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		testForm("a", "1", "@b", "file"), testForm("@a", strings.Repeat("x", 300), "@b", strings.Repeat("y", 300)), "--xyz", "--xyz--",
		"preamble\r\n--xyz \r\n\r\n\r\n--xyz--epilogue", "--xyz\nContent-Disposition: form-data; name=a\n\n1\n--xyz--", "\r\n--xyz\r\n--xyz",
	} {
		f.Add([]byte(seed), testFormType, byte(7))
	}
	f.Add([]byte("--a\r\n\r\n"), `multipart/form-data; boundary="a b"`, byte(0))
	directory := f.TempDir()
	f.Setenv("TMPDIR", directory)
	f.Fuzz(func(t *testing.T, body []byte, contentType string, chunk byte) {
		limits := Limits{MaxMemory: 200, MaxParts: 4, MaxPartBytes: 1000}
		reader := &chunkReader{bytes: body, chunk: int(chunk) + 1}
		form, err := Read(reader, contentType, limits)
		if err == nil {
			checkLimits(t, form, limits)
			checkFound(t, form, body, contentType, int(chunk)+1)
			if err := form.RemoveAll(); err != nil {
				t.Fatal(err)
			}
		} else if fault := (*Fault)(nil); !errors.As(err, &fault) {
			t.Fatalf("%v has no status", err)
		}
		entries, err := os.ReadDir(directory)
		if err != nil || len(entries) != 0 {
			t.Fatalf("%d temporary files left, %v", len(entries), err)
		}
		checkRoundTrip(t, body, int(chunk)+1)
	})
}

// chunkReader's reads return at most chunk bytes each.
type chunkReader struct {
	bytes []byte
	chunk int
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if len(r.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.bytes[:min(r.chunk, len(r.bytes))])
	r.bytes = r.bytes[n:]
	return n, nil
}

func checkLimits(t *testing.T, form *multipart.Form, limits Limits) {
	parts := 0
	for _, values := range form.Value {
		parts += len(values)
		for _, value := range values {
			if int64(len(value)) > limits.MaxPartBytes {
				t.Fatalf("a value of %d bytes", len(value))
			}
		}
	}
	for _, files := range form.File {
		parts += len(files)
		for _, file := range files {
			if file.Size > limits.MaxPartBytes || int64(len(fileContent(t, file))) != file.Size {
				t.Fatalf("a file of %d bytes", file.Size)
			}
		}
	}
	if parts > limits.MaxParts {
		t.Fatalf("%d parts", parts)
	}
}

// checkFound checks that a fileFinder takes no byte of a value for a file's.
func checkFound(t *testing.T, form *multipart.Form, body []byte, contentType string, chunk int) {
	boundary, err := boundaryIn(contentType, false)
	if err != nil {
		t.Fatal(err)
	}
	most := int64(len(body))
	for _, values := range form.Value {
		for _, value := range values {
			most -= int64(len(value))
		}
	}
	f := newFileFinder(boundary)
	for ; len(body) > 0; body = body[min(chunk, len(body)):] {
		f.scan(body[:min(chunk, len(body))])
	}
	if f.found > most {
		t.Fatalf("%d bytes of files found, where there are at most %d", f.found, most)
	}
}

func checkRoundTrip(t *testing.T, content []byte, chunk int) {
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	// The boundary is random, as every client's is, so it doesn't occur in the content.
	part, err := writer.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="a"; filename="b"`}})
	if err != nil {
		t.Fatal(err)
	}
	part.Write(content)
	writer.WriteField("c", string(content))
	writer.Close()
	form, err := Read(&chunkReader{body.Bytes(), chunk}, writer.FormDataContentType(), Limits{MaxParts: 2, MaxMemory: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer form.RemoveAll()
	if form.Value["c"][0] != string(content) || fileContent(t, form.File["a"][0]) != string(content) {
		t.Fatalf("%q was read as %q", content, form.Value["c"][0])
	}
}

func BenchmarkRead(b *testing.B) {
	b.Setenv("TMPDIR", b.TempDir())
	for name, size := range map[string]int{"1KB": 1 << 10, "1MB": 1 << 20, "4MB in a file": 4 << 20} {
		b.Run(name, func(b *testing.B) {
			body := testForm("a", "1", "b", "2", "@file", strings.Repeat("x\r\n", size/3))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				form, err := Read(strings.NewReader(body), testFormType, Limits{})
				if err != nil {
					b.Fatal(err)
				}
				form.RemoveAll()
			}
		})
	}
}

func BenchmarkPartLimiter(b *testing.B) {
	chunk := []byte(strings.Repeat("x\r\n", 4096/3))
	l := newPartLimiter(nil, "----WebKitFormBoundary0123456789abcdef", Limits{})
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		l.scan(chunk)
	}
}

// A boundary may be any token or quoted string of up to 70 bytes.
func TestBoundaries(t *testing.T) {
	for written, boundary := range map[string]string{
		"*****": "*****", "a|b~c#d!e$f%g&h^i`jk": "a|b~c#d!e$f%g&h^i`jk", `"a;b"`: "a;b", `"a\\b\"c"`: `a\b"c`, `"a b"`: "a b", `"<a>@[b]"`: "<a>@[b]", `"ü"`: "ü",
		strings.Repeat("*", 70): strings.Repeat("*", 70), "----WebKitFormBoundary7MA4YWxkTrZu0gW": "----WebKitFormBoundary7MA4YWxkTrZu0gW",
	} {
		contentType := "multipart/form-data; boundary=" + written
		form, err := Read(strings.NewReader(strings.ReplaceAll(testForm("a", "1"), "xyz", boundary)), contentType, Limits{})
		if err != nil || form.Value["a"][0] != "1" {
			t.Errorf("%s: %v, %v", written, form, err)
		}
	}
}
