package jwt

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
)

// verifier checks tokens by the options of New. It is immutable.
type verifier struct {
	parser     *gojwt.Parser
	keyFunc    gojwt.Keyfunc
	keys       keyring
	typ        string // the required "typ", in lower case; "" accepts any
	maxBytes   int
	cookie     string
	query      string
	optional   bool
	challenges challenges
}

func newVerifier[C any](options *Options[C]) *verifier {
	if options.Leeway < 0 {
		panic("jwt: a negative Leeway")
	}
	if options.MaxTokenBytes < 0 {
		panic("jwt: a negative MaxTokenBytes")
	}
	if slices.Contains(options.Audience, "") {
		panic("jwt: an empty Audience")
	}
	checkAlgorithms(options.Algorithms)
	v := &verifier{
		typ:        mediaType(options.Type),
		maxBytes:   options.MaxTokenBytes,
		cookie:     options.Cookie,
		query:      options.Query,
		optional:   options.Optional,
		challenges: newChallenges(options.Realm),
	}
	if v.query != "" {
		middleware.RedactParameter(v.query)
	}
	v.maxBytes = cmp.Or(v.maxBytes, DefaultMaxTokenBytes)
	v.keys = newKeyring(options.Algorithms, options.Key, options.Keys, options.KeyFunc)
	v.keyFunc = v.key

	parserOptions := []gojwt.ParserOption{
		gojwt.WithValidMethods(slices.Clone(options.Algorithms)),
		gojwt.WithLeeway(options.Leeway),
		gojwt.WithStrictDecoding(),
	}
	if !options.AllowNoExpiry {
		parserOptions = append(parserOptions, gojwt.WithExpirationRequired())
	}
	if options.Issuer != "" {
		parserOptions = append(parserOptions, gojwt.WithIssuer(options.Issuer))
	}
	if len(options.Audience) > 0 {
		parserOptions = append(parserOptions, gojwt.WithAudience(slices.Clone(options.Audience)...))
	}
	v.parser = gojwt.NewParser(parserOptions...)
	return v
}

// checkAlgorithms panics if the list is empty or has an invalid algorithm. Without the list, a token itself would choose the algorithm (RFC
// 8725, section 3.1).
func checkAlgorithms(algorithms []string) {
	if len(algorithms) == 0 {
		panic("jwt: no Algorithms: name those that the tokens are signed with, such as ES256")
	}
	for _, algorithm := range algorithms {
		if strings.EqualFold(algorithm, "none") {
			panic(`jwt: the algorithm "none" signs nothing, so anybody could make tokens`)
		}
		if gojwt.GetSigningMethod(algorithm) == nil {
			panic(fmt.Sprintf("jwt: there is no algorithm %q; there are %s", algorithm, strings.Join(knownAlgorithms(), ", ")))
		}
	}
}

func knownAlgorithms() []string {
	known := slices.DeleteFunc(gojwt.GetAlgorithms(), func(name string) bool { return name == "none" })
	slices.Sort(known)
	return known
}

// verify decodes a token into claims and verifies it. The claims may be used only if there is no error.
func (v *verifier) verify(token string, claims gojwt.Claims) *filo.HTTPError {
	if len(token) > v.maxBytes {
		return invalidToken(fmt.Errorf("jwt: a token of %d bytes, over the limit of %d", len(token), v.maxBytes))
	}
	_, err := v.parser.ParseWithClaims(token, claims, v.keyFunc)
	if err == nil {
		return nil
	}
	return asRefusal(fmt.Errorf("jwt: %w", err))
}

// Errors of a token's header.
var (
	errCritical   = errors.New("the token has critical extensions, and none of them is supported")
	errType       = errors.New("the token's typ isn't the required one")
	errUnknownKey = errors.New("no key for the token's algorithm and kid")
)

// key is the parser's Keyfunc: the parser calls it after checking that the algorithm is allowed, and before verifying anything else.
func (v *verifier) key(token *gojwt.Token) (any, error) {
	// RFC 7515, section 4.1.11: a token with an extension that is critical and not understood is invalid.
	if _, ok := token.Header["crit"]; ok {
		return nil, errCritical
	}
	if v.typ != "" {
		if name, _ := token.Header["typ"].(string); mediaType(name) != v.typ {
			return nil, errType
		}
	}
	return v.keys.find(token)
}

// mediaType returns a "typ" in the form for comparison: in lower case, and without "application/", which may be left out (RFC 7515, section
// 4.1.9).
func mediaType(typ string) string {
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}
