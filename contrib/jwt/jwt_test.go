package jwt_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/jwt"
	"github.com/filohttp/filo/servertest"
)

// user holds the claims of the tests' tokens.
type user struct {
	jwt.RegisteredClaims
	Role string `json:"role,omitempty"`
}

// Validate is golang-jwt's hook for user-defined claims.
func (u *user) Validate() error {
	if u.Role == "ghost" {
		return errors.New("there are no ghosts")
	}
	return nil
}

var (
	secret  = bytes.Repeat([]byte("0123456789abcdef"), 2)
	rsaKeys = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey   = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// good returns claims that are valid for an hour.
func good() *user {
	return &user{RegisteredClaims: jwt.RegisteredClaims{Subject: "gopher", ExpiresAt: in(time.Hour)}, Role: "admin"}
}

func in(d time.Duration) *gojwt.NumericDate { return gojwt.NewNumericDate(time.Now().Add(d)) }

// sign makes a token. header contains alternating names and values.
func sign(t testing.TB, algorithm string, key any, claims gojwt.Claims, header ...any) string {
	t.Helper()
	token := gojwt.NewWithClaims(gojwt.GetSigningMethod(algorithm), claims)
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i].(string)] = header[i+1]
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// options returns the options of most tests, which have only a shared secret, with changes.
func options(change ...func(*jwt.Options[user])) jwt.Options[user] {
	o := jwt.Options[user]{Algorithms: []string{"HS256"}, Key: secret}
	for _, f := range change {
		f(&o)
	}
	return o
}

// whoami answers with the claims of the token.
func whoami(c *filo.Ctx) error {
	claims, ok := jwt.Claims[user](c)
	if !ok {
		return c.Text(200, "nobody")
	}
	return c.Text(200, claims.Subject+" "+claims.Role)
}

type answer struct {
	status    int
	challenge string
	header    http.Header
	body      string
}

// ask starts a server, and sends it GET target with the fields.
func ask(t testing.TB, o jwt.Options[user], target string, fields ...string) answer {
	t.Helper()
	s := servertest.NewServer(t, &filo.Server{Handler: jwt.New(o)(whoami), Logger: slog.New(slog.DiscardHandler), MaxHeaderBytes: 64 << 10})
	request := "GET " + target + " HTTP/1.1\r\nHost: x\r\n"
	for _, field := range fields {
		request += field + "\r\n"
	}
	raw := s.Raw(t, request+"\r\n")
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("WWW-Authenticate"), response.Header, string(body)}
}

const (
	noToken        = `Bearer realm="api"`
	invalidRequest = `Bearer realm="api", error="invalid_request"`
	invalidToken   = `Bearer realm="api", error="invalid_token"`
	noScope        = `Bearer realm="api", error="insufficient_scope"`
)

