package main

import (
	"encoding/binary"
	"math/rand/v2"
)

// largeBody is the size of a large request or answer.
const largeBody = 1 << 20

// pattern is the text that bodies are cut from. Each request has a place of its own there, so that no body can pass for another.
type pattern []byte

func newPattern(seed uint64) pattern {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make(pattern, 2*largeBody)
	rand.NewChaCha8(key).Read(p)
	return p
}

// cut returns a request's part of the pattern.
func (p pattern) cut(number uint64, size int) []byte {
	from := int(number * 7919 % uint64(len(p)-size+1))
	return p[from : from+size : from+size]
}
