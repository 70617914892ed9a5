package formdata

import (
	"io"
	"mime/multipart"
)

// Counter reads the body of a form. As bytes arrive, Counter reserves room for those that the form may keep in memory.
type Counter struct {
	Body io.Reader
	Most int64 // how many bytes of files the form may keep in memory
	Free int64 // a form that keeps at most this many bytes in memory reserves no room
	Take func(n int64) error
	Give func(n int64)

	files   *fileFinder
	read    int64
	counted int64
}

// mostOther is how many bytes the form may keep in memory besides the content of files: a constant of mime/multipart.
const mostOther = 10 << 20

// ReadForm is the function Read for the body that c reads.
func (c *Counter) ReadForm(contentType string, limits Limits) (*multipart.Form, error) {
	boundary, err := boundaryIn(contentType, false)
	if err != nil {
		return nil, err
	}
	c.files = newFileFinder(boundary)
	form, err := readForm(c, boundary, limits)
	if err != nil {
		return nil, err
	}
	if err = c.countForm(form); err != nil {
		_ = form.RemoveAll() // the lack of room is the error, even if the form's file can't be removed
		return nil, err
	}
	return form, nil
}

// Read implements io.Reader.
func (c *Counter) Read(p []byte) (int, error) {
	n, err := c.Body.Read(p)
	c.files.scan(p[:n])
	c.read += int64(n)
	kept := c.read - c.files.found + min(c.files.found, c.Most)
	if kept-c.Most > mostOther {
		kept = c.Most + mostOther
	}
	if kept > c.counted+c.Free {
		if full := c.count(kept); full != nil {
			return 0, full
		}
	}
	return n, err
}

// count sets the number of counted bytes to n.
func (c *Counter) count(n int64) error {
	if n < c.counted {
		c.Give(c.counted - n)
	} else if n > c.counted {
		if err := c.Take(n - c.counted); err != nil {
			return err
		}
	}
	c.counted = n
	return nil
}

// countForm counts what a complete form keeps in memory.
func (c *Counter) countForm(form *multipart.Form) error {
	values, files := int64(0), int64(0)
	for name, list := range form.Value {
		for _, value := range list {
			values += int64(len(name) + len(value))
		}
	}
	for _, list := range form.File {
		for _, file := range list {
			files += file.Size
		}
	}
	kept := values + min(files, c.Most)
	if kept <= c.Free {
		kept = 0
	}
	return c.count(kept)
}
