package recipes

import (
	"log/slog"
	"strings"

	"github.com/filohttp/filo"
)

// maxAuditBytes is how much of a body the audit log keeps.
const maxAuditBytes = 4 << 10

// Audit logs which user sent which body, and the answer. It logs only JSON bodies, and only the first 4 KB of each. Use it for the routes that need
// it, inside the middleware that authenticates. Don't use it for routes that receive passwords.
//
// Audit reads a body before the handler does. The handler can still read the whole body with c.Body, c.BodyReader or package bind, since filo keeps a
// body that was read with c.Body for the rest of the request.
func Audit(logger *slog.Logger, user func(c *filo.Ctx) string) filo.Middleware {
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			var request string
			if isJSON(c.Request.Header.Get("Content-Type")) {
				body, err := c.Body()
				if err != nil {
					return err // for example a 413, if the body is larger than the route allows
				}
				request = beginning(body)
			}
			status, answer := 500, "" // what is recorded if next panics
			defer func() {
				// The record has the route's pattern, such as "PUT /users/{id}", and not the path, which may contain personal data.
				logger.InfoContext(c.Context(), "audit", "user", user(c), "route", c.Route(), "status", status, "request", request, "response", answer)
			}()
			err := c.RenderError(next(c)) // so that an error has its status and its body
			status = c.Status()
			if body, whole := c.Response.WholeBody(); whole && isJSON(c.Response.Header.Get("Content-Type")) {
				answer = beginning(body)
			}
			return err
		}
	}
}

func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// beginning returns a copy of the body's beginning. The body itself is borrowed until the handler returns, but a logger may keep its arguments.
func beginning(body []byte) string { return string(body[:min(len(body), maxAuditBytes)]) }
