package formdata

import (
	"io"
	"mime/multipart"
)

// Counter reads the body of a form. As bytes arrive, Counter reserves room for those that the form may keep in memory. Until the form is complete,
// Counter can't tell files, which may go to a temporary file, from values. So until then it counts at most Most bytes.
type Counter struct {
	Body io.Reader
	Most int64 // how many bytes of files the form may keep in memory
	Free int64 // a form that keeps at most this many bytes in memory reserves no room
	Take func(n int64) error
	Give func(n int64)

	read    int64
	counted int64
}

// Read implements io.Reader.
func (c *Counter) Read(p []byte) (int, error) {
	n, err := c.Body.Read(p)
	if c.read += int64(n); c.read > c.counted+c.Free && c.counted < c.Most {
		if full := c.count(min(c.read, c.Most)); full != nil {
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

// CountForm counts what a complete form keeps in memory.
func (c *Counter) CountForm(form *multipart.Form) error {
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
