package row

import "fmt"

// Request is one that servers are asked.
type Request struct {
	Method string // GET if it is empty
	Target string
	Header []string // fields, as in "Accept: */*"
	Body   []byte   // nil is none
	Want   Want
}

// Want is the answer to a request, which has the status 200.
type Want struct {
	Body   []byte // nil is any
	Length int64  // of a body that isn't compared; 0 is any
}

// Raw is the request as it is sent. With last it asks for the connection to be closed.
func (r *Request) Raw(host string, last bool) []byte {
	method := r.Method
	if method == "" {
		method = "GET"
	}
	raw := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, r.Target, host)
	for _, field := range r.Header {
		raw = append(raw, field+"\r\n"...)
	}
	if r.Body != nil {
		raw = fmt.Appendf(raw, "Content-Length: %d\r\n", len(r.Body))
	}
	if last {
		raw = append(raw, "Connection: close\r\n"...)
	}
	return append(append(raw, "\r\n"...), r.Body...)
}
