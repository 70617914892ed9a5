package recipes

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Parameters of Argon2id: the second set that RFC 9106, section 4, recommends, but with one lane instead of four, since each lane
// may take a core. 64 MB and three passes take about 0.1 s of a core.
const (
	argonPasses  = 3
	argonMemory  = 64 << 10 // in KB
	argonThreads = 1
	saltBytes    = 16
	hashBytes    = 32
)

// Passwords hashes passwords and compares them with hashes. A hash takes 64 MB and 100 ms of a core, so a Passwords computes only as many hashes at
// once as there are processors. In a flood of logins, further hashes wait, so the flood can't use up the machine's memory.
type Passwords struct{ slots chan struct{} }

// NewPasswords returns a Passwords that computes as many hashes at once as there are processors.
func NewPasswords() *Passwords {
	return &Passwords{slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Hash returns the text to store for a password. It contains the parameters and a random salt.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	hash, err := p.derive(ctx, password, salt, argonPasses, argonMemory, argonThreads, hashBytes)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonPasses, argonThreads,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(hash)), nil
}

var errHash = errors.New("not an Argon2id hash")

// Matches reports whether stored is a hash of the password. For a user who doesn't exist, call it with the hash of any password: otherwise the
// answer's latency reveals who has an account.
func (p *Passwords) Matches(ctx context.Context, stored, password string) (bool, error) {
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return false, errHash
	}
	var memory, passes uint32
	var threads uint8
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &passes, &threads); err != nil {
		return false, errHash
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return false, errHash
	}
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(want) == 0 {
		return false, errHash
	}
	got, err := p.derive(ctx, password, salt, passes, memory, threads, uint32(len(want)))
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1, err
}

// derive computes a hash. It waits for a free slot, unless ctx ends first.
func (p *Passwords) derive(ctx context.Context, password string, salt []byte, passes, memory uint32, threads uint8, size uint32) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.slots }()
	if ctx.Err() != nil { // a slot was free as well, and select chose that case
		return nil, context.Cause(ctx)
	}
	return argon2.IDKey([]byte(password), salt, passes, memory, threads, size), nil
}
