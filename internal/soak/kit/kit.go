// Package kit has what long-running test programs need: bodies that can't be confused with each other, a certificate, and a measure of what
// is left behind.
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

// Pattern is the text that bodies are cut from. Each request has its own place in it, so that no body can be confused with another.
type Pattern []byte

// NewPattern returns the same pattern for the same seed.
func NewPattern(seed uint64) Pattern {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make(Pattern, 2*LargeBody)
	chacha.NewChaCha8(key).Read(p)
	return p
}

// At returns where a request's part of the pattern begins.
func (p Pattern) At(number uint64, size int) int { return int(number * 7919 % uint64(len(p)-size+1)) }

// Cut returns a request's part of the pattern.
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

// NewCertificate returns a certificate that no client checks.
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
	// KeptBuffers is the memory that the process may keep from its first requests on: filo has a free list of buffers for large bodies, of
	// at most 64 MB.
	KeptBuffers = 64 << 20
	// MemorySlack is how much the memory in use may grow: the heap always has gaps.
	MemorySlack = 16 << 20
)

// Footprint holds a process's counts of resources.
type Footprint struct {
	Goroutines  int
	Descriptors []string // the files and sockets to which they are open
	Memory      uint64   // in bytes: the heap's spans and the stacks
}

func (f Footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB", f.Goroutines, len(f.Descriptors), float64(f.Memory)/(1<<20))
}

// Measure measures this process.
func Measure() (f Footprint, err error) {
	// The contents of a sync.Pool are free after the second collection.
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
