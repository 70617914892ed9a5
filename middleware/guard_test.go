package middleware_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// The options decide which requests are admitted. The tests of package guard cover each option in detail.
func TestGuard(t *testing.T) {
	local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
	away := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
	const token = "0123456789abcdef"
	for _, test := range []struct {
		options middleware.GuardOptions
		client  net.Addr
		host    string
		fields  []string
		status  int
		others  bool // the server isn't the operator's
	}{
		{middleware.GuardOptions{}, local, "localhost", nil, 200, false},
		{middleware.GuardOptions{}, local, "localhost", nil, 404, true},
		{middleware.GuardOptions{}, local, "evil.test", nil, 404, false},
		{middleware.GuardOptions{}, away, "localhost", nil, 404, false},
		{middleware.GuardOptions{Hosts: []string{"devbox"}}, local, "devbox", nil, 200, false},
		{middleware.GuardOptions{Token: token}, local, "localhost", nil, 401, true},
		{middleware.GuardOptions{Token: token}, away, "a.test", []string{"Authorization: Bearer " + token}, 200, true},
	} {
		s := servertest.NewServer(t, &filo.Server{Handler: middleware.Guard(test.options)(mwtest.Hello), ForOperator: !test.others})
		if got := s.DoFrom(t, test.client, "GET http://"+test.host+"/", test.fields...); got.Status != test.status {
			t.Errorf("%+v: %v asks %s: %d, want %d", test.options, test.client, test.host, got.Status, test.status)
		}
	}
	defer func() {
		if message, _ := recover().(string); !strings.HasPrefix(message, "middleware: Guard: Token: ") {
			t.Errorf("a short token panics with %q", message)
		}
	}()
	middleware.Guard(middleware.GuardOptions{Token: "short"})
}
