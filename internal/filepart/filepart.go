// Package filepart finds the file that an io.Reader reads, and the reader's position in it, so that the system can send the rest of the file without
// calling the reader.
package filepart

import (
	"io"
	"io/fs"
	"os"
	"reflect"
	"syscall"

	"github.com/filohttp/filo/internal/localfile"
)

// Part is the part of a file that a reader hasn't read yet.
type Part struct {
	File   File
	Local  *localfile.File // the same file; nil if it isn't known to be on a local file system
	Offset int64           // where the part begins in the file
	Size   int64           // may reach beyond the file's end
	Reader io.ReadSeeker   // the reader itself
	At     int64           // the reader's position
	Whole  Regular         // Reader, if it is the file itself; nil for an io.SectionReader, which must not move the file's position
}

// File has the methods of *os.File that don't depend on the file's position.
type File interface {
	syscall.Conn
	Stat() (fs.FileInfo, error)
}

// Regular is an *os.File, or the wrapper without WriteTo that (*os.File).WriteTo passes to io.Copy.
type Regular interface {
	File
	io.ReadSeeker
}

// section is a reader that can say which part of a file it reads.
type section interface{ FileSection() *io.SectionReader }

// Of returns the part of a file that a reader would read. ok is false if r doesn't read a file, or its position is unknown. A type that embeds an
// *os.File doesn't count as a file, since it may override Read, and sendfile wouldn't call that method.
func Of(r io.Reader) (p Part, ok bool) {
	if section, ok := r.(section); ok {
		if l, ok := r.(interface{ LocalFile() *localfile.File }); ok {
			p.Local = l.LocalFile()
		}
		r = section.FileSection()
	}
	switch r := r.(type) {
	case *io.SectionReader:
		outer, offset, size := r.Outer()
		file, ok := outer.(*os.File)
		if !ok {
			return p, false
		}
		at, err := r.Seek(0, io.SeekCurrent)
		return Part{File: file, Local: p.Local, Offset: offset + at, Size: size - at, Reader: r, At: at}, err == nil
	case Regular:
		// Only *os.File and the wrapper that its WriteTo uses are accepted.
		if _, ok := r.(*os.File); !ok && reflect.TypeOf(r).PkgPath() != "os" {
			return p, false
		}
		at, err := r.Seek(0, io.SeekCurrent)
		return Part{File: r, Offset: at, Size: 1<<63 - 1 - at, Reader: r, At: at, Whole: r}, err == nil
	}
	return p, false
}

// RegularSize returns how many bytes of the part exist; ok is false if the file isn't a regular one.
func (p *Part) RegularSize() (size int64, ok bool) {
	info, err := p.File.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return min(p.Size, max(info.Size()-p.Offset, 0)), true
}
