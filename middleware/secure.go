package middleware

import (
	"strconv"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// SecureOptions are options of Secure. Each text is the value of a field; where it is empty the default is sent, if there is
// one, and "-" leaves the field out.
type SecureOptions struct {
	// HSTS is for how long browsers are to use TLS only (Strict-Transport-Security), in whole seconds. It is sent over TLS only:
	// see Scheme. A browser holds a site to it for all that time, so there is no default; a year is usual.
	HSTS time.Duration
	// HSTSSubdomains extends it to all hosts below, and HSTSPreload lets browsers have it built in: that needs HSTSSubdomains, and
	// HSTS of a year or more.
	HSTSSubdomains, HSTSPreload bool

	// ContentSecurityPolicy says where what is on a page may come from. It depends on the page: no default.
	ContentSecurityPolicy string
	// ContentSecurityPolicyReportOnly is a policy that is tried out.
	ContentSecurityPolicyReportOnly string
	// ContentTypeOptions keeps browsers from guessing what a file is. Default "nosniff".
	ContentTypeOptions string
	// FrameOptions says whether a page may be shown inside another one. Default "SAMEORIGIN": on pages of the same site.
	FrameOptions string
	// ReferrerPolicy says what others get to know of the page that links to them. Default "strict-origin-when-cross-origin".
	ReferrerPolicy string
	// PermissionsPolicy says which abilities of the browser a page may use, such as "camera=(), geolocation=()". No default.
	PermissionsPolicy string
	// OpenerPolicy (COOP) keeps windows of other origins from a page's window. Default "same-origin"; pop-ups for signing in
	// elsewhere may need "same-origin-allow-popups".
	OpenerPolicy string
	// EmbedderPolicy (COEP) is "require-corp" where a page needs to be isolated, and so can load only what allows that. No default.
	EmbedderPolicy string
	// ResourcePolicy (CORP) says who may load what the server has. Default "same-origin"; what other sites are to show needs
	// "cross-origin".
	ResourcePolicy string
}

// Secure sets the response fields that make browsers more careful. A handler can set any of them otherwise, or delete it.
//
// Its place is outside of all that answers, so that errors and redirects have the fields, too.
func Secure(options ...SecureOptions) filo.Middleware {
	o := setup.One("middleware: Secure", options)
	fields := secureFields(&o)
	hsts := hstsField(&o)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			for _, f := range fields {
				c.Response.Header.SetField(f)
			}
			if hsts != nil && Scheme(c) == "https" {
				c.Response.Header.SetField(hsts) // RFC 6797, section 7.2: not over plain HTTP
			}
			return next(c)
		}
	}
}

// secureFields returns the fields that all responses get.
func secureFields(options *SecureOptions) (fields []*filo.Field) {
	for _, each := range [...]struct{ name, value, byDefault string }{
		{"Content-Security-Policy", options.ContentSecurityPolicy, ""},
		{"Content-Security-Policy-Report-Only", options.ContentSecurityPolicyReportOnly, ""},
		{"X-Content-Type-Options", options.ContentTypeOptions, "nosniff"},
		{"X-Frame-Options", options.FrameOptions, "SAMEORIGIN"},
		{"Referrer-Policy", options.ReferrerPolicy, "strict-origin-when-cross-origin"},
		{"Permissions-Policy", options.PermissionsPolicy, ""},
		{"Cross-Origin-Opener-Policy", options.OpenerPolicy, "same-origin"},
		{"Cross-Origin-Embedder-Policy", options.EmbedderPolicy, ""},
		{"Cross-Origin-Resource-Policy", options.ResourcePolicy, "same-origin"},
	} {
		if each.value == "" {
			each.value = each.byDefault
		}
		if each.value == "" || each.value == "-" {
			continue
		}
		checkFieldValue("SecureOptions: "+each.name, each.value)
		fields = append(fields, prepare(each.name, each.value))
	}
	return fields
}

func hstsField(options *SecureOptions) *filo.Field {
	const year = 365 * 24 * time.Hour
	check(options.HSTS >= 0, "SecureOptions.HSTS is negative")
	check(options.HSTS > 0 || !options.HSTSSubdomains && !options.HSTSPreload, "SecureOptions: HSTSSubdomains and HSTSPreload need HSTS")
	check(!options.HSTSPreload || options.HSTSSubdomains && options.HSTS >= year,
		"SecureOptions: HSTSPreload needs HSTSSubdomains, and HSTS of a year or more")
	if options.HSTS == 0 {
		return nil
	}
	value := "max-age=" + strconv.FormatInt(int64(options.HSTS/time.Second), 10)
	if options.HSTSSubdomains {
		value += "; includeSubDomains"
	}
	if options.HSTSPreload {
		value += "; preload"
	}
	return prepare("Strict-Transport-Security", value)
}
