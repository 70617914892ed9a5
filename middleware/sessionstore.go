package middleware

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/filohttp/filo"
)

// sessionSealer makes cookies of sessions and sessions of cookies: AES-256-GCM, with a random nonce in front, which both
// hides the content and shows any change of it.
type sessionSealer struct {
	keys []cipher.AEAD
	name []byte // of the cookie: a value for one of another name isn't taken for it
}

func newSessionSealer(secrets [][]byte, name string) *sessionSealer {
	s := &sessionSealer{name: []byte(name)}
	for _, secret := range secrets {
		check(len(secret) >= 32, "Session needs Keys of at least 32 bytes each")
		key, err := hkdf.Key(sha256.New, secret, nil, "filo session cookie", 32)
		if err != nil {
			panic("middleware: Session: " + err.Error())
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			panic("middleware: Session: " + err.Error())
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			panic("middleware: Session: " + err.Error())
		}
		s.keys = append(s.keys, aead)
	}
	return s
}

func (s *sessionSealer) seal(data []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.keys[0].Seal(nil, nil, data, s.name))
}

// open returns the data of a cookie, and whether it was sealed by the key that seals now.
func (s *sessionSealer) open(value string) (data []byte, current, ok bool) {
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

// NewSessionMemory returns a store of sessions in memory that takes maxBytes at most, 64 MB if that is 0. When it is full, the
// sessions that were not used for longest are forgotten: first those that were never used by another request than their first,
// then those that were, and then those that were renewed, as when somebody logs in. So visitors by the thousands don't end the
// sessions of who has logged in. Sessions don't survive the process.
func NewSessionMemory(maxBytes int) SessionStore {
	check(maxBytes >= 0, "NewSessionMemory with a negative size")
	if maxBytes == 0 {
		maxBytes = 64 << 20
	}
	return &sessionMemory{records: lru[SessionRecord]{capacity: maxBytes}}
}

type sessionMemory struct{ records lru[SessionRecord] }

func (m *sessionMemory) Load(_ *filo.Ctx, id string) (SessionRecord, error) {
	record, _ := m.records.get([]byte(id), time.Now())
	return record, nil
}

func (m *sessionMemory) Save(_ *filo.Ctx, id string, record SessionRecord) (saved bool, err error) {
	rank := rankNew
	if record.Renewed {
		rank = rankKept
	}
	m.records.update(id, rank, time.Now(), func(old SessionRecord, _ bool) (SessionRecord, int, time.Time, bool) {
		saved = old.Version == record.Version
		record.Version++
		return record, entryCost + len(id) + len(record.Data), record.Expires, saved
	})
	return saved, nil
}

func (m *sessionMemory) Delete(_ *filo.Ctx, id string) error {
	m.records.remove([]byte(id))
	return nil
}
