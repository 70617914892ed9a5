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

// minRSABits is the smallest size that RFC 7518, section 3.3, allows.
const minRSABits = 2048

// keyring finds the key for a token. It is immutable.
type keyring struct {
	// function is the user's KeyFunc, nil if the keys are fixed.
	function gojwt.Keyfunc
	// fixed has a key for each algorithm for which it is meant, so that a token's algorithm can't cause a key to be used for another one.
	fixed map[keyID]any
	// byKid says that tokens name their key. Otherwise the kid in fixed is "".
	byKid bool
}

type keyID struct{ kid, algorithm string }

// newKeyring panics unless exactly one kind of key is given, each key fits an algorithm, and each algorithm has a key.
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

// find returns the key to verify a token with, by its header, which an attacker may have made.
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

// checkKey returns why a key can't verify signatures of a method, nil if it can.
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

// checkSecret checks a shared secret against RFC 7518, section 3.2. A PEM block is a key of another kind, and often public: anyone who
// knows it could make tokens.
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