func TestWhereTheTokenIs(t *testing.T) {
	token := sign(t, "HS256", secret, good())
	all := options(func(o *jwt.Options[user]) { o.Query, o.Cookie = "access_token", "session" })
	optional := options(func(o *jwt.Options[user]) { o.Optional = true })
	for _, tc := range []struct {
		sentence  string
		options   jwt.Options[user]
		target    string
		fields    []string
		status    int
		challenge string
		body      string
	}{
		{"a token in Authorization is taken", options(), "/", []string{"Authorization: Bearer " + token}, 200, "", "gopher admin"},
		{"the scheme's case doesn't count (RFC 9110, 11.1)", options(), "/", []string{"Authorization: bEaReR " + token}, 200, "", "gopher admin"},
		{"several spaces may follow it", options(), "/", []string{"Authorization: Bearer   " + token}, 200, "", "gopher admin"},
		{"without a token there is a challenge without a code (RFC 6750, 3.1)", options(), "/", nil, 401, noToken, ""},
		{"another scheme is no token", options(), "/", []string{"Authorization: Basic Zm9vOmJhcg=="}, 401, noToken, ""},
		{"a scheme that begins like it is another one", options(), "/", []string{"Authorization: BearerX " + token}, 401, noToken, ""},
		{"the scheme alone is malformed", options(), "/", []string{"Authorization: Bearer"}, 400, invalidRequest, ""},
		{"two tokens in one field are malformed", options(), "/", []string{"Authorization: Bearer " + token + " " + token}, 400, invalidRequest, ""},
		{"a list of tokens is malformed", options(), "/", []string{"Authorization: Bearer " + token + "," + token}, 400, invalidRequest, ""},
		{"two fields are malformed", options(), "/", []string{"Authorization: Bearer " + token, "Authorization: Bearer " + token}, 400, invalidRequest, ""},
		{"two fields of two schemes too", options(), "/", []string{"Authorization: Basic eDp5", "Authorization: Bearer " + token}, 400, invalidRequest, ""},
		{"a cookie isn't looked at unless asked for", options(), "/", []string{"Cookie: session=" + token}, 401, noToken, ""},
		{"a parameter isn't looked at unless asked for", options(), "/?access_token=" + token, nil, 401, noToken, ""},
		{"a cookie is taken", all, "/", []string{"Cookie: a=b; session=" + token}, 200, "", "gopher admin"},
		{"an emptied cookie is no token", all, "/", []string{"Cookie: session="}, 401, noToken, ""},
		{"a parameter is taken", all, "/?a=b&access_token=" + token, nil, 200, "", "gopher admin"},
		{"an empty parameter is malformed", all, "/?access_token=", nil, 400, invalidRequest, ""},
		{"a parameter with a line break is malformed", all, "/?access_token=" + token[:9] + "%0D%0A" + token[9:], nil, 400, invalidRequest, ""},
		{"two parameters are malformed", all, "/?access_token=" + token + "&access_token=" + token, nil, 400, invalidRequest, ""},
		{"Authorization and a parameter are malformed (RFC 6750, 2)", all, "/?access_token=" + token, []string{"Authorization: Bearer " + token}, 400, invalidRequest, ""},
		{"Authorization goes before a cookie, which browsers always send", all, "/", []string{"Authorization: Bearer " + token, "Cookie: session=old"}, 200, "", "gopher admin"},
		{"Authorization isn't made up for by a cookie", all, "/", []string{"Authorization: Bearer bad", "Cookie: session=" + token}, 401, invalidToken, ""},
		{"an optional token may be missing", optional, "/", nil, 200, "", "nobody"},
		{"an optional token is taken", optional, "/", []string{"Authorization: Bearer " + token}, 200, "", "gopher admin"},
		{"an optional token must be good", optional, "/", []string{"Authorization: Bearer " + token + "x"}, 401, invalidToken, ""},
		{"an optional token must not be malformed", optional, "/", []string{"Authorization: Bearer"}, 400, invalidRequest, ""},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			got := ask(t, tc.options, tc.target, tc.fields...)
			if got.status != tc.status || got.challenge != tc.challenge || tc.body != "" && got.body != tc.body {
				t.Errorf("got %d, %q, %q", got.status, got.challenge, got.body)
			}
			if private := got.header.Get("Cache-Control") == "private"; got.status == 200 && private != strings.Contains(tc.target, "access_token") {
				t.Errorf("Cache-Control is %q", got.header.Get("Cache-Control"))
			}
			if varies := got.header.Get("Vary") == "Cookie"; varies != (tc.options.Cookie != "") {
				t.Errorf("Vary is %q", got.header.Get("Vary"))
			}
		})
	}
}

