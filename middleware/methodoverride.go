package middleware

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/prerouting"
	"github.com/filohttp/filo/internal/setup"
)

// MethodOverrideOptions are options of MethodOverride.
type MethodOverrideOptions struct {
	// Header is the request field that names the method. Default X-HTTP-Method-Override; "-" is none.
	Header string
	// FormField is the field of a form that names it, mostly a hidden one: pages have no other way to send PUT without a
	// script. The form must be in application/x-www-form-urlencoded, and is read before the router sees the request. Default none.
	FormField string
	// Methods are what POST may become. Default PUT, PATCH and DELETE.
	Methods []string
}

// errOverride is shared: nothing may change it.
var errOverride = filo.Error(400, "POST can't be overridden by this method")

// MethodOverride makes a POST into a request with another method, where its client can't send that. No other method is
// overridden: what changes nothing, and so isn't checked by CSRF, can't become something that does. A method that isn't allowed
// is an error with the status 400.
//
// It must run before the router looks at the method. Router.Use panics when it is given this: it wraps
// what the server is given.
//
//	override := middleware.MethodOverride()
//	err := filo.ListenAndServe(":8080", override(r.Serve))
//
// An error of its own doesn't go through the router's middleware, then.
func MethodOverride(options ...MethodOverrideOptions) filo.Middleware {
	o := setup.One("middleware: MethodOverride", options)
	switch o.Header {
	case "":
		o.Header = "X-HTTP-Method-Override"
	case "-":
		o.Header = ""
		check(o.FormField != "", "MethodOverride: neither Header nor FormField")
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
		check(method != "CONNECT" && len(method) <= 32, "MethodOverride: POST can't become %q", method)
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

// isForm reports whether a Content-Type is that of a form which Request.Form reads.
func isForm(contentType []byte) bool {
	const form = "application/x-www-form-urlencoded"
	return len(contentType) >= len(form) && equalToken(contentType[:len(form)], form) &&
		(len(contentType) == len(form) || contentType[len(form)] == ';' || contentType[len(form)] == ' ')
}
