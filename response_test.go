package filo

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// answerScript is a connection whose client follows a script. It records in order what happens: reads, writes, and what the handlers note.
type answerScript struct {
	input  []string // one for each Read; after that the client has closed the connection
	events []string
	output strings.Builder
	direct []byte // if set, a write that passes this slice itself, and no copy, is recorded as such
}

func (c *answerScript) Read(p []byte) (int, error) {
	if len(c.input) == 0 {
		c.note("end")
		return 0, io.EOF
	}
	n := copy(p, c.input[0])
	if c.input[0] = c.input[0][n:]; c.input[0] == "" {
		c.input = c.input[1:]
	}
	c.note("read")
	return n, nil
}

// Write records how many final and interim answers p has.
func (c *answerScript) Write(p []byte) (int, error) {
	c.output.Write(p)
	switch {
	case c.direct != nil && unsafe.SliceData(p) == unsafe.SliceData(c.direct):
		c.note(fmt.Sprint("write body itself ", len(p)))
	default:
		c.note(fmt.Sprint("write ", strings.Count(string(p), "HTTP/1.1 ")))
	}
	return len(p), nil
}

func (c *answerScript) note(event string)              { c.events = append(c.events, event) }
func (c *answerScript) Close() error                   { c.note("close"); return nil }
func (*answerScript) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*answerScript) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*answerScript) SetDeadline(time.Time) error      { return nil }
func (*answerScript) SetReadDeadline(time.Time) error  { return nil }
func (*answerScript) SetWriteDeadline(time.Time) error { return nil }

// answerScripted serves the script. The handler's median time is given, so that the result doesn't depend on measurements.
func answerScripted(c *answerScript, median time.Duration, handler func(c *Ctx, note func(string)) error) {
	answerServeScript(c, c, median, handler)
}

func answerServeScript(netConn net.Conn, c *answerScript, median time.Duration, handler func(c *Ctx, note func(string)) error) {
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(ctx *Ctx) error {
		c.note(ctx.Path())
		return handler(ctx, c.note)
	}}
	defer s.Close()
	s.classes.handler.Median.Store(int64(median))
	s.ServeConn(netConn)
}

