package middleware

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/prerouting"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// MethodOverrideOptions configures MethodOverride.
type MethodOverrideOptions struct {
	// Header is the request field that names the method. Default X-HTTP-Method-Override; "-" disables it.
	Header string
	// FormField is the form field, usually a hidden one, that names the method: a page without scripts has no other way to send PUT. The form
	// must be application/x-www-form-urlencoded, and is read before the router sees the request. Default none.
	FormField string
	// Methods are the methods that a POST may become. Default PUT, PATCH and DELETE. CSRF doesn't check a safe method such as QUERY: if you
	// list QUERY, a form of any site reaches the handlers of that method.
	Methods []string
}

// errOverride is shared by all requests: nothing may change it.
var errOverride = filo.Error(400, "this method can't override POST")

// MethodOverride turns a POST into a request with another method, for clients that can't send that method. It overrides only POST, so that a
// GET, which CSRF doesn't check, can't become a request that changes something. A request that names a method that isn't in Methods fails
// with the status 400.
//
// MethodOverride must run before the router matches the method, so it wraps the server's handler. Router.Use panics when it is
// given MethodOverride.
//
//	override := middleware.MethodOverride()
//	err := filo.ListenAndServe(":8080", override(r.Serve))
//
// Errors of MethodOverride itself therefore bypass the router's middleware.
func MethodOverride(options ...MethodOverrideOptions) filo.Middleware {
	o := setup.One("middleware: MethodOverride", options)
	switch o.Header {
	case "":
		o.Header = "X-HTTP-Method-Override"
	case "-":
		o.Header = ""
		check(o.FormField != "", "MethodOverride: set Header or FormField")
	}
	if o.Header != "" {
		checkFieldName("MethodOverrideOptions.Header", o.Header)
	}
	if len(o.Methods) == 0 {
		o.Methods = []string{"PUT", "PATCH", "DELETE"}
	}
	setup.CheckMethods(check, "MethodOverrideOptions.Methods", o.Methods)
	methods := make(map[string]string, len(o.Methods))
	for _, method := range o.Methods {
		check(method != "CONNECT" && len(method) <= 32, "MethodOverride: Methods: %q can't override POST", method)
		methods[method] = method
	}
	return prerouting.Mark("middleware.MethodOverride", func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if string(c.Request.MethodBytes()) != "POST" {
				return next(c)
			}
			override, err := o.override(c)
			if err != nil {
				return err
			}
			if len(override) > 0 && string(override) != "POST" {
				method, ok := methods[string(override)]
				if !ok {
					return errOverride
				}
				if err := c.Request.SetMethod(method); err != nil {
					return err
				}
			}
			return next(c)
		}
	})
}

// override returns the method that a request names, nil if it names none.
func (options *MethodOverrideOptions) override(c *filo.Ctx) ([]byte, error) {
	if options.Header != "" {
		if method := c.Request.Header.GetBytes(options.Header); len(method) > 0 {
			return method, nil
		}
	}
	if options.FormField == "" || !isForm(c.Request.Header.GetBytes("Content-Type")) {
		return nil, nil
	}
	form, err := c.Request.Form()
	if err != nil {
		return nil, err
	}
	return form.GetBytes(options.FormField), nil
}

// isForm reports whether Request.Form reads bodies of a Content-Type.
func isForm(contentType []byte) bool {
	const form = "application/x-www-form-urlencoded"
	return len(contentType) >= len(form) && syntax.EqualFold(contentType[:len(form)], form) &&
		(len(contentType) == len(form) || contentType[len(form)] == ';' || contentType[len(form)] == ' ')
}
