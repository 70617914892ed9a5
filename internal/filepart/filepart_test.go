package filepart

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

type wrapped struct{ *os.File }

// Of finds the unread part of a reader from the reader's position on, and only if the reader reads the file itself.
func TestOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.Seek(3, io.SeekStart)
	section := io.NewSectionReader(file, 2, 100)
	section.Seek(4, io.SeekStart)
	inner := io.NewSectionReader(file, 1, 3)
	for name, test := range map[string]struct {
		r            io.Reader
		ok           bool
		offset, size int64
	}{
		"a file":                   {file, true, 3, 7},
		"a section":                {section, true, 6, 4},
		"a section within":         {inner, true, 1, 3},
		"a section of other bytes": {io.NewSectionReader(bytes.NewReader(nil), 0, 1), false, 0, 0},
		"a type with a file in it": {wrapped{file}, false, 0, 0},
		"another reader":           {new(bytes.Buffer), false, 0, 0},
	} {
		part, ok := Of(test.r)
		if ok != test.ok {
			t.Errorf("%s: %t", name, ok)
			continue
		}
		if !ok {
			continue
		}
		if size, regular := part.RegularSize(); !regular || part.Offset != test.offset || size != test.size || (part.Whole != nil) != (test.r == file) {
			t.Errorf("%s: %d bytes at %d, whole %v", name, size, part.Offset, part.Whole)
		}
	}
}
