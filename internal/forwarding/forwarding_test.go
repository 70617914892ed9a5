package forwarding

import (
	"strings"
	"testing"
)

// Every name is found in each spelling that a server may treat as the same name.
func TestKindOf(t *testing.T) {
	for _, test := range []struct {
		name string
		want Kind
	}{
		{"Via", Trace}, {"CDN-Loop", Trace}, {"X-Amzn-Trace-Id", Trace},
		{"Forwarded", Claim}, {"X-Real-IP", Claim}, {"x_real.ip", Claim}, {"X-HOST", Claim}, {"X-Forwarded", Claim}, {"Client-Cert-Chain", Claim},
		{"X-Forwarded-" + strings.Repeat("a", 100), Claim}, {"X-Goog-Authenticated-User-Email", Claim},
		{"", None}, {"Vian", None}, {"X-Real", None}, {"X-Real-IPs", None}, {"X-Hostname", None}, {"X-Request-ID", None}, {"Host", None},
		{"Authorization", None}, {"Origin", None}, {"X-Client-Version", None}, {strings.Repeat("a", 100), None}, {"X-Forwarde", None},
	} {
		if got := KindOf(test.name); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
		if got := KindOf([]byte(test.name)); got != test.want {
			t.Errorf("%s as bytes: %d, want %d", test.name, got, test.want)
		}
	}
}

// The lists have the form that KindOf expects: lower case, dashes, and no name longer than maxName.
func TestLists(t *testing.T) {
	for name := range fields {
		if len(name) > maxName || KindOf(name) == None {
			t.Errorf("%s isn't found", name)
		}
	}
	for _, prefix := range claims {
		if len(prefix) > maxName || KindOf(prefix+"anything") != Claim {
			t.Errorf("%s isn't found", prefix)
		}
	}
}

func TestAllocations(t *testing.T) {
	name := []byte("X-Goog-Authenticated-User-Email")
	if n := testing.AllocsPerRun(100, func() { KindOf(name) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