func answerRequests(paths ...string) string {
	var all strings.Builder
	for _, path := range paths {
		all.WriteString("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	return all.String()
}

// The median time of a handler that is quick, and of one that isn't.
const (
	answerQuickly = time.Nanosecond
	answerSlowly  = time.Second
)

const answerPOST = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"

func answerPath(c *Ctx, _ func(string)) error { return c.Text(200, c.Path()) }

// answerPipelines are pipelines, each with what the client sends in each read, and the order of the events that follow.
var answerPipelines = []struct {
	name    string
	median  time.Duration
	input   []string
	handler func(c *Ctx, note func(string)) error
	want    string
}{
	{"quick", answerQuickly, []string{answerRequests("/1", "/2", "/3")}, answerPath, "read /1 /2 /3 write 3 end close"},
	{"slow", answerSlowly, []string{answerRequests("/1", "/2", "/3")}, answerPath, "read /1 write 1 /2 write 1 /3 write 1 end close"},
	{"not known yet", 0, []string{answerRequests("/1")}, answerPath, "read /1 write 1 end close"},
	{"the rest of a request has to come", answerQuickly, []string{answerRequests("/1") + "GET /2 HT", "TP/1.1\r\nHost: a\r\n\r\n"}, answerPath,
		"read /1 write 1 read /2 write 1 end close"},
	{"a refused request behind", answerQuickly, []string{answerRequests("/1", "/2") + "BAD\r\n\r\n"}, answerPath, "read /1 /2 write 3 close"},
	{"the last one closes", answerQuickly, []string{answerRequests("/1") + "GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + answerRequests("/3")},
		answerPath, "read /1 /2 write 2 close"},
	{"a body that is there", answerQuickly, []string{answerRequests("/1") + answerPOST + "body" + answerRequests("/2")},
		func(c *Ctx, note func(string)) error {
			body, err := c.Body()
			note(fmt.Sprintf("%q", body))
			return err
		}, `read /1 "" /body "body" /2 "" write 3 end close`},
	{"a wait for a body", answerQuickly, []string{answerRequests("/1") + answerPOST, "body" + answerRequests("/2")},
		func(c *Ctx, note func(string)) error {
			_, err := c.Body()
			return err
		}, "read /1 /body write 1 read /2 write 2 end close"},
	{"a wait for a body that isn't read", answerQuickly, []string{answerRequests("/1") + answerPOST, "body" + answerRequests("/2")},
		answerPath, "read /1 /body write 2 read /2 write 1 end close"},
	{"100-continue", answerQuickly, []string{answerRequests("/1") + strings.Replace(answerPOST, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1), "body"},
		func(c *Ctx, note func(string)) error {
			_, err := c.Body()
			return err
		}, "read /1 /body write 2 read write 1 end close"},
	{"hijack", answerQuickly, []string{answerRequests("/1", "/hijack", "/rest")},
		func(c *Ctx, note func(string)) error {
			if c.Path() != "/hijack" {
				return nil
			}
			_, buffered, err := c.Hijack()
			note(fmt.Sprintf("buffered %d", len(buffered)))
			return err
		}, fmt.Sprintf("read /1 /hijack write 1 buffered %d", len(answerRequests("/rest")))},
	{"upgrade", answerQuickly, []string{answerRequests("/1") + "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"},
		func(c *Ctx, note func(string)) error {
			if c.Path() != "/upgrade" {
				return nil
			}
			_, _, err := c.Upgrade("x")
			note("upgraded")
			return err
		}, "read /1 /upgrade write 2 upgraded"},
	{"a flushed stream", answerQuickly, []string{answerRequests("/1", "/stream", "/2")},
		func(c *Ctx, note func(string)) error {
			if c.Path() != "/stream" {
				return nil
			}
			c.Stream().WriteString("x")
			err := c.Stream().Flush()
			note("flushed")
			return err
		}, "read /1 /stream write 2 flushed /2 write 1 end close"},
	{"early hints", answerQuickly, []string{answerRequests("/1", "/hints")},
		func(c *Ctx, note func(string)) error {
			if c.Path() != "/hints" {
				return nil
			}
			err := c.EarlyHints()
			note("hinted")
			return err
		}, "read /1 /hints write 2 hinted write 1 end close"},
	{"OPTIONS *", answerQuickly, []string{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n" + answerRequests("/1")}, answerPath, "read /1 write 2 end close"},
	{"an abort", answerQuickly, []string{answerRequests("/1", "/abort", "/2")},
		func(c *Ctx, note func(string)) error {
			if c.Path() == "/abort" {
				return ErrAbort
			}
			return nil
		}, "read /1 /abort write 1 close"},
	{"a stream that is broken off", answerQuickly, []string{answerRequests("/1", "/short", "/2")},
		func(c *Ctx, note func(string)) error {
			if c.Path() != "/short" {
				return nil
			}
			c.Stream().Flush()
			return ErrAbort
		}, "read /1 /short write 2 close"},
	{"a body stream that fails at once", answerQuickly, []string{answerRequests("/1", "/fails", "/2")},
		func(c *Ctx, note func(string)) error {
			if c.Path() == "/fails" {
				c.Response.SetBodyStream(strings.NewReader(""), 5)
			}
			return nil
		}, "read /1 /fails /2 write 3 end close"},
}

// Pipelined answers leave together when the input is used up or the buffer is full, and before every wait and every
// handler that may be slow.
func TestPipelineWrites(t *testing.T) {
	for _, test := range answerPipelines {
		t.Run(test.name, func(t *testing.T) {
			script := &answerScript{input: slices.Clone(test.input)}
			answerScripted(script, test.median, test.handler)
			if got := strings.Join(script.events, " "); got != test.want {
				t.Errorf("it went %q, want %q\noutput %q", got, test.want, script.output.String())
			}
		})
	}
}

// A pipeline larger than all buffers is answered in order. The writes are bounded, and fewer than the answers.
func TestPipelineLargerThanTheBuffers(t *testing.T) {
	const count = 5000
	paths := make([]string, count)
	for i := range paths {
		paths[i] = fmt.Sprint("/", i)
	}
	script := &answerScript{input: []string{answerRequests(paths...)}}
	answerScripted(script, time.Nanosecond, func(c *Ctx, _ func(string)) error { return c.Text(200, c.Path()) })
	output := script.output.String()
	answers := strings.Split(output, "HTTP/1.1 200 OK\r\n")[1:]
	if len(answers) != count {
		t.Fatalf("%d answers, want %d", len(answers), count)
	}
	for i, answer := range answers {
		if !strings.HasSuffix(answer, "\r\n\r\n"+paths[i]) {
			t.Fatalf("answer %d is %q, want %s", i, answer, paths[i])
		}
	}
	writes, largest := 0, 0
	for _, event := range script.events {
		var n int
		if _, err := fmt.Sscanf(event, "write %d", &n); err == nil {
			writes++
			largest = max(largest, n)
		}
	}
	perAnswer := len(output) / count
	if writes > count/10 || largest*perAnswer > 2*writeBufferFull {
		t.Errorf("%d writes, the largest of %d answers: they neither gather nor leave one by one", writes, largest)
	}
}

// A small body is copied into the buffer of its head and sent with the head. A large one is sent without a copy, by writev if the
// connection supports it. A large slice given to BytesNoCopy is never copied.
func TestLargeBodiesAreNotCopied(t *testing.T) {
	for _, size := range []int{copiedBody, copiedBody + 1, maxWrite, maxWrite + 1, 3*maxWrite + 5} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte('a' + i%26)
		}
		want := []string{"read", "/1", "write 1", fmt.Sprint("write body itself ", min(size, maxWrite))}
		if size <= copiedBody {
			want = []string{"read", "/1", "write 1"}
		}
		for rest := size - maxWrite; rest > 0; rest -= maxWrite {
			want = append(want, "write 0")
		}
		script := &answerScript{input: []string{answerRequests("/1")}, direct: body}
		answerScripted(script, 0, func(c *Ctx, _ func(string)) error { return c.BytesNoCopy(200, "text/x", body) })
		if got := script.events[:len(script.events)-2]; !slices.Equal(got, want) {
			t.Errorf("%d bytes went %q, want %q", size, got, want)
		}
		_, got, _ := strings.Cut(script.output.String(), "\r\n\r\n")
		if got != string(body) {
			t.Errorf("%d bytes came as %d, or others", size, len(got))
		}
	}
}

// repeatingLayer writes each piece that it gets several times.
type repeatingLayer struct {
	io.Writer
	times int
}

func (l repeatingLayer) Write(p []byte) (int, error) {
	for range l.times {
		if _, err := l.Writer.Write(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (repeatingLayer) Close() error { return nil }

// A large piece from a layer is sent at once, and the end of its chunk with the next piece.
func TestLargePiecesOfALayer(t *testing.T) {
	const pieces = 5
	script := &answerScript{input: []string{answerRequests("/1")}}
	answerScripted(script, 0, func(c *Ctx, _ func(string)) error {
		c.Response.WrapBody(func(_ *Ctx, body io.Writer, _ int64) io.WriteCloser { return repeatingLayer{body, pieces} })
		_, err := c.Stream().Write(make([]byte, copiedBody+1))
		return err
	})
	// The head is sent alone. Since this connection has no writev, two writes follow for each piece. After the last piece, one more write ends
	// its chunk, and the last write ends the body.
	want := []string{"read", "/1", "write 1"}
	for range 2*pieces + 2 {
		want = append(want, "write 0")
	}
	if got := script.events[:len(script.events)-2]; !slices.Equal(got, want) {
		t.Errorf("it went %q, want %q", got, want)
	}
}

// answerSender is a connection that sends files itself, as a TCP socket does.
type answerSender struct{ *answerScript }

func (c answerSender) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return 0, fmt.Errorf("a %T, of which no socket knows how to send it", r)
	}
	if _, ok := limited.R.(*os.File); !ok {
		return 0, fmt.Errorf("a %T, of which no socket knows how to send it", limited.R)
	}
	c.note(fmt.Sprint("send ", limited.N))
	return io.Copy(&c.output, r)
}

// A file is passed to the connection's ReadFrom in the form for which net.TCPConn uses sendfile, piece by piece, after the head. A small
// file is read, and sent with the head.
func TestFileBySendfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.txt")
	for size, want := range map[int]string{
		10:                    "read /1 write 1 end close",
		copiedBody - 1:        "read /1 write 1 end close",
		copiedBody + 1:        fmt.Sprintf("read /1 write 1 send %d end close", copiedBody+1),
		maxWrite + 1:          fmt.Sprintf("read /1 write 1 send %d end close", maxWrite+1),
		2*maxSendfile + 1:     fmt.Sprintf("read /1 write 1 send %d send %d send 1 end close", maxSendfile, maxSendfile),
		2*maxSendfile + 1<<10: fmt.Sprintf("read /1 write 1 send %d send %d send 1024 end close", maxSendfile, maxSendfile),
	} {
		content := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		script := &answerScript{input: []string{answerRequests("/1")}}
		answerServeScript(answerSender{script}, script, 0, func(c *Ctx, _ func(string)) error { return c.File(path) })
		if got := strings.Join(script.events, " "); got != want {
			t.Errorf("%d bytes: it went %q, want %q", size, got, want)
		}
		if _, body, _ := strings.Cut(script.output.String(), "\r\n\r\n"); body != content {
			t.Errorf("%d bytes came as %d, or others", size, len(body))
		}
	}
}

// "If the file doesn't exist or isn't a regular file, the error is an HTTPError with status 404. If the server has no permission to read
// the file, the status is 403."
func TestFileErrors(t *testing.T) {
	for err, want := range map[error]int{
		fs.ErrNotExist:                      404,
		&fs.PathError{Err: fs.ErrNotExist}:  404,
		&fs.PathError{Err: syscall.ENOENT}:  404,
		&fs.PathError{Err: syscall.ENOTDIR}: 404,
		fs.ErrPermission:                    403,
		&fs.PathError{Err: syscall.EACCES}:  403,
		&fs.PathError{Err: syscall.EMFILE}:  500,
	} {
		if got := statusOf(fileError(err)); got.Status != want || got.Detail != "" {
			t.Errorf("%v: %d %q, want %d without a detail", err, got.Status, got.Detail, want)
		}
	}
}

// Bytes and SetBody copy the slice that they are given: the handler may use it again.
func TestBodiesAreCopied(t *testing.T) {
	for _, size := range []int{10, 2 * copiedBody} {
		body := []byte(strings.Repeat("x", size))
		script := &answerScript{input: []string{answerRequests("/1")}}
		answerScripted(script, 0, func(c *Ctx, _ func(string)) error {
			err := c.Bytes(200, "text/x", body)
			clear(body)
			return err
		})
		if _, got, _ := strings.Cut(script.output.String(), "\r\n\r\n"); got != strings.Repeat("x", size) {
			t.Errorf("%d bytes came as %.20q", size, got)
		}
	}
}

// The client's Accept decides between problem details in JSON and text, by RFC 9110, section 12.5.1.
func TestPrefersJSON(t *testing.T) {
	for _, test := range []struct {
		rule   string
		accept string // one field per line; "" for none
		want   bool
	}{
		{"without Accept any type will do: text", "", false},
		{"an empty Accept is no preference", " ", false},
		{"*/* is no preference", "*/*", false},
		{"JSON alone", "application/json", true},
		{"problem details alone", "application/problem+json", true},
		{"types are case-insensitive", "Application/JSON", true},
		{"a subtype's range", "application/*", true},
		{"text alone", "text/plain", false},
		{"another text", "text/html", false},
		{"both alike", "application/json, text/plain", false},
		{"by weight", "application/json;q=0.9, text/plain;q=0.8", true},
		{"by weight", "application/json;q=0.8, text/plain;q=0.9", false},
		{"three digits of weight", "application/json;q=0.801, text/plain;q=0.8", true},
		{"the default weight is 1", "text/plain;q=0.999, application/json", true},
		{"a weight's name is case-insensitive", "text/plain;Q=0.5, application/json;Q=0.6", true},
		{"white space around the semicolon", "text/plain ; q=0.5, application/json\t;\tq=0.6", true},
		{"q=0 is not acceptable", "application/json;q=0, text/plain;q=0.001", false},
		{"q=0 is not acceptable", "application/json;q=0", false},
		{"the more specific range goes first", "application/json;q=0.5, */*", false},
		{"the more specific range goes first", "application/*;q=0.5, text/*;q=0.6", false},
		{"the more specific range goes first, whatever its place", "text/plain;q=0.1, text/*, application/*;q=0.2", true},
		{"the more specific range goes first, whatever its place", "text/*, text/plain;q=0.1, application/*;q=0.2", true},
		{"*/* is for what nothing else matches", "*/*;q=0.3, text/plain;q=0.2", true},
		{"*/* is for what nothing else matches", "*/*;q=0.1, text/plain;q=0.2", false},
		{"of two for JSON the better", "application/json;q=0.1, application/problem+json;q=0.9, text/plain;q=0.5", true},
		{"other types don't matter", "text/html, application/xml;q=0.9, image/*", false},
		{"a browser gets text", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", false},
		{"other parameters don't matter", "application/json;charset=utf-8;q=0.6, text/plain;format=flowed;q=0.5", true},
		{"a list over two fields", "text/plain;q=0.5\napplication/json", true},
		{"empty elements", ", ,application/json,,", true},
		{"a malformed weight counts as 0", "application/json;q=x, text/plain;q=0.1", false},
		{"a malformed weight counts as 0", "application/json;q=, text/plain;q=0.1", false},
		{"a weight over 1 is malformed", "application/json;q=2, text/plain;q=0.1", false},
		{"a negative weight is malformed", "application/json;q=-1, text/plain;q=0.1", false},
		{"a weight is a number", "text/plain;q=NaN, application/json;q=0.1", true},
		{"a weight is a number", "text/plain;q=inf, application/json;q=0.1", true},
		{"not what merely begins like a type", "application/jsonx, text/plain;q=0.1", false},
		{"not what merely begins like a type", "application, text/plain;q=0.1", false},
		{"*/json is no range", "*/json, text/plain;q=0.1", false},
	} {
		var h Header
		if test.accept != "" {
			for value := range strings.SplitSeq(test.accept, "\n") {
				h.Add("accept", value)
			}
		}
		if got := prefersJSON(&h, false); got != test.want {
			t.Errorf("%s: %q gives %t", test.rule, test.accept, got)
		}
	}
}
