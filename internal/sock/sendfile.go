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
	// SendFile sends at most size bytes of the file from offset on. It sends nothing, without an error, if the file ends there; on
	// failure it may have sent less. ErrNoSendfile means that this file can't be sent in this way, and that nothing was sent.
	SendFile(offset int64, size int) (sent int, err error)
}

// NowSender is a FileSender that can also send without waiting.
type NowSender interface {
	FileSender
	// SendNow is SendFile without waiting. socket is the connection's descriptor. If the socket takes only a part, or nothing, the error is
	// syscall.EAGAIN.
	SendNow(socket uintptr, offset int64, size int) (sent int, err error)
}

// ErrNoSendfile is the error of a FileSender whose file the system can't send by itself.
var ErrNoSendfile = errors.New("filo: the system can't send such a file by itself")

// NewFileSender returns a FileSender for a file on a connection, or nil if there is none. local is the same file, nil if it isn't a local
// one. The file's position doesn't change, unless whole is set: whole is the same file, for senders that need to move its position.
func NewFileSender(conn net.Conn, file syscall.Conn, local *localfile.File, whole io.ReadSeeker) FileSender {
	if s := newSendfile(conn, file, local); s != nil {
		return s
	}
	if target, ok := conn.(io.ReaderFrom); ok && whole != nil {
		return &readFromSender{target, whole}
	}
	return nil
}

// readFromSender sends a file by the connection's ReadFrom, which reads from the file's own position.
type readFromSender struct {
	target io.ReaderFrom
	file   io.ReadSeeker
}

// SendFile implements FileSender.
func (s *readFromSender) SendFile(offset int64, size int) (int, error) {
	// Before a timeout ReadFrom may have read more than it could write.
	if _, err := s.file.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := s.target.ReadFrom(&io.LimitedReader{R: s.file, N: int64(size)})
	return int(n), err
}