func TestWhichTokensAreGood(t *testing.T) {
	claims := func(change func(*user)) *user { u := good(); change(u); return u }
	issued := options(func(o *jwt.Options[user]) { o.Issuer, o.Audience = "https://i", []string{"a", "b"} })
	lenient := options(func(o *jwt.Options[user]) { o.Leeway = time.Minute })
	typed := options(func(o *jwt.Options[user]) { o.Type = "at+JWT" })
	whole := sign(t, "HS256", secret, good())
	head, rest, _ := strings.Cut(whole, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	for _, tc := range []struct {
		sentence string
		options  jwt.Options[user]
		token    string
		status   int
	}{
		{"a good one", options(), whole, 200},
		{"one that has expired", options(), sign(t, "HS256", secret, claims(func(u *user) { u.ExpiresAt = in(-30 * time.Second) })), 401},
		{"one that has expired, within the leeway", lenient, sign(t, "HS256", secret, claims(func(u *user) { u.ExpiresAt = in(-30 * time.Second) })), 200},
		{"one that has expired, beyond the leeway", lenient, sign(t, "HS256", secret, claims(func(u *user) { u.ExpiresAt = in(-90 * time.Second) })), 401},
		{"one that isn't valid yet", options(), sign(t, "HS256", secret, claims(func(u *user) { u.NotBefore = in(time.Hour) })), 401},
		{"one that never expires", options(), sign(t, "HS256", secret, claims(func(u *user) { u.ExpiresAt = nil })), 401},
		{"one that never expires, where that is allowed", options(func(o *jwt.Options[user]) { o.AllowNoExpiry = true }),
			sign(t, "HS256", secret, claims(func(u *user) { u.ExpiresAt = nil })), 200},
		{"issuer and audience as they must be", issued, sign(t, "HS256", secret, claims(func(u *user) { u.Issuer, u.Audience = "https://i", []string{"x", "b"} })), 200},
		{"another issuer", issued, sign(t, "HS256", secret, claims(func(u *user) { u.Issuer, u.Audience = "https://j", []string{"b"} })), 401},
		{"no issuer", issued, sign(t, "HS256", secret, claims(func(u *user) { u.Audience = []string{"b"} })), 401},
		{"another audience", issued, sign(t, "HS256", secret, claims(func(u *user) { u.Issuer, u.Audience = "https://i", []string{"x"} })), 401},
		{"no audience", issued, sign(t, "HS256", secret, claims(func(u *user) { u.Issuer = "https://i" })), 401},
		{"the type as it must be", typed, sign(t, "HS256", secret, good(), "typ", "application/AT+jwt"), 200},
		{"another type", typed, whole, 401},
		{"no type", typed, sign(t, "HS256", secret, good(), "typ", 7), 401},
		{"claims that don't agree with their own Validate", options(), sign(t, "HS256", secret, claims(func(u *user) { u.Role = "ghost" })), 401},
		{"another one's signature", options(), sign(t, "HS256", bytes.Repeat([]byte("x"), 32), good()), 401},
		{"a signature that was changed", options(), head + "." + payload + "." + flip(signature), 401},
		{"claims that were changed", options(), head + "." + flip(payload) + "." + signature, 401},
		{"a header that was changed", options(), encode(`{"alg":"HS256","typ":"JWT","x":1}`) + "." + payload + "." + signature, 401},
		{"no signature", options(), head + "." + payload + ".", 401},
		{"two parts", options(), head + "." + payload, 401},
		{"four parts", options(), whole + "." + signature, 401},
		{"no dots", options(), "token", 401},
		{"padding", options(), whole + "=", 401},
		{"bits behind the end of the signature", options(), whole[:len(whole)-1] + next(whole[len(whole)-1]), 401},
		{"a header that isn't JSON", options(), encode("{") + "." + payload + "." + signature, 401},
		{"a header that is null", options(), encode("null") + "." + payload + "." + signature, 401},
		{"claims that aren't an object", options(), raw(t, `[1]`), 401},
		{"claims that are null", options(), raw(t, `null`), 401},
		{"claims of other types", options(), raw(t, `{"exp":"tomorrow"}`), 401},
		{"claims that are nested without end", options(), raw(t, `{"x":`+strings.Repeat("[", 5000)+`}`), 401},
		{"a critical extension", options(), sign(t, "HS256", secret, good(), "crit", []string{"exp"}), 401},
		{"the longest token that is allowed", options(func(o *jwt.Options[user]) { o.MaxTokenBytes = len(whole) }), whole, 200},
		{"a longer token", options(func(o *jwt.Options[user]) { o.MaxTokenBytes = len(whole) - 1 }), whole, 401},
		{"a token over the default limit", options(), sign(t, "HS256", secret, claims(func(u *user) { u.ID = strings.Repeat("x", jwt.DefaultMaxTokenBytes) })), 401},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			got := ask(t, tc.options, "/", "Authorization: Bearer "+tc.token)
			challenge := ""
			if tc.status == 401 {
				challenge = invalidToken
			}
			if got.status != tc.status || got.challenge != challenge {
				t.Errorf("got %d, %q, %q; want %d", got.status, got.challenge, got.body, tc.status)
			}
			// A client doesn't learn what was wrong.
			if want := "401 Unauthorized: the access token is invalid or has expired\n"; tc.status == 401 && !strings.HasSuffix("401 "+got.body, want) {
				t.Errorf("it says %q", got.body)
			}
		})
	}
}

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// raw signs claims as they are.
func raw(t *testing.T, claims string) string {
	t.Helper()
	text := encode(`{"alg":"HS256","typ":"JWT"}`) + "." + encode(claims)
	signature := must(gojwt.SigningMethodHS256.Sign(text, secret))
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// flip changes a character in the middle.
func flip(s string) string {
	b := []byte(s)
	b[len(b)/2] = next(b[len(b)/2])[0]
	return string(b)
}

// next returns the next character of the base64url alphabet.
func next(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_A"
	return alphabet[strings.IndexByte(alphabet, c)+1:][:1]
}

// A token whose "alg" was chosen by an attacker is refused (RFC 8725, section 2.1).
func TestAlgorithmConfusion(t *testing.T) {
	public := &rsaKeys().PublicKey
	der := must(x509.MarshalPKIXPublicKey(public))
	block := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	both := options(func(o *jwt.Options[user]) {
		o.Algorithms, o.Key = []string{"RS256", "HS256"}, nil
		o.Keys = map[string]any{"rsa": public, "shared": secret}
	})
	rs := options(func(o *jwt.Options[user]) { o.Algorithms, o.Key = []string{"RS256"}, public })
	unsigned := gojwt.NewWithClaims(gojwt.SigningMethodNone, good())
	none := must(unsigned.SignedString(gojwt.UnsafeAllowNoneSignatureType))
	_, payload, _ := strings.Cut(none, ".")
	for _, tc := range []struct {
		sentence string
		options  jwt.Options[user]
		token    string
		status   int
	}{
		{"RS256 is RS256", rs, sign(t, "RS256", rsaKeys(), good()), 200},
		{"the public key as a secret: PEM", rs, sign(t, "HS256", block, good()), 401},
		{"the public key as a secret: DER", rs, sign(t, "HS256", der, good()), 401},
		{"another algorithm of the same key", rs, sign(t, "PS256", rsaKeys(), good()), 401},
		{"a longer hash of the same key", rs, sign(t, "RS512", rsaKeys(), good()), 401},
		{"none", rs, none, 401},
		{"none in other letters", rs, encode(`{"alg":"nOnE"}`) + "." + payload, 401},
		{"no algorithm", rs, encode(`{"typ":"JWT"}`) + "." + payload, 401},
		{"an algorithm that is no string", rs, encode(`{"alg":["RS256"]}`) + "." + payload, 401},
		{"both kinds: the RSA key", both, sign(t, "RS256", rsaKeys(), good(), "kid", "rsa"), 200},
		{"both kinds: the secret", both, sign(t, "HS256", secret, good(), "kid", "shared"), 200},
		{"both kinds: the RSA key's name with HS256", both, sign(t, "HS256", block, good(), "kid", "rsa"), 401},
		{"both kinds: the secret's name with RS256", both, sign(t, "RS256", rsaKeys(), good(), "kid", "shared"), 401},
		{"both kinds: an unknown name", both, sign(t, "HS256", secret, good(), "kid", "other"), 401},
		{"both kinds: no name", both, sign(t, "HS256", secret, good()), 401},
		{"both kinds: a name that is no string", both, sign(t, "HS256", secret, good(), "kid", 1), 401},
		{"a key that the token brings itself", rs, sign(t, "RS256", must(rsa.GenerateKey(rand.Reader, 2048)), good(), "jwk", map[string]any{"kty": "RSA"}), 401},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			if got := ask(t, tc.options, "/", "Authorization: Bearer "+tc.token); got.status != tc.status {
				t.Errorf("got %d, %q; want %d", got.status, got.body, tc.status)
			}
		})
	}
}

