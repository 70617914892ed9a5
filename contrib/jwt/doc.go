// Package jwt admits only requests with a valid JSON Web Token (RFC 7519), and passes the token's claims to the handlers.
// github.com/golang-jwt/jwt/v5 parses and verifies the tokens.
//
//	go get github.com/filohttp/filo/contrib/jwt@latest
//
// The package is a separate module, so that filo doesn't depend on golang-jwt.
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
// The package accepts few tokens, as RFC 8725 advises. It accepts only the named algorithms, each with a key of the matching type, so a
// public key is never used as a shared secret. Tokens must expire, unless an option says otherwise. Tokens with critical extensions are
// refused, since the package understands none.
//
// # Keys of an issuer
//
// Options.KeyFunc can be the function of github.com/MicahParks/keyfunc/v3, which caches an issuer's JWK set. This function is called with
// tokens that aren't verified yet. With the defaults of NewDefault, a token whose "kid" isn't in the set makes the function fetch the set
// again, at most once in five minutes for all clients together. Any client can use up that fetch with a token that has an invented kid. Then,
// after a change of keys, valid tokens are refused until the set's regular fetch, once an hour. So configure it to fetch the set at shorter
// intervals than the issuer waits between publishing a key and using it, and don't let requests wait for another fetch:
//
//	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{"https://login.example.com/jwks.json"}, keyfunc.Override{
//		RefreshInterval:   5 * time.Minute,                         // each hour by default
//		RefreshUnknownKID: rate.NewLimiter(rate.Every(time.Minute), 1), // golang.org/x/time/rate; every 5 minutes by default
//		RateLimitWaitMax:  time.Millisecond,                        // a request waits for up to a minute by default
//	})
//	api.Use(jwt.New(jwt.Options[User]{Algorithms: []string{"ES256"}, KeyFunc: keys.Keyfunc, Issuer: "https://login.example.com"}))
//
// # Answers
//
// The answers follow RFC 6750, section 3, each with a WWW-Authenticate field: 401 without an error code if there is no token, 401 with
// "invalid_token" for an invalid token, 400 with "invalid_request" if the request has several tokens, and 403 with "insufficient_scope" if
// Options.Check returns a 403. The reason why a token was invalid is logged, but isn't sent to the client.
//
// # Order
//
// Put the middleware inside of recover, logging, CORS (a preflight carries no token) and rate limits, since verifying a signature takes
// time. Put it outside of everything that needs to know the user.
package jwt
