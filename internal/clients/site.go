package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// sizes are the sizes of the answers, in bytes, by path.
var sizes = map[string]int{"/small": 13, "/medium": 64 << 10, "/large": 1 << 20}

var text = strings.Repeat("0123456789abcdef", 64<<10)

// site answers the clients' requests:
//
//	/small, /medium, /large  13 bytes, 64 KB, 1 MB
//	/slow                    13 bytes after 20 ms
//	/body                    the length of the request's body
//	/events                  ten events, one every 5 ms
//	/early                   401 without reading the body
func site(c *filo.Ctx) error {
	if size, ok := sizes[c.Path()]; ok {
		return c.Text(200, text[:size])
	}
	switch c.Path() {
	case "/slow":
		time.Sleep(20 * time.Millisecond)
		return c.Text(200, text[:sizes["/small"]])
	case "/body":
		n, err := io.Copy(io.Discard, c.BodyReader())
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(n))
	case "/events":
		c.Response.Header.Set("Content-Type", "text/event-stream")
		s := c.Stream()
		for i := range 10 {
			fmt.Fprintf(s, "data: %d\n\n", i)
			if err := s.Flush(); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	case "/early":
		return filo.Error(401, "")
	}
	return filo.Error(404, "")
}
