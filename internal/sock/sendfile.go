package sock

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// FileSender sends a file on a connection.
type FileSender interface {
	// SendFile sends at most size bytes from the offset on: nothing, and no error, if the file ends there; less, and why, if it
	// failed. ErrNoSendfile says that this file can't be sent so, and nothing was.
	SendFile(offset int64, size int) (sent int, err error)
}

// ErrNoSendfile is the error of a FileSender for a file that the system can't send by itself.
var ErrNoSendfile = errors.New("filo: the system can't send such a file by itself")

// NewFileSender returns what sends a file on a connection, nil if nothing does. The file's position stays where it is, but if whole
// is set: that is the file too, and its position may be moved.
func NewFileSender(conn net.Conn, file syscall.Conn, whole io.ReadSeeker) FileSender {
	if s := newSendfile(conn, file); s != nil {
		return s
	}
	if target, ok := conn.(io.ReaderFrom); ok && whole != nil {
		return &readFromSender{target, whole}
	}
	return nil
}

// readFromSender leaves it to the connection's ReadFrom, which reads a file from its own position on.
type readFromSender struct {
	target io.ReaderFrom
	file   io.ReadSeeker
}

// SendFile implements FileSender.
func (s *readFromSender) SendFile(offset int64, size int) (int, error) {
	// ReadFrom may have read what it then couldn't write, before a time-out.
	if _, err := s.file.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := s.target.ReadFrom(&io.LimitedReader{R: s.file, N: int64(size)})
	return int(n), err
}
