package syntax

import (
	"encoding/json"
	"log/slog"
	"unicode/utf8"
)

// The maximum length of a text from a client in a log record, in bytes after a JSON log has escaped it.
const (
	MaxLogged       = 1024 // of a path, a query, a Referer or an error
	MaxLoggedAgent  = 512
	MaxLoggedHost   = 256 // longer than any host name
	MaxLoggedMethod = 32
)

// escapedSize is the maximum number of bytes that a log writes for one byte of text. An escaped byte in JSON has six: \u00ff.
const escapedSize = 6

// cut marks a text that was cut.
const cut = "..."

// Excerpt returns the beginning of a text from a client for a log record. The excerpt has at most limit bytes after the log has escaped it. If it
// isn't the whole text, "..." follows. With HTTP/2 a single byte can repeat a long field, so limits on the bytes received don't bound a record.
func Excerpt(text string, limit int) string {
	if n := excerptLength(text, limit); n < len(text) {
		return text[:n] + cut
	}
	return text
}

// LoggedError returns an error of the program in a form for a log record. If the text is long, it returns an excerpt, since the text may contain data
// from a client. If the error has a JSON form, it returns the text, since that form is for clients and may lack the cause. It returns other errors
// unchanged, since the program's slog.Handler may handle their types.
func LoggedError(err error) any {
	text := err.Error()
	if excerpt := Excerpt(text, MaxLogged); excerpt != text {
		return excerpt
	}
	_, forClients := err.(json.Marshaler)
	if _, forLogs := err.(slog.LogValuer); forClients && !forLogs {
		return text
	}
	return err
}

// AppendExcerpt appends Excerpt's result.
func AppendExcerpt[S []byte | string](dst []byte, text S, limit int) []byte {
	if len(text) <= limit/escapedSize {
		return append(dst, text...)
	}
	start := len(dst)
	dst = append(dst, text[:min(len(text), limit)]...)
	if n := excerptLength(dst[start:], limit); n < len(text) {
		dst = append(dst[:start+n], cut...)
	}
	return dst
}

func excerptLength[S []byte | string](text S, limit int) int {
	if len(text) <= limit/escapedSize {
		return len(text)
	}
	for i, size := 0, 0; i < len(text); {
		n, taken := 1, 1
		switch c := text[i]; {
		case c == '"' || c == '\\':
			taken = 2
		case c < ' ' || c == 0x7f:
			taken = escapedSize
		case c >= utf8.RuneSelf:
			var r rune
			r, n = utf8.DecodeRuneInString(string(text[i:min(len(text), i+utf8.UTFMax)]))
			if taken = n; n == 1 || r == '\u2028' || r == '\u2029' {
				taken = escapedSize
			}
		}
		if size += taken; size > limit {
			return i
		}
		i += n
	}
	return len(text)
}