func TestEachKindOfKey(t *testing.T) {
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, p521 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	long := bytes.Repeat(secret, 2)
	for algorithm, keys := range map[string][2]any{
		"HS256": {secret, secret}, "HS384": {long, long}, "HS512": {long, long},
		"RS256": {rsaKeys(), &rsaKeys().PublicKey}, "PS512": {rsaKeys(), &rsaKeys().PublicKey},
		"ES256": {ecKey, &ecKey.PublicKey}, "ES384": {p384, &p384.PublicKey}, "ES512": {p521, &p521.PublicKey},
		"EdDSA": {edPrivate, edPublic},
	} {
		o := options(func(o *jwt.Options[user]) { o.Algorithms, o.Key = []string{algorithm}, keys[1] })
		if got := ask(t, o, "/", "Authorization: Bearer "+sign(t, algorithm, keys[0], good())); got.status != 200 {
			t.Errorf("%s: got %d %q", algorithm, got.status, got.body)
		}
	}
}

func TestKeyFuncAndCheck(t *testing.T) {
	token := "Authorization: Bearer " + sign(t, "ES256", ecKey, good(), "kid", "now")
	with := func(f gojwt.Keyfunc) jwt.Options[user] {
		return options(func(o *jwt.Options[user]) { o.Algorithms, o.Key, o.KeyFunc = []string{"ES256"}, nil, f })
	}
	check := func(err error) jwt.Options[user] {
		o := with(func(*gojwt.Token) (any, error) { return &ecKey.PublicKey, nil })
		o.Check = func(_ *filo.Ctx, claims *user) error {
			if claims.Role != "admin" {
				return errors.New("no claims")
			}
			return err
		}
		return o
	}
	for _, tc := range []struct {
		sentence  string
		options   jwt.Options[user]
		status    int
		challenge string
	}{
		{"a function finds the key by the header", with(func(token *gojwt.Token) (any, error) {
			if token.Header["kid"] != "now" {
				return nil, errors.New("no such key")
			}
			return &ecKey.PublicKey, nil
		}), 200, ""},
		{"a function may return several", with(func(token *gojwt.Token) (any, error) {
			other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
			return gojwt.VerificationKeySet{Keys: []gojwt.VerificationKey{&other.PublicKey, &ecKey.PublicKey}}, nil
		}), 200, ""},
		{"no key is a bad token", with(func(*gojwt.Token) (any, error) { return nil, errors.New("no such key") }), 401, invalidToken},
		{"a nil key is a bad token", with(func(*gojwt.Token) (any, error) { return nil, nil }), 401, invalidToken},
		{"a key of the wrong kind is a bad token", with(func(*gojwt.Token) (any, error) { return secret, nil }), 401, invalidToken},
		{"that the keys can't be had is no fault of the token", with(func(*gojwt.Token) (any, error) {
			return nil, fmt.Errorf("keys: %w", filo.Error(503, "try again"))
		}), 503, ""},
		{"a check may agree", check(nil), 200, ""},
		{"a check may refuse the token", check(errors.New("revoked")), 401, invalidToken},
		{"a check may say what is missing", check(filo.Error(403, "admins only")), 403, noScope},
		{"a check may fail", check(fmt.Errorf("database: %w", filo.Error(503, ""))), 503, ""},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			if got := ask(t, tc.options, "/", token); got.status != tc.status || got.challenge != tc.challenge {
				t.Errorf("got %d, %q, %q", got.status, got.challenge, got.body)
			}
		})
	}
}

