package formdata

import (
	"bufio"
	"bytes"
	"mime/multipart"
	"net/textproto"
)

// fileFinder finds out which bytes of a form are the content of files. It never takes another part's content for a file's, or else a client
// could send values that nobody counts. So it only knows the common form: all lines of delimiters and headers end in CR LF, and a header has at
// most maxHead bytes. At anything else it gives up: it finds no files in the rest of the form.
type fileFinder struct {
	delimiter []byte // LF and "--" and the boundary
	// unread holds the bytes that are still to be looked at: the header of a part so far, or what may be the beginning of a delimiter.
	unread []byte
	inHead bool // unread begins with the line end after a delimiter
	inFile bool // the content of a file has begun
	lost   bool // fileFinder has given up
	found  int64
	head   *bufio.Reader // reads headers; nil before the first one
}

const maxHead = 4 << 10

func newFileFinder(boundary string) *fileFinder {
	// The first delimiter may be at the very start of the body.
	return &fileFinder{delimiter: []byte("\n--" + boundary), unread: []byte("\r\n")}
}

// scan looks at the next bytes of the body.
func (f *fileFinder) scan(b []byte) {
	if f.lost {
		return
	}
	f.unread = append(f.unread, b...)
	rest := f.unread
	for !f.lost {
		if f.inHead {
			end := bytes.Index(rest, []byte("\r\n\r\n"))
			if end < 0 {
				f.lost = len(rest) > maxHead
				break
			}
			f.readHead(rest[2 : end+4])
			rest = rest[end+2:] // a delimiter may follow the header at once
			f.inHead = false
		}
		i := bytes.Index(rest, f.delimiter)
		at := i + len(f.delimiter)
		if i < 0 {
			rest = f.pass(rest, len(rest)-len(f.delimiter))
			break
		} else if at+2 > len(rest) {
			rest = f.pass(rest, i-1)
			break
		}
		f.lost = !bytes.HasSuffix(rest[:i], []byte("\r")) || !bytes.HasPrefix(rest[at:], []byte("\r\n"))
		f.pass(rest, i)
		rest = rest[at:]
		f.inHead, f.inFile = true, false
	}
	f.unread = append(f.unread[:0], rest...)
}

// pass counts the next n bytes of content, and returns what follows them.
func (f *fileFinder) pass(content []byte, n int) []byte {
	n = max(n, 0)
	if f.inFile {
		f.found += int64(n)
	}
	return content[n:]
}

// readHead decides whether a part is a file, as mime/multipart does. It gives up if the header ends before head does, or is malformed.
func (f *fileFinder) readHead(head []byte) {
	source := bytes.NewReader(head)
	if f.head == nil {
		f.head = bufio.NewReaderSize(source, 512)
	}
	f.head.Reset(source)
	header, err := textproto.NewReader(f.head).ReadMIMEHeader()
	f.lost = err != nil || f.head.Buffered()+source.Len() > 0
	f.inFile = !f.lost && (&multipart.Part{Header: header}).FileName() != ""
}
