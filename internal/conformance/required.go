package conformance

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// IsRequired reports whether a server breaks the protocol if a case with this sentence fails with err. It returns true if the sentence says
// MUST, and neither leaves a choice (MAY) nor describes filo's choice. It also returns true if the server has sent something that no server
// may send. It returns false if the only deviation is that the end of the connection delimits the body.
func IsRequired(sentence string, err error) bool {
	if errors.Is(err, errUntilEnd) {
		return false
	}
	return errors.Is(err, ErrMalformed) || strings.Contains(sentence, "MUST") && !strings.Contains(sentence, "MAY") && !strings.Contains(sentence, "filo")
}

// These are the routes that cases need. GetHello is also requested after each case that leaves the connection open.
const (
	GetHello = "GET /hello"
	PostEcho = "POST /echo"
	getPage  = "GET /"
)

// Needs returns the routes that the case needs.
func (c *Case) Needs() []string {
	needs := []string{GetHello}
	if strings.Contains(c.Raw, "/echo") {
		needs = append(needs, PostEcho)
	}
	isPage := func(f Field) bool { return f == pageType }
	if slices.ContainsFunc(c.Want, func(a Answer) bool { return slices.ContainsFunc(a.Header, isPage) }) {
		needs = append(needs, getPage)
	}
	return needs
}

// Lacking returns the routes that a server doesn't have, each with the error that its request got. err is set if the server can't be reached.
func Lacking(dial func() (net.Conn, error), o Options) (lacks map[string]error, err error) {
	conn, err := dial()
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	conn.Close()
	const last = "Host: a\r\nConnection: close\r\n"
	lacks = make(map[string]error)
	for _, c := range []Case{
		{Name: GetHello, Raw: "GET /hello HTTP/1.1\r\n" + last + "\r\n", Want: answers(hello())},
		{Name: PostEcho, Raw: "POST /echo HTTP/1.1\r\n" + last + "Content-Length: 5\r\n\r\nhello", Want: answers(echo("hello"))},
		{Name: getPage, Raw: "GET / HTTP/1.1\r\n" + last + "\r\n", Want: answers(page())},
	} {
		c.Then = ClosesSilently
		r := &runner{Case: c, dial: dial, timeout: o.Timeout, undated: o.Undated}
		if err := r.on("a look at the server", func(s *session) error { return s.play([]string{c.Raw}) }); err != nil {
			lacks[c.Name] = err
		}
	}
	return lacks, nil
}
