package http3filo

import (
	"fmt"

	"github.com/filohttp/filo"
)

// AltSvc returns middleware that tells HTTP/1.1 and HTTP/2 clients over TLS that the same host serves HTTP/3 on this UDP port. It sets the field
// Alt-Svc (RFC 7838), which clients remember for a day. Once the server shuts down, the field's value is "clear", so that clients come back over
// TCP. Use AltSvc for all handlers, and only if Serve serves that port.
func AltSvc(port int) filo.Middleware {
	if port <= 0 || port > 65535 {
		panic(fmt.Sprintf("http3filo: AltSvc with the port %d", port))
	}
	offer := filo.NewField("Alt-Svc", fmt.Sprintf(`h3=":%d"; ma=86400`, port))
	none := filo.NewField("Alt-Svc", "clear")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if c.TLS() != nil {
				c.Response.Header.SetField(&offer)
				select {
				case <-c.ShuttingDown():
					c.Response.Header.SetField(&none)
				default:
				}
			}
			return next(c)
		}
	}
}
