// Package jwt lets requests through that carry a valid JSON Web Token (RFC 7519), and hands its claims to the handlers. The
// tokens are parsed and verified by github.com/golang-jwt/jwt/v5.
//
//	go get github.com/filohttp/filo/contrib/jwt@latest
//
// It is a module of its own, so that filo doesn't depend on what it needs.
//
//	type User struct {
//		jwt.RegisteredClaims
//		Role string `json:"role"`
//	}
//
//	api.Use(jwt.New(jwt.Options[User]{
//		Algorithms: []string{"ES256"},
//		Key:        publicKey,
//		Issuer:     "https://login.example.com",
//		Audience:   []string{"https://api.example.com"},
//	}))
//	api.GET("/me", func(c *filo.Ctx) error {
//		user, _ := jwt.Claims[User](c)
//		return c.Text(200, user.Subject)
//	})
//
// What is accepted is narrow, as RFC 8725 advises: only the algorithms that are named, each with a key of its own kind, so
// that a public key is never taken for a shared secret; only tokens that expire, unless said otherwise; none with critical
// extensions, which nobody here would understand.
//
// # Answers
//
// They are those of RFC 6750, section 3, each with a WWW-Authenticate field: 401 without an error code where there is no
// token, 401 with "invalid_token" where it isn't good, 400 with "invalid_request" where it can't be told which token is
// meant, and 403 with "insufficient_scope" where Options.Check says so. Why a token wasn't good is in the error, for the log;
// the client doesn't get to know.
//
// # Order
//
// It belongs behind recover, logging, CORS (a preflight carries no token) and limits of rates, for to verify a signature
// takes time, and before whatever needs to know the user.
package jwt
