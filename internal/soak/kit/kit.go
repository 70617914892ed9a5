// Package kit has helpers for long-running test programs: bodies that can't be confused with each other, a certificate, and counts that
// reveal leaks.
package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"math/big"
	chacha "math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// LargeBody is the largest size of a request's or an answer's body.
const LargeBody = 1 << 20

// Pattern is a random text from which bodies are cut. The body of each request begins at a different offset, so that no body can be confused
// with another.
type Pattern []byte

// NewPattern returns the pattern for a seed: the same seed always gives the same pattern.
func NewPattern(seed uint64) Pattern {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make(Pattern, 2*LargeBody)
	chacha.NewChaCha8(key).Read(p)
	return p
}

// At returns the offset at which the body of a request begins.
func (p Pattern) At(number uint64, size int) int { return int(number * 7919 % uint64(len(p)-size+1)) }

// Cut returns the body of a request: size bytes of the pattern.
func (p Pattern) Cut(number uint64, size int) []byte {
	from := p.At(number, size)
	return p[from : from+size : from+size]
}

// Compare compares a body to the expected one.
func Compare(body, want []byte) error {
	same := 0
	for same < min(len(body), len(want)) && body[same] == want[same] {
		same++
	}
	if same < max(len(body), len(want)) {
		return fmt.Errorf("a body of %d bytes instead of %d, wrong from byte %d on", len(body), len(want), same)
	}
	return nil
}

// NewCertificate returns a self-signed certificate, for clients that don't verify it.
func NewCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

const (
	// KeptBuffers is how much memory the process may retain after its first requests: filo keeps up to 64 MB of buffers for large bodies on a
	// free list.
	KeptBuffers = 64 << 20
	// MemorySlack is how much the memory in use may grow without a leak, because the heap's spans always have gaps.
	MemorySlack = 16 << 20
)

// Footprint holds a process's counts of resources.
type Footprint struct {
	Goroutines  int
	Descriptors []string // each with its file or socket
	Memory      uint64   // in bytes: heap spans in use, and stacks
}

func (f Footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB", f.Goroutines, len(f.Descriptors), float64(f.Memory)/(1<<20))
}

// Measure measures this process.
func Measure() (f Footprint, err error) {
	// Only the second collection frees what a sync.Pool holds.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.Goroutines, f.Memory = runtime.NumGoroutine(), m.HeapInuse+m.StackInuse
	const directory = "/proc/self/fd"
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(directory, entry.Name())); err == nil {
			f.Descriptors = append(f.Descriptors, entry.Name()+" "+target)
		}
	}
	return f, err
}

// Stacks returns the stacks of all goroutines.
func Stacks() []byte {
	buffer := make([]byte, 4<<20)
	return buffer[:runtime.Stack(buffer, true)]
}
