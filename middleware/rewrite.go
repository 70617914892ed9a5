package middleware

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/prerouting"
)

// RewriteOptions configures Rewrite.
type RewriteOptions struct {
	// Rules are tried in order, and only the first one that matches is applied, once. Required.
	Rules []RewriteRule
}

// RewriteRule maps the paths that match it to new paths. Either Prefix or Pattern is required.
//
// Rules compare paths as they were sent, with their percent-encoding. A path that doesn't match because it is encoded differently
// goes to the router unchanged.
type RewriteRule struct {
	// Prefix is the beginning of paths, such as "/old". It matches whole segments: "/old" and "/old/a", not "/older".
	Prefix string
	// Pattern is a regular expression for a whole path, such as `/posts/(\d+)\.html`.
	Pattern string
	// To replaces the prefix, such as "/new", or the whole path that matched the pattern. In the latter case, $1 and ${name}
	// stand for the pattern's groups: "/posts/$1". To may have a query, to which the request's own query is appended.
	To string
}

// Rewrite changes the path of requests, and perhaps their query, before the router sees them. Clients don't notice the change; to tell them
// the new path, use Redirect. If a rule produces an invalid path, the request fails with the status 400.
//
// Rewrite must run before the router matches the path, so it wraps the server's handler. It may also wrap a handler that reads
// the path itself, such as a proxy's: r.Any("/api/{rest...}", rewrite(h)). Router.Use, Group and routes panic when they are given
// Rewrite.
//
//	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: rules})
//	err := filo.ListenAndServe(":8080", rewrite(r.Serve))
//
// Errors of Rewrite itself therefore bypass the router's middleware. The access log shows the new path.
func Rewrite(options RewriteOptions) filo.Middleware {
	check(len(options.Rules) > 0, "Rewrite: no Rules")
	rules := make([]rewriteRule, len(options.Rules))
	for i, rule := range options.Rules {
		rules[i] = newRewriteRule(rule)
	}
	return prerouting.Mark("middleware.Rewrite", func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			path := c.Request.URI().RawPathBytes()
			for i := range rules {
				var memory [256]byte
				target, ok := rules[i].apply(memory[:0], path)
				if !ok {
					continue
				}
				if err := c.Request.SetTargetBytes(appendQuery(target, c.Request.URI().RawQueryBytes())); err != nil {
					return err
				}
				break
			}
			return next(c)
		}
	})
}

type rewriteRule struct {
	prefix  string
	pattern *regexp.Regexp // nil if there is a prefix
	to      string
	query   string // the query in To, with its "?"
}

func newRewriteRule(rule RewriteRule) rewriteRule {
	check((rule.Prefix != "") != (rule.Pattern != ""), "Rewrite: a rule must have either a Prefix or a Pattern: %+v", rule)
	r := rewriteRule{prefix: rule.Prefix, to: rule.To}
	if i := strings.IndexByte(rule.To, '?'); i >= 0 {
		r.to, r.query = rule.To[:i], rule.To[i:]
	}
	check(strings.HasPrefix(r.to, "/") && isTarget(rule.To), "Rewrite: To is %q, and must be a path, with or without a query", rule.To)
	if rule.Pattern == "" {
		check(strings.HasPrefix(rule.Prefix, "/") && isTarget(rule.Prefix) && !strings.Contains(rule.Prefix, "?"),
			"Rewrite: Prefix is %q, and must be the beginning of a path", rule.Prefix)
		return r
	}
	pattern, err := regexp.Compile("^(?:" + rule.Pattern + ")$")
	check(err == nil, "Rewrite: %v", err)
	r.pattern, r.to, r.query = pattern, rule.To, ""
	return r
}

// isTarget reports whether s has only bytes that may be in a request target (RFC 3986, appendix A) or in a reference to a group.
func isTarget(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' })
}

// apply appends the target that replaces a path, without the request's query.
func (r *rewriteRule) apply(target, path []byte) ([]byte, bool) {
	if r.pattern != nil {
		match := r.pattern.FindSubmatchIndex(path)
		if match == nil {
			return nil, false
		}
		return r.pattern.Expand(target, []byte(r.to), path, match), true
	}
	if len(path) < len(r.prefix) || string(path[:len(r.prefix)]) != r.prefix {
		return nil, false
	}
	rest := path[len(r.prefix):]
	if len(rest) > 0 && rest[0] != '/' && !strings.HasSuffix(r.prefix, "/") {
		return nil, false
	}
	target = append(target, r.to...)
	if strings.HasSuffix(r.to, "/") {
		rest = bytes.TrimPrefix(rest, []byte{'/'})
	}
	target = append(target, rest...)
	return append(target, r.query...), true
}

// appendQuery appends a query to target, after target's own query if it has one.
func appendQuery(target, query []byte) []byte {
	switch {
	case len(query) == 0:
		return target
	case bytes.IndexByte(target, '?') >= 0:
		target = append(target, '&')
	default:
		target = append(target, '?')
	}
	return append(target, query...)
}
