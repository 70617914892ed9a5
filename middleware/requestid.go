package middleware

import (
	"cmp"
	crypto "crypto/rand"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// RequestIDOptions configures RequestID.
type RequestIDOptions struct {
	// TrustIncoming keeps the id in the request, if it is valid: 1 to 127 ASCII letters, digits, and bytes of "-_.:+/=@,;~". Set it only if
	// all requests come from a proxy that sets the field. A client that can choose ids can make its requests look like another client's
	// requests in logs.
	TrustIncoming bool
	// Header is the name of the field that contains the id, in requests and responses. Default X-Request-ID.
	Header string
	// Generate makes an id of your own scheme. If the id isn't valid in the sense of TrustIncoming, RequestID uses an id of the default kind
	// instead. Many goroutines call Generate at once. By default an id is 128 random bits from a cryptographic generator, in 32 hexadecimal
	// digits.
	Generate func() string
}

// maxRequestID is the maximum length of an id in bytes.
const maxRequestID = 127

// generatedID is a random id. Making one allocates only this array. It is never changed once RequestIDOf can see it.
type generatedID [generatedIDBytes]byte

// givenID is an id from the request or from Generate. It is never changed either.
type givenID struct {
	length uint8
	text   [maxRequestID]byte
}

func newGivenID(text []byte) *givenID {
	id := new(givenID)
	id.length = uint8(copy(id.text[:], text))
	return id
}

func validRequestID(s []byte) bool {
	if len(s) == 0 || len(s) > maxRequestID {
		return false
	}
	for _, c := range s {
		if !requestIDBytes[c] {
			return false
		}
	}
	return true
}

var requestIDBytes = func() (set [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:+/=@,;~") {
		set[c] = true
	}
	return set
}()

// idGenerators is a pool of generators. Each generator is used by one goroutine at a time, so it needs no lock. Their output is
// indistinguishable from random bits, so an id reveals nothing about other ids.
var idGenerators = sync.Pool{New: func() any {
	var seed [32]byte
	crypto.Read(seed[:]) // never fails
	return rand.NewChaCha8(seed)
}}

// generatedIDBytes is the length of a random id, whose bytes are hexadecimal digits of 4 bits each.
const generatedIDBytes = 32

func (id *generatedID) generate() {
	generator := idGenerators.Get().(*rand.ChaCha8)
	a, b := generator.Uint64(), generator.Uint64()
	idGenerators.Put(generator)
	for i, bits := range [...]uint64{a >> 32, a & 0xffffffff, b >> 32, b & 0xffffffff} {
		binary.LittleEndian.PutUint64(id[8*i:], hexDigits(bits))
	}
}

// hexDigits returns the eight hexadecimal digits of 32 bits, one in each byte. It computes all eight at once: if they were written one by
// one, a later read of whole words would stall until the last write.
func hexDigits(x uint64) uint64 {
	const ones = 0x0101010101010101
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (x + 6*ones) >> 4 & ones
	return x + '0'*ones + letters*('a'-'9'-1)
}

type requestIDKey struct{}

// RequestIDOf returns the id that RequestID gave the request, or "" if there is none.
func RequestIDOf(c *filo.Ctx) string {
	switch id := c.Get(requestIDKey{}).(type) {
	case *generatedID:
		return unsafe.String(&id[0], len(id)) // the string keeps the id's memory alive
	case *givenID:
		return unsafe.String(&id.text[0], id.length)
	}
	return ""
}

// RequestID gives each request an id, for logs and for users who report a problem. RequestIDOf returns the id, a field of the
// response contains it, and Ctx.Logger logs it as "request_id". Put it outermost, so that all other middleware can log the id.
func RequestID(options ...RequestIDOptions) filo.Middleware {
	o := setup.One("middleware: RequestID", options)
	o.Header = cmp.Or(o.Header, "X-Request-ID")
	checkFieldName("RequestIDOptions.Header", o.Header)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.AddLogAttributes(appendRequestID)
			if id := o.given(c); id != nil {
				c.Set(requestIDKey{}, id)
				c.Response.Header.SetBytes(o.Header, id.text[:id.length])
				return next(c)
			}
			id := new(generatedID)
			id.generate()
			c.Set(requestIDKey{}, id)
			c.Response.Header.SetBytes(o.Header, id[:])
			return next(c)
		}
	}
}

// appendRequestID adds the id to the records of the request's Logger.
func appendRequestID(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
	return appendText(attributes, "request_id", RequestIDOf(c))
}

// given returns the id that the request contains, or that Generate has made, or nil if there is neither.
func (options *RequestIDOptions) given(c *filo.Ctx) *givenID {
	if options.TrustIncoming {
		if incoming := c.Request.Header.GetBytes(options.Header); validRequestID(incoming) {
			return newGivenID(incoming)
		}
	}
	if options.Generate != nil {
		if made := []byte(options.Generate()); validRequestID(made) {
			return newGivenID(made)
		}
	}
	return nil
}
