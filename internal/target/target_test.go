package target

import (
	"strings"
	"testing"
)

// "The target URI is reconstructed" (RFC 9112, section 3.3) from each form of a target.
func TestForms(t *testing.T) {
	for _, test := range []struct {
		target, host      string
		secure            bool
		text, path, query string
		name, port        string
	}{
		{"/a%20b?x", "a.example:80", true, "https://a.example:80/a%20b?x", "/a b", "x", "a.example", "80"},
		{"http://b.example?x", "a.example", true, "http://b.example/?x", "/", "x", "b.example", ""},
		{"https://[::1]:8/", "", false, "https://[::1]:8/", "/", "", "::1", "8"},
		{"a.example:443", "b", false, "a.example:443", "", "", "a.example", "443"},
		{"*", "a", false, "http://a", "*", "", "a", ""},
		{"/", "", false, "/", "/", "", "", ""},
	} {
		var u Target
		u.Parse([]byte(test.target), []byte(test.host), test.secure)
		if u.String() != test.text || string(u.Path()) != test.path || string(u.RawQuery()) != test.query || u.Hostname() != test.name || u.Port() != test.port {
			t.Errorf("%q: %q, path %q, query %q, host %q, port %q", test.target, u.String(), u.Path(), u.RawQuery(), u.Hostname(), u.Port())
		}
	}
}

// If a target is replaced, the host and scheme stay, and slices that were borrowed before keep their bytes.
func TestReplace(t *testing.T) {
	var u Target
	u.Parse([]byte("http://a.example/old%20path?x"), nil, true)
	old := u.Path()
	if !u.HasPath() {
		t.Fatal("it has no path")
	}
	u.Replace([]byte("/n%65w?y"))
	if got := u.String(); got != "http://a.example/n%65w?y" || string(u.Path()) != "/new" || string(old) != "/old path" {
		t.Errorf("%q, path %q, the old one %q", got, u.Path(), old)
	}
	for _, without := range []string{"*", "a:443"} {
		if u.Parse([]byte(without), nil, false); u.HasPath() {
			t.Errorf("%q has a path", without)
		}
	}
}

// Reset drops the borrowed slices, and doesn't keep a large buffer.
func TestReset(t *testing.T) {
	var u Target
	u.Parse([]byte("/"+strings.Repeat("%41", 3*maxKeptPath)), nil, false)
	u.Path()
	u.Reset()
	if len(u.Memory()) > maxKeptPath || u.target != nil || u.path != nil || len(u.Path()) != 0 {
		t.Errorf("%d bytes are kept", len(u.Memory()))
	}
}