// The error contains the cause, for the log.
func TestTheErrorHasTheCause(t *testing.T) {
	expired := good()
	expired.ExpiresAt = in(-time.Hour)
	result := make(chan error, 1)
	h := jwt.New(options())(whoami)
	s := servertest.New(t, func(c *filo.Ctx) error {
		err := h(c)
		result <- err
		return err
	})
	s.Raw(t, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+sign(t, "HS256", secret, expired)+"\r\n\r\n")
	if err := <-result; !errors.Is(err, gojwt.ErrTokenExpired) {
		t.Errorf("the error is %v", err)
	}
}

func TestRealm(t *testing.T) {
	got := ask(t, options(func(o *jwt.Options[user]) { o.Realm = `a "b\c"` }), "/")
	if want := `Bearer realm="a \"b\\c\""`; got.challenge != want {
		t.Errorf("got %s, want %s", got.challenge, want)
	}
}

func TestWrongOptionsPanic(t *testing.T) {
	small := must(rsa.GenerateKey(rand.Reader, 1024))
	block := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: make([]byte, 64)})
	with := func(algorithms []string, key any) func(*jwt.Options[user]) {
		return func(o *jwt.Options[user]) { o.Algorithms, o.Key = algorithms, key }
	}
	for name, tc := range map[string]struct {
		change func(*jwt.Options[user])
		want   string
	}{
		"no algorithms":            {with(nil, secret), "jwt: no Algorithms"},
		"none":                     {with([]string{"HS256", "none"}, secret), `jwt: the algorithm "none"`},
		"None":                     {with([]string{"None"}, secret), `jwt: the algorithm "none"`},
		"an unknown algorithm":     {with([]string{"HS1"}, secret), `jwt: there is no algorithm "HS1"; there are ES256, ES384`},
		"no key":                   {with([]string{"HS256"}, nil), "jwt: exactly one of Key, Keys and KeyFunc"},
		"two kinds of keys":        {func(o *jwt.Options[user]) { o.Keys = map[string]any{"a": secret} }, "jwt: exactly one of Key, Keys and KeyFunc"},
		"a key without a name":     {func(o *jwt.Options[user]) { o.Key, o.Keys = nil, map[string]any{"": secret} }, `jwt: Keys must not have a key for the kid ""`},
		"a short secret":           {with([]string{"HS512"}, secret), "a secret of 32 bytes, under the 64"},
		"a secret that is a text":  {with([]string{"HS256"}, string(secret)), "needs a []byte, not string"},
		"a PEM block as a secret":  {with([]string{"HS256"}, block), "a PEM block is no secret"},
		"bytes for RSA":            {with([]string{"RS256"}, block), "needs an *rsa.PublicKey, not []uint8"},
		"a private key":            {with([]string{"RS256"}, rsaKeys()), "*rsa.PrivateKey is private"},
		"a small RSA key":          {with([]string{"PS256"}, &small.PublicKey), "a key of 1024 bits, under the 2048"},
		"another curve":            {with([]string{"ES384"}, &ecKey.PublicKey), "a curve of 256 bits instead of 384"},
		"RSA for ECDSA":            {with([]string{"ES256"}, &rsaKeys().PublicKey), "needs an *ecdsa.PublicKey"},
		"a secret for Ed25519":     {with([]string{"EdDSA"}, secret), "needs an ed25519.PublicKey"},
		"a short Ed25519 key":      {with([]string{"EdDSA"}, ed25519.PublicKey{1}), "a key of 1 bytes instead of 32"},
		"an algorithm without key": {with([]string{"HS256", "RS256"}, secret), "jwt: no key fits RS256"},
		"a negative leeway":        {func(o *jwt.Options[user]) { o.Leeway = -1 }, "jwt: a negative Leeway"},
		"a negative limit":         {func(o *jwt.Options[user]) { o.MaxTokenBytes = -1 }, "jwt: a negative MaxTokenBytes"},
		"an empty audience":        {func(o *jwt.Options[user]) { o.Audience = []string{"a", ""} }, "jwt: an empty Audience"},
		"a realm of two lines":     {func(o *jwt.Options[user]) { o.Realm = "a\r\nSet-Cookie: x=y" }, "jwt: the Realm"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "jwt: ") || !strings.Contains(got, tc.want) {
					t.Errorf("it panics with %q, want %q", got, tc.want)
				}
			}()
			jwt.New(options(tc.change))
		})
	}
}

