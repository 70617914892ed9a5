package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
)

// sealer encrypts sessions into cookies and decrypts them: AES-256-GCM, with a random nonce in front of the data, hides the content and
// detects any change of it.
type sealer struct {
	keys []cipher.AEAD
	name []byte // the cookie's name: a value for a cookie of another name isn't accepted
}

func newSealer(secrets [][]byte, name string) *sealer {
	s := &sealer{name: []byte(name)}
	for _, secret := range secrets {
		check(len(secret) >= 32, "New needs Keys of at least 32 bytes each")
		key, err := hkdf.Key(sha256.New, secret, nil, "filo session cookie", 32)
		if err != nil {
			panic("session: " + err.Error())
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			panic("session: " + err.Error())
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			panic("session: " + err.Error())
		}
		s.keys = append(s.keys, aead)
	}
	return s
}

func (s *sealer) seal(data []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.keys[0].Seal(nil, nil, data, s.name))
}

// open returns the data of a cookie, and whether the first key sealed it.
func (s *sealer) open(value string) (data []byte, current, ok bool) {
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return nil, false, false
	}
	for i, key := range s.keys {
		if data, err := key.Open(nil, nil, sealed, s.name); err == nil {
			return data, i == 0, true
		}
	}
	return nil, false, false
}
