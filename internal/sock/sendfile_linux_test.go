package sock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/filohttp/filo/internal/localfile"
)

func testFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// onlyReadFrom is a connection that has a ReadFrom, but isn't a socket itself.
type onlyReadFrom struct{ net.Conn }

func (c onlyReadFrom) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}

// A part of a file is sent from the given offset, at most up to the end of the file. With sendfile, the file's position doesn't change.
func TestFileSender(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // more than a socket's buffers hold, and than maxRaw
	for _, name := range []string{"sendfile", "sendfile of a local file", "ReadFrom"} {
		t.Run(name, func(t *testing.T) {
			stub := name == "ReadFrom"
			file := testFile(t, content)
			var local *localfile.File
			if name == "sendfile of a local file" {
				if local = localfile.Of(file); local != nil {
					local.Sent(0, int64(len(content)+1000)) // after that the file counts as being in memory
				}
			}
			client, server := tcpPair(t)
			var conn net.Conn = server
			if stub {
				conn = onlyReadFrom{server}
			}
			sender := NewFileSender(conn, file, local, file)
			received := make(chan []byte)
			go func() {
				b, _ := io.ReadAll(client)
				received <- b
			}()
			for _, part := range [][2]int{{100, maxRaw}, {maxRaw, len(content) - 100}} {
				size := part[1] - part[0]
				if n, err := sender.SendFile(int64(part[0]), size); n != size || err != nil {
					t.Errorf("sent %d of %d, %v", n, size, err)
				}
			}
			if n, err := sender.SendFile(int64(len(content)-100), 1000); n != 100 || err != nil {
				t.Errorf("beyond the end sent %d, %v", n, err)
			}
			if n, err := sender.SendFile(int64(len(content)), 1000); n != 0 || err != nil {
				t.Errorf("at the end sent %d, %v", n, err)
			}
			if at, err := file.Seek(0, io.SeekCurrent); !stub && (at != 0 || err != nil) {
				t.Errorf("the file's position is %d, %v", at, err)
			}
			server.CloseWrite()
			if got := <-received; !bytes.Equal(got, content[100:]) {
				t.Errorf("%d bytes came, want %d, or others", len(got), len(content)-100)
			}
			server.Close()
			if n, err := sender.SendFile(0, 10); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("on a closed connection sent %d, %v", n, err)
			}
		})
	}
}

// Sending fails with ErrNoSendfile, or there is no FileSender, for a file that sendfile can't send or a connection that isn't a socket.
func TestNoFileSender(t *testing.T) {
	_, server := tcpPair(t)
	directory, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if n, err := NewFileSender(server, directory, nil, nil).SendFile(0, 10); n != 0 || !errors.Is(err, ErrNoSendfile) {
		t.Errorf("a directory: %d, %v", n, err)
	}
	file := testFile(t, []byte("content"))
	pipe, other := net.Pipe()
	defer other.Close()
	for name, sender := range map[string]FileSender{
		"a net.Pipe":                             NewFileSender(pipe, file, nil, file),
		"a part, by what moves the position":     NewFileSender(onlyReadFrom{server}, file, nil, nil),
		"a connection that embeds one and hides": NewFileSender(struct{ net.Conn }{server}, file, nil, file),
	} {
		if sender != nil {
			t.Errorf("%s: %T", name, sender)
		}
	}
}