// Changing a key or a list after it was given to New has no effect on the middleware.
func TestOptionsAreCopied(t *testing.T) {
	key := bytes.Clone(secret)
	algorithms := []string{"HS256"}
	h := jwt.New(jwt.Options[user]{Algorithms: algorithms, Key: key})(whoami)
	clear(key)
	algorithms[0] = "HS512"
	s := servertest.New(t, h)
	raw := s.Raw(t, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+sign(t, "HS256", secret, good())+"\r\n\r\n")
	if !strings.HasPrefix(raw, "HTTP/1.1 200 ") {
		t.Errorf("got %q", raw)
	}
}

// For any input, only a token that was signed is accepted.
func FuzzToken(f *testing.F) {
	token := sign(f, "HS256", secret, good())
	for _, seed := range []string{token, "", token[:40], encode(`{"alg":"none"}`) + "..", "a.b.c", token + "=", "\xff", strings.Repeat(".", 100)} {
		f.Add(seed)
	}
	h := jwt.New(options(func(o *jwt.Options[user]) { o.Query = "t" }))(whoami)
	result := make(chan error, 1)
	s := servertest.NewServer(f, &filo.Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
		err := h(c)
		result <- err
		return err
	}})
	f.Fuzz(func(t *testing.T, sent string) {
		if len(sent) > 2000 {
			return
		}
		var args filo.Args
		args.Add("t", sent)
		s.Raw(t, "GET /?"+args.String()+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-result; err == nil && sent != token {
			t.Errorf("%q got through", sent)
		}
	})
}
