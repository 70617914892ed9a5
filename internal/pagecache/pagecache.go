// Package pagecache answers what the system knows of an open file without waiting for a disk or a network. Its calls, and a sendfile of
// what Has has seen, are made without telling the runtime's scheduler. That saves waking its sysmon, which costs more than fstat itself.
// Where a call might wait, it would hold up a processor, and with it the garbage collector.
//
// It is for Linux 6.5 and later on amd64 and arm64. Elsewhere no file is a File.
package pagecache

import "os"

// File is an open file on a local file system. It may be used for as long as the file that it was made of is open.
type File struct{ fd int }

// State is what fstat tells of a file. Times are in nanoseconds since 1970.
type State struct {
	Size              int64
	Modified, Changed int64
	Device, Inode     uint64
}

// Of returns the File of a file, nil if it isn't on a local file system or the system can't tell what of a file is in memory.
func Of(file *os.File) *File {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	var f *File
	raw.Control(func(fd uintptr) {
		if isLocal(int(fd)) {
			f = &File{int(fd)}
		}
	})
	if f == nil || !f.known() {
		return nil
	}
	return f
}
