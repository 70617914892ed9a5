package middleware

import (
	"strings"
	"testing"
)

func TestIsHost(t *testing.T) {
	for host, want := range map[string]bool{
		"a": true, "example.com": true, "EXAMPLE.com:8080": true, "a_b-c.d": true, "127.0.0.1": true, "127.0.0.1:80": true,
		"[::1]": true, "[::1]:80": true, "[2001:db8::1]:65535": true,
		"": false, ":80": false, "a:": false, "a:b": false, "a:123456": false, "a/b": false, "a@b": false, "a b": false, "a\r\nb": false,
		"[::1": false, "[]": false, "[::1]80": false, "[::1]:": false, "[fe80::1%eth0]": false, "[127.0.0.1]": false, "a,b": false, "ä": false,
		"a:80:80": false, "a%41": false, strings.Repeat("a", 259): true, strings.Repeat("a", 260): false,
	} {
		if isHost(host) != want || isHost([]byte(host)) != want {
			t.Errorf("isHost(%q) isn't %v", host, want)
		}
	}
}

func TestHostSet(t *testing.T) {
	set := newHostSet("hosts", []string{"example.com", "*.Example.org", "[::1]", "127.0.0.1", "*.internal"})
	for host, want := range map[string]bool{
		"example.com": true, "EXAMPLE.COM": true, "example.com:8080": true, "example.com.": true, "example.com.:80": true,
		"[::1]": true, "[::1]:80": true, "127.0.0.1:80": true, "a.example.org": true, "b.EXAMPLE.org:1": true, "b.example.org.": true, "a.internal": true,
		"a.b.example.org": false, "..example.org": false, "example.org": false, "www.example.com": false, "notexample.com": false, "notexample.org": false, "example.com.evil.test": false,
		".example.org": false, "": false, ".": false, ":80": false, "[::2]": false, "::1": false, "example.com..": false,
		"a.example.org" + strings.Repeat(".", 300): false, "internal": false,
	} {
		if set.has([]byte(host)) != want {
			t.Errorf("has(%q) isn't %v", host, want)
		}
	}
}
