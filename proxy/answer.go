package proxy

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// answer is the ResponseWriter through which ReverseProxy sends an upstream's answer. At first its header has the fields that
// middleware has set.
type answer struct {
	http.ResponseWriter
	proxy   *Proxy
	request *http.Request // the client's
}

// Unwrap returns the wrapped ResponseWriter, for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It removes hop-by-hop fields from interim answers, because ReverseProxy passes
// these on with all their fields.
func (a *answer) WriteHeader(status int) {
	if status < 200 {
		removeHopByHop(a.Header())
	}
	a.ResponseWriter.WriteHeader(status)
}

// removeHopByHop removes the fields that are about the connection to the upstream (RFC 9110, section 7.6.1).
func removeHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range [...]string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade"} {
		delete(h, name)
	}
}

// modify is ReverseProxy's ModifyResponse. Afterwards ReverseProxy adds the fields of r to the header, so modify first deletes
// the middleware's fields that the upstream's fields replace.
func (a *answer) modify(r *http.Response) error {
	if r.StatusCode < 100 || r.StatusCode > 599 { // RFC 9110, section 15: other statuses are invalid
		return fmt.Errorf("proxy: the upstream's status is %d", r.StatusCode)
	}
	if modify := a.proxy.options.ModifyResponse; modify != nil {
		if err := callModify(modify, r); err != nil {
			return err
		}
	}
	if r.StatusCode == 101 {
		if !switched(r) {
			return errSwitched // ReverseProxy would refuse the answer, too, but without closing it
		}
		go a.proxy.endUpgraded(a.request.Context(), r.Body)
	}
	own, cors := a.Header(), false
	if len(own) == 0 {
		return nil
	}
	for name := range r.Header {
		if cors = cors || isCORS(name); !slices.Contains(fromBoth[:], name) {
			delete(own, name)
		}
	}
	for name := range own {
		if cors && isCORS(name) {
			delete(own, name)
		}
	}
	return nil
}

// callModify calls Options.ModifyResponse. After an error, ReverseProxy closes the answer. After a panic it doesn't, and so callModify does.
func callModify(modify func(*http.Response) error, r *http.Response) error {
	returned := false
	defer func() {
		if !returned {
			r.Body.Close()
		}
	}()
	err := modify(r)
	returned = true
	return err
}

// fromBoth are the fields that are sent with both the middleware's values and the upstream's.
var fromBoth = [...]string{"Set-Cookie", "Vary", "Link", "Server-Timing", "Via"}

func isCORS(name string) bool { return strings.HasPrefix(name, "Access-Control-") }
