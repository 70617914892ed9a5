package grpcfilo

import (
	"encoding/base64"
	"io"
	"strings"

	"github.com/filohttp/filo"
)

// format describes the encoding of a call's messages. The request's content type determines it.
type format struct {
	contentType *filo.Field // nil if the subtype is rare
	name        string      // the content type without its subtype
	subtype     string      // "" or the codec's name
	web         bool        // gRPC-Web: the trailer is a part of the body
	text        bool        // the body is base64
}

// formats are the known content types, without subtypes.
var formats = []format{
	{name: "application/grpc-web-text", web: true, text: true},
	{name: "application/grpc-web", web: true},
	{name: "application/grpc"},
}

// usual are the formats with the subtypes that clients use.
var usual = func() (all []format) {
	for _, f := range formats {
		for _, f.subtype = range []string{"", "proto"} {
			field := filo.NewField("Content-Type", f.fullName())
			f.contentType = &field
			all = append(all, f)
		}
	}
	return all
}()

// fullName returns the content type.
func (f *format) fullName() string {
	if f.subtype == "" {
		return f.name
	}
	return f.name + "+" + f.subtype
}

// formatOf returns the format of a content type.
func formatOf(contentType []byte) (*format, bool) {
	for i := range usual {
		if string(contentType) == usual[i].contentType.Value() {
			return &usual[i], true
		}
	}
	name, _, _ := strings.Cut(strings.ToLower(string(contentType)), ";")
	name, subtype, _ := strings.Cut(strings.TrimSpace(name), "+")
	for _, f := range formats {
		if f.name == name {
			f.subtype = subtype
			return &f, true
		}
	}
	return nil, false
}

func (f *format) setContentType(h *filo.Header) {
	if f.contentType != nil {
		h.SetField(f.contentType)
	} else {
		h.Set("Content-Type", f.fullName())
	}
}

// wireSize returns how many bytes a body of this size, with a single message, takes on the wire. In the text format that is its length in base64.
func (f *format) wireSize(size int) int64 {
	if !f.text {
		return int64(size)
	}
	return int64(base64.StdEncoding.EncodedLen(size))
}

// bodyLocked returns the body of the answer.
func (k *call) bodyLocked() io.Writer {
	if k.stream != nil {
		return k.stream
	}
	return &k.c.Response
}

// writeLocked writes a message or, in gRPC-Web, the trailer.
func (k *call) writeLocked(w io.Writer, m *message) error {
	if k.format.text {
		frame := append(m.appendPrefix(make([]byte, 0, prefixSize+m.wireSize())), m.plain...)
		for _, b := range m.wire {
			frame = append(frame, b.ReadOnlyData()...)
		}
		_, err := io.WriteString(w, base64.StdEncoding.EncodeToString(frame))
		return err
	}
	if m.frame != nil {
		_, err := w.Write(*m.frame)
		return err
	}
	if _, err := w.Write(m.appendPrefix(k.prefix[:0])); err != nil {
		return err
	}
	for _, b := range m.wire {
		if _, err := w.Write(b.ReadOnlyData()); err != nil {
			return err
		}
	}
	return nil
}

// textReader decodes base64 that may contain padding in its middle, since clients encode each message separately.
type textReader struct {
	source  io.Reader
	encoded [512]byte
	n       int // how many bytes of an incomplete group of four are in encoded
	decoded []byte
	room    [384]byte
}

// Read implements io.Reader.
func (r *textReader) Read(p []byte) (int, error) {
	for len(r.decoded) == 0 {
		n, err := r.source.Read(r.encoded[r.n:])
		r.n += n
		whole := r.n / 4 * 4
		if err := r.decode(r.encoded[:whole]); err != nil {
			return 0, err
		}
		r.n = copy(r.encoded[:], r.encoded[whole:r.n])
		if err == io.EOF && r.n > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && len(r.decoded) == 0 {
			return 0, err
		}
	}
	n := copy(p, r.decoded)
	r.decoded = r.decoded[n:]
	return n, nil
}

// decode decodes groups of four characters.
func (r *textReader) decode(encoded []byte) error {
	decoded := 0
	for ; len(encoded) > 0; encoded = encoded[4:] {
		n, err := base64.StdEncoding.Decode(r.room[decoded:], encoded[:4])
		if err != nil {
			return err
		}
		decoded += n
	}
	r.decoded = r.room[:decoded]
	return nil
}
