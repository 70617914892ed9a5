package otel

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/filohttp/filo/middleware"
)

// A secret's value is never recorded, however its name is written, and nothing else is changed.
func FuzzAppendRedacted(f *testing.F) {
	f.Add("a=b&sig=c&&access_token")
	f.Add("next=%2Fcb%3Ftoken%3Dabc&next=%252Fcb%253Fpin%253Dabc")
	f.Add("s%69g=a&SIG=b=c&=&=d&%zz=e&x-amz-signature=%")
	t := &telemetry{secret: secretParameters([]string{"PIN"})}
	f.Fuzz(func(test *testing.T, query string) {
		pairs := func(query string) []string {
			return strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
		}
		before, after := pairs(query), pairs(string(t.appendRedacted(nil, []byte(query))))
		if len(before) != len(after) {
			test.Fatalf("%q became %q", query, after)
		}
		for i := range before {
			name, value, valued := strings.Cut(before[i], "=")
			want := before[i]
			secret := func(name string) bool { return t.secret[strings.ToLower(name)] || middleware.IsRedacted(name) }
			if decoded, err := url.QueryUnescape(name); valued && err == nil && secret(decoded) {
				want = name + "=REDACTED"
			} else if valued && secret(name) {
				want = name + "=REDACTED"
			} else if valued && middleware.HoldsSecret(value, secret) {
				want = name + "=REDACTED"
			}
			if after[i] != want {
				test.Errorf("%q became %q, want %q (value %q)", before[i], after[i], want, value)
			}
		}
	})
}

// The recorded server name has neither brackets nor a port.
func FuzzAppendServer(f *testing.F) {
	for _, host := range []string{"a", "a:1", "[::1]", "[::1]:80", ":", "[", "]:", "a:99999", "[]:1", "a:b:c"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		list := appendServer(nil, host)
		for _, each := range list {
			if port := each.Value.AsInt64(); each.Key == "server.port" && (port < 0 || port > 65535 || len(list) != 2) {
				t.Errorf("%q: %v", host, list)
			}
		}
		if address, err := netip.ParseAddrPort(host); err == nil {
			if len(list) != 2 || list[0].Value.AsString() != strings.Trim(host[:strings.LastIndexByte(host, ':')], "[]") || list[1].Value.AsInt64() != int64(address.Port()) {
				t.Errorf("%q: %v", host, list)
			}
		}
	})
}

func TestCarrier(t *testing.T) {
	var h carrier
	h.Set("Traceparent", "a\r\nInjected: b")
	h.Set("baggage", "c=d")
	h.header().Add("Baggage", "e=f")
	if got := h.Get("traceparent"); strings.ContainsAny(got, "\r\n") || h.Get("Injected") != "" {
		t.Errorf("a value that would be another field: %q", got)
	}
	if got := strings.Join(h.Values("BAGGAGE"), ";"); got != "c=d;e=f" {
		t.Errorf("values %q", got)
	}
	if h.Values("none") != nil || h.Get("none") != "" {
		t.Error("a field that isn't there")
	}
	if got := strings.Join(h.Keys(), " "); got != "Traceparent baggage Baggage" {
		t.Errorf("keys %q", got)
	}
}
