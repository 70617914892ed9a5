package http1

import (
	"strconv"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// Head is the part of an answer's head that the server determines. The handler's fields are passed to Append.
type Head struct {
	Status int
	Length int64 // length of the body in bytes; if it is negative, there is no Content-Length
	// Chunked says that the body is chunked, and that the fields of Trailer follow it. Then Length is ignored.
	Chunked bool
	Trailer *field.List // nil: none
	Close   bool        // the connection ends after the answer
	// KeepAlive tells an HTTP/1.0 client that the connection stays open, as it has requested.
	KeepAlive bool
	// Server and Date are complete field lines with CRLF. A handler's field of the same name replaces the line.
	Server, Date []byte
}

// Append renders the head of an answer with the handler's fields. It omits the handler's framing fields, since the server renders its own.
// If the handler's Date has an empty value, the head has no Date.
func (h *Head) Append(dst []byte, fields *field.List) []byte {
	dst = AppendStatusLine(dst, h.Status)
	server, date := h.Server, h.Date
	for i := range fields.Len() {
		id := fields.ID(i)
		if !id.InFinal() {
			continue
		}
		switch id {
		case field.Connection:
			if value := fields.Value(i); h.Close && (syntax.ListHasToken(value, "close") || syntax.ListHasToken(value, "keep-alive")) {
				continue
			}
		case field.Server:
			server = nil
		case field.Date:
			if date = nil; len(fields.Value(i)) == 0 {
				continue
			}
		}
		dst = fields.AppendLine(dst, i)
	}
	dst = append(append(dst, server...), date...)
	switch {
	case h.Chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		if h.Trailer != nil {
			dst = appendTrailerNames(dst, h.Trailer)
		}
	case h.Length >= 0:
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, h.Length, 10)
		dst = append(dst, "\r\n"...)
	}
	if h.Close {
		dst = append(dst, "Connection: close\r\n"...)
	} else if h.KeepAlive {
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

func appendTrailerNames(dst []byte, trailer *field.List) []byte {
	separator := "Trailer: "
	for i := range trailer.Len() {
		if !trailer.ID(i).InTrailer() {
			continue
		}
		dst = append(dst, separator...)
		dst = append(dst, trailer.Name(i)...)
		separator = ", "
	}
	if separator == ", " {
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// Continue is the interim answer that asks for the request's body.
const Continue = "HTTP/1.1 100 Continue\r\n\r\n"

// AppendInterim renders an answer with a status of 1xx. It omits the fields that such an answer must not have. A 101 may also have Connection
// and Content-Type, since no final answer follows it.
func AppendInterim(dst []byte, status int, fields *field.List) []byte {
	dst = AppendStatusLine(dst, status)
	for i := range fields.Len() {
		if InInterim(status, fields.ID(i)) {
			dst = fields.AppendLine(dst, i)
		}
	}
	return append(dst, "\r\n"...)
}

// InInterim reports whether an interim answer with the status may have the field.
func InInterim(status int, id field.ID) bool {
	return id.InInterim() || status == 101 && (id == field.Connection || id == field.ContentType)
}

// ChunkOverhead is an upper bound for the bytes that framing adds to a chunk's content.
const ChunkOverhead = 24

// AppendChunk renders b as a chunk. b must not be empty, since an empty chunk is the last one.
func AppendChunk(dst, b []byte) []byte {
	return AppendChunkEnd(append(AppendChunkSize(dst, len(b)), b...))
}

// AppendChunkSize renders the line with the size of a chunk, which precedes the content.
func AppendChunkSize(dst []byte, size int) []byte {
	dst = strconv.AppendUint(dst, uint64(size), 16)
	return append(dst, "\r\n"...)
}

// AppendChunkEnd renders the CRLF after the content of a chunk.
func AppendChunkEnd(dst []byte) []byte { return append(dst, "\r\n"...) }

// LastChunk ends a chunked body without a trailer section.
const LastChunk = "0\r\n\r\n"

// AppendLastChunk renders the end of a chunked body, with those fields of trailer that are allowed in a trailer section.
func AppendLastChunk(dst []byte, trailer *field.List) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailer.Len() {
		if trailer.ID(i).InTrailer() {
			dst = trailer.AppendLine(dst, i)
		}
	}
	return append(dst, "\r\n"...)
}
