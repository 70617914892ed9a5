package static

import (
	"mime"
	"path"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// sniffedBytes is how much of a file is read to tell text from other content.
const sniffedBytes = 512

// typeByName returns the media type of a file by its name, "" if no type is known for the name.
func typeByName(name string) string {
	mediaType := mime.TypeByExtension(path.Ext(name))
	if !httpguts.ValidHeaderFieldValue(mediaType) { // the type may come from the system's tables
		return ""
	}
	return mediaType
}

// typeByContent returns the media type of a file that begins with these bytes. It never returns a type that a browser would execute, since
// a file counts as a page only if its name says so.
func typeByContent(b []byte) string {
	whole := len(b) < sniffedBytes
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1:
			if !whole && !utf8.FullRune(b) {
				return "text/plain; charset=utf-8" // the last character was cut
			}
			return "application/octet-stream"
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f' && r != '\x1b', r == 0x7f:
			return "application/octet-stream"
		}
		b = b[size:]
	}
	return "text/plain; charset=utf-8"
}
