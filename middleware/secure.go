package middleware

import (
	"cmp"
	"strconv"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// SecureOptions configures Secure. Each string is the value of a field. An empty string sends the default, if there is one, and
// "-" omits the field.
type SecureOptions struct {
	// HSTS is how long browsers must use only TLS (Strict-Transport-Security), in whole seconds. Secure sends it only over TLS:
	// see Scheme. A browser enforces it for all that time, so there is no default; a year is usual.
	HSTS time.Duration
	// HSTSSubdomains extends HSTS to all subdomains. HSTSPreload allows browsers to put the host into their preload lists, and requires
	// HSTSSubdomains and an HSTS of a year or more.
	HSTSSubdomains, HSTSPreload bool

	// ContentSecurityPolicy restricts the sources of a page's content. It depends on the page: no default.
	ContentSecurityPolicy string
	// ContentSecurityPolicyReportOnly is a policy on trial: browsers report violations but don't enforce it.
	ContentSecurityPolicyReportOnly string
	// ContentTypeOptions keeps browsers from guessing the type of a file. Default "nosniff".
	ContentTypeOptions string
	// FrameOptions says whether a page may be shown in a frame of another page. Default "SAMEORIGIN": only in pages of the same site.
	FrameOptions string
	// ReferrerPolicy limits what other sites learn about the page that links to them. Default "strict-origin-when-cross-origin".
	ReferrerPolicy string
	// PermissionsPolicy says which browser features a page may use, such as "camera=(), geolocation=()". No default.
	PermissionsPolicy string
	// OpenerPolicy (COOP) separates a page's window from windows of other origins. Default "same-origin"; pop-ups for signing in at another
	// site may need "same-origin-allow-popups".
	OpenerPolicy string
	// EmbedderPolicy (COEP) is "require-corp" for a page that must be isolated, and so can load only resources that allow it. No
	// default.
	EmbedderPolicy string
	// ResourcePolicy (CORP) says which sites may load the server's resources. Default "same-origin"; resources that other sites
	// show need "cross-origin".
	ResourcePolicy string
}

// Secure sets response fields that protect users in their browsers. A handler can change or delete any of them.
//
// Put it outside of everything that answers, so that errors and redirects have the fields, too.
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
		each.value = cmp.Or(each.value, each.byDefault)
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
	check(options.HSTS >= 0, "SecureOptions.HSTS must not be negative")
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
