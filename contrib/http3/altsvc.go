package http3filo

import (
	"fmt"

	"github.com/filohttp/filo"
)

// AltSvc returns middleware that tells clients of HTTP/1.1 and HTTP/2 over TLS that the same host serves HTTP/3 on this UDP port, by the field
// Alt-Svc (RFC 7838). Clients remember it for a day. Once the server shuts down, the field says "clear", so that they come back over TCP.
// Use it around all handlers, and only where Serve serves that port.
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
