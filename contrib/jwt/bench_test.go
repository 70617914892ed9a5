package jwt_test

import (
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/jwt"
	"github.com/filohttp/filo/servertest"
)

// BenchmarkNew measures the middleware alone: the handler of a single request calls it repeatedly.
func BenchmarkNew(b *testing.B) {
	for _, bm := range []struct {
		name    string
		options jwt.Options[user]
		token   string
	}{
		{"HS256", options(), sign(b, "HS256", secret, good())},
		{"RS256", options(func(o *jwt.Options[user]) { o.Algorithms, o.Key = []string{"RS256"}, &rsaKeys().PublicKey }),
			sign(b, "RS256", rsaKeys(), good())},
		{"ES256", options(func(o *jwt.Options[user]) { o.Algorithms, o.Key = []string{"ES256"}, &ecKey.PublicKey }),
			sign(b, "ES256", ecKey, good())},
		{"none, optional", options(func(o *jwt.Options[user]) { o.Optional = true }), ""},
	} {
		b.Run(bm.name, func(b *testing.B) {
			h := jwt.New(bm.options)(func(*filo.Ctx) error { return nil })
			field := ""
			if bm.token != "" {
				field = "Authorization: Bearer " + bm.token + "\r\n"
			}
			b.ReportAllocs()
			servertest.New(b, func(c *filo.Ctx) error {
				b.ResetTimer()
				for range b.N {
					if err := h(c); err != nil {
						b.Error(err)
						break
					}
				}
				b.StopTimer()
				return c.NoContent()
			}).Raw(b, "GET / HTTP/1.1\r\nHost: x\r\n"+field+"\r\n")
		})
	}
}
