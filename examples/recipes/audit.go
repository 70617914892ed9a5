package recipes

import (
	"log/slog"
	"strings"

	"github.com/filohttp/filo"
)

// maxAuditBytes is how much of a body the audit log keeps.
const maxAuditBytes = 4 << 10

// Audit logs who sent which body, and what was answered. Only JSON bodies are logged, the first 4 KB of each. Use it for the routes
// that need it, inside of the middleware that authenticates, and log no route that takes passwords.
//
// It reads a body before the handler does. The handler still finds the whole body by c.Body, c.BodyReader or package bind, since
// filo keeps a body that was read by c.Body for the rest of the request.
func Audit(logger *slog.Logger, user func(c *filo.Ctx) string) filo.Middleware {
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			var request string
			if isJSON(c.Request.Header.Get("Content-Type")) {
				body, err := c.Body()
				if err != nil {
					return err // for example 413: the body is larger than the route allows
				}
				request = beginning(body)
			}
			err := next(c)
			var answer string
			if body, whole := c.Response.WholeBody(); whole && isJSON(c.Response.Header.Get("Content-Type")) {
				answer = beginning(body)
			}
			// The route is a pattern, such as "PUT /users/{id}": the path may hold data of users.
			logger.InfoContext(c.Context(), "audit", "user", user(c), "route", c.Route(), "status", c.Status(), "request", request, "response", answer)
			return err
		}
	}
}

func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// beginning copies: a body is borrowed until the handler returns, and a logger may keep what it is given.
func beginning(body []byte) string { return string(body[:min(len(body), maxAuditBytes)]) }
