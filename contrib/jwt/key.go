package jwt

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"

	gojwt "github.com/golang-jwt/jwt/v5"
)

// minRSABits is the smallest size of an RSA key that RFC 7518, section 3.3, allows.
const minRSABits = 2048

// keyring finds the key for a token. It is immutable.
type keyring struct {
	// function is Options.KeyFunc, or nil if the keys are fixed.
	function gojwt.Keyfunc
	// fixed has the key for each combination of a kid and an algorithm. So a token can't select a key for an algorithm for which the key
	// isn't intended.
	fixed map[keyID]any
	// byKid says that a token's kid selects the key. Otherwise the kid in fixed is "".
	byKid bool
}

type keyID struct{ kid, algorithm string }

// newKeyring panics unless exactly one of key, keys and function is given, each key fits an algorithm, and each algorithm has a key.
func newKeyring(algorithms []string, key any, keys map[string]any, function gojwt.Keyfunc) keyring {
	kinds := 0
	for _, given := range [...]bool{key != nil, len(keys) > 0, function != nil} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		panic("jwt: exactly one of Key, Keys and KeyFunc is required")
	}
	if function != nil {
		return keyring{function: function}
	}
	ring := keyring{fixed: make(map[keyID]any), byKid: key == nil}
	if key != nil {
		keys = map[string]any{"": key}
	} else if _, ok := keys[""]; ok {
		panic(`jwt: Keys must not have a key for the kid ""`)
	}
	fitting := make(map[string]bool)
	for kid, key := range keys {
		fits := false
		var why error
		for _, algorithm := range algorithms {
			if err := checkKey(gojwt.GetSigningMethod(algorithm), key); err != nil {
				why = fmt.Errorf("%s: %w", algorithm, err)
				continue
			}
			if secret, ok := key.([]byte); ok {
				key = bytes.Clone(secret)
			}
			ring.fixed[keyID{kid, algorithm}] = key
			fits, fitting[algorithm] = true, true
		}
		if !fits {
			panic(fmt.Sprintf("jwt: the key %q fits none of the Algorithms; %v", kid, why))
		}
	}
	for _, algorithm := range algorithms {
		if !fitting[algorithm] {
			panic(fmt.Sprintf("jwt: no key fits %s", algorithm))
		}
	}
	return ring
}

// find returns the key with which to verify a token. It selects the key by the token's header, which an attacker may have made up.
func (ring *keyring) find(token *gojwt.Token) (any, error) {
	if ring.function != nil {
		return ring.function(token)
	}
	id := keyID{algorithm: token.Method.Alg()}
	if ring.byKid {
		id.kid, _ = token.Header["kid"].(string)
	}
	key, ok := ring.fixed[id]
	if !ok {
		return nil, errUnknownKey
	}
	return key, nil
}

// checkKey returns the reason why a key can't verify signatures of a method, or nil if it can.
func checkKey(method gojwt.SigningMethod, key any) error {
	if _, private := key.(crypto.Signer); private {
		return fmt.Errorf("%T is private: tokens are verified with its Public()", key)
	}
	switch method := method.(type) {
	case *gojwt.SigningMethodHMAC:
		return checkSecret(method, key)
	case *gojwt.SigningMethodRSA, *gojwt.SigningMethodRSAPSS:
		public, ok := key.(*rsa.PublicKey)
		if !ok {
			return fmt.Errorf("it needs an *rsa.PublicKey, not %T", key)
		}
		if bits := public.N.BitLen(); bits < minRSABits {
			return fmt.Errorf("a key of %d bits, under the %d that it needs", bits, minRSABits)
		}
	case *gojwt.SigningMethodECDSA:
		public, ok := key.(*ecdsa.PublicKey)
		if !ok {
			return fmt.Errorf("it needs an *ecdsa.PublicKey, not %T", key)
		}
		if bits := public.Curve.Params().BitSize; bits != method.CurveBits {
			return fmt.Errorf("a key on a curve of %d bits instead of %d", bits, method.CurveBits)
		}
	case *gojwt.SigningMethodEd25519:
		public, ok := key.(ed25519.PublicKey)
		if !ok {
			return fmt.Errorf("it needs an ed25519.PublicKey, not %T", key)
		}
		if len(public) != ed25519.PublicKeySize {
			return fmt.Errorf("a key of %d bytes instead of %d", len(public), ed25519.PublicKeySize)
		}
	}
	return nil
}

// checkSecret checks a shared secret against RFC 7518, section 3.2. It refuses a PEM block, which contains a key of another kind, often a public
// key. If a public key were the secret, anyone who knows the key could make tokens.
func checkSecret(method *gojwt.SigningMethodHMAC, key any) error {
	secret, ok := key.([]byte)
	if !ok {
		return fmt.Errorf("it needs a []byte, not %T", key)
	}
	if bytes.HasPrefix(bytes.TrimSpace(secret), []byte("-----BEGIN ")) {
		return errors.New("a PEM block is no secret: parse the key in it")
	}
	if least := method.Hash.Size(); len(secret) < least {
		return fmt.Errorf("a secret of %d bytes, under the %d that it needs", len(secret), least)
	}
	return nil
}
