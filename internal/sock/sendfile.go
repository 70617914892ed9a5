package sock

import (
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/filohttp/filo/internal/localfile"
)

// FileSender sends a file on a connection.
type FileSender interface {
	// SendFile sends at most size bytes of the file from offset on. If the file ends at offset, it sends nothing and returns no error. If it
	// fails, it may have sent a part. ErrNoSendfile means that this file can't be sent in this way, and that nothing was sent.
	SendFile(offset int64, size int) (sent int, err error)
}

// NowSender is a FileSender that can also send without waiting.
type NowSender interface {
	FileSender
	// SendNow is like SendFile, but never waits. socket is the connection's descriptor. If the socket has room for only a part, or for
	// nothing, the error is syscall.EAGAIN.
	SendNow(socket uintptr, offset int64, size int) (sent int, err error)
}

// ErrNoSendfile is the error of a FileSender for a file that the system can't send without copying it through the process.
var ErrNoSendfile = errors.New("filo: the system can't send such a file by itself")

// NewFileSender returns a FileSender for a file on a connection, or nil if the connection can't send the file by itself. local is the same
// file if it is a local one, and otherwise nil. whole is the same file for senders that need to change the file's position, or nil if the
// position mustn't change.
func NewFileSender(conn net.Conn, file syscall.Conn, local *localfile.File, whole io.ReadSeeker) FileSender {
	if s := newSendfile(conn, file, local); s != nil {
		return s
	}
	if target, ok := conn.(io.ReaderFrom); ok && whole != nil {
		return &readFromSender{target, whole}
	}
	return nil
}

// readFromSender sends a file with the connection's ReadFrom, which reads from the file's position.
type readFromSender struct {
	target io.ReaderFrom
	file   io.ReadSeeker
}

// SendFile implements FileSender.
func (s *readFromSender) SendFile(offset int64, size int) (int, error) {
	// Set the position each time, since a ReadFrom that has timed out may have read more than it has written.
	if _, err := s.file.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := s.target.ReadFrom(&io.LimitedReader{R: s.file, N: int64(size)})
	return int(n), err
}
