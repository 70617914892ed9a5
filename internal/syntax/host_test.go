package syntax

import "testing"

func TestIsThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "a.localhost.": true, "127.0.0.2:1": true, "[::1]:80": true, "[::1]": true, "::ffff:127.0.0.1": true,
		"example.com": false, "notlocalhost": false, "192.0.2.1:80": false, "": false,
	} {
		if got := IsThisMachine(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestSaysHTTPS(t *testing.T) {
	for value, want := range map[string]bool{"https": true, "http, HTTPS": true, "for=a;proto=https": true, "http": false, "": false} {
		if got := SaysHTTPS([]byte(value)); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}
