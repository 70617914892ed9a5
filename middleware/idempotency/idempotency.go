// Package idempotency is middleware that lets clients safely repeat a request when they don't know whether it has arrived: the request is
// never executed twice.
//
// If this middleware is inside of session.New, it stores the answer before the session is saved. If saving the session then fails, the client
// gets an error, and its repetition gets the stored answer, although the session hasn't changed.
//
//	r.POST("/orders", order, idempotency.New(idempotency.Options{Scope: idempotency.AuthorizationScope}))
//
// The documentation of package middleware says where this middleware belongs among others.
package idempotency

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/refusals"
	"github.com/filohttp/filo/internal/replay"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/storelog"
	"github.com/filohttp/filo/internal/syntax"
)

// Options configures New. Scope is required.
type Options struct {
	// Methods are the methods whose requests may have a key, POST and PATCH if nil.
	Methods []string
	// Required refuses requests of those methods that have no key.
	Required bool
	// Scope returns the owner of a request's keys, such as the name of an account. The result is borrowed. The same key in two scopes is
	// treated as two keys. Clients in one scope can get each other's answers. A request that has a key but an empty scope is refused with 400.
	// Scope is required; AuthorizationScope is such a function.
	Scope func(c *filo.Ctx) []byte
	// Store keeps the answers, and can be shared by several servers. Nil means a store in memory of MaxBytes. If the Store can't keep an
	// answer, the error is logged, unless it wraps filo.ErrBusy because the Store has logged it already.
	Store Store
	// TTL is how long an answer is kept, a day if 0.
	TTL time.Duration
	// MaxRun is how long a request may run before a Store gives its key to another request, 5 minutes if 0. It frees the keys of a server
	// that has died. It must be longer than any handler takes. The store in memory never frees a key while its request runs.
	MaxRun time.Duration
	// MaxBodyBytes is the maximum size of a stored body, 1 MB if 0.
	MaxBodyBytes int
	// MaxBytes is the size of the store in memory, 64 MB if 0. MaxScopeBytes is the limit for the keys of one scope, a quarter of MaxBytes if
	// 0, which is enough for some 30,000 keys. When a limit is reached, the oldest answers are removed, and repetitions of their requests get
	// 409. When no answers are left, further keys are refused until older keys expire: with 429 if their scope is full, with 503 if the whole
	// store is full. These refusals aren't logged one by one (filo.ErrBusy).
	MaxBytes, MaxScopeBytes int
}

// New returns middleware that lets clients safely repeat a request when they don't know whether it has arrived. The client repeats the
// request with the same Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07), and gets the answer to the first request, with
// Idempotency-Replayed: true. The request isn't executed twice. The key is a string in quotes, or a token, of at most 255 bytes.
//
// A repetition that arrives while the first request runs gets 409 (Conflict). A key that was used for another request, with
// another target or body, gets 422 (Unprocessable Content). A malformed key, or a missing one if Required, gets 400.
//
// All answers are stored, except a handler's 401, 403, 429 and 503, which mean that the handler did nothing: their key can be used again.
// If an answer streams or is too large, the middleware stores only that the request was executed, and a repetition gets 409. The same holds
// after a handler that panicked, returned filo.ErrAbort or exceeded its Timeout, because its effect is unknown. But if a request leaves the
// queue of an inner ConcurrencyLimit without a place, its key can be used again, even if its client has left or its Timeout has answered.
//
// So that a stored answer suits clients that accept other content codings, the handler sees no Accept-Encoding that allows a coding, unless
// the client refuses uncompressed answers. A Compress inside then has nothing to do; a Compress outside compresses. If an answer has a
// coding nevertheless, a client that repeats the request but doesn't accept that coding gets 406.
//
// The middleware reads the whole request body. Put it inside of the middleware that identifies the client, of BodyLimit and of Decompress. If
// other middleware has read the body by other means than Body and Form, a request with a key fails with an error that has no status. New
// panics without a Scope.
func New(options Options) filo.Middleware {
	m := newKeeper(options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if !slices.Contains(m.Methods, c.Method()) {
				return next(c)
			}
			return m.serve(c, next)
		}
	}
}

// AuthorizationScope is a Scope for clients that identify themselves by Authorization and nothing else. A client that uses cookies,
// or keys in other fields, has no scope, and its requests with a key are refused.
func AuthorizationScope(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("Authorization") }

var check = setup.Checker("idempotency")

type keeper struct {
	Options
	refused refusals.Log
}

var (
	errKeyMissing  = filo.Error(400, "Idempotency-Key is required for this request")
	errKeyInvalid  = filo.Error(400, "Idempotency-Key must be one string in quotes, or a token, of at most 255 bytes")
	errNoScope     = filo.Error(400, "an Idempotency-Key is for clients that say who they are, and this request doesn't")
	errKeyRunning  = filo.Error(409, "a request with the same Idempotency-Key is being processed")
	errKeyReused   = filo.Error(422, "the Idempotency-Key was used for another request")
	errKeyNoAnswer = filo.Error(409, "the request was processed before, and its response wasn't kept")
	errKeyCoding   = filo.Error(406, "the request was processed before, and its response was kept in a content coding that this client refuses")
	errScopeFull   = filo.Error(429, "this client has too many Idempotency-Keys")
	errKeysFull    = &filo.HTTPError{Status: 503, Detail: "too many Idempotency-Keys are stored", Err: filo.ErrBusy}
)

func newKeeper(o Options) *keeper {
	check(o.TTL >= 0 && o.MaxRun >= 0 && o.MaxBodyBytes >= 0 && o.MaxBytes >= 0 && o.MaxScopeBytes >= 0,
		"New with a negative TTL, MaxRun, MaxBodyBytes, MaxBytes or MaxScopeBytes")
	if o.Methods == nil {
		o.Methods = []string{"POST", "PATCH"}
	}
	setup.CheckMethods(check, "Methods", o.Methods)
	check(o.Scope != nil, "New needs a Scope, which tells clients and their keys apart")
	o.TTL = cmp.Or(o.TTL, 24*time.Hour)
	o.MaxRun = cmp.Or(o.MaxRun, 5*time.Minute)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 1<<20)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxScopeBytes = cmp.Or(o.MaxScopeBytes, o.MaxBytes/4)
	if o.Store == nil {
		o.Store = newMemory(o.MaxBytes, o.MaxScopeBytes)
	}
	return &keeper{Options: o}
}

func (m *keeper) serve(c *filo.Ctx, next filo.Handler) error {
	name, err := m.key(c)
	if err != nil {
		return err
	}
	if name == nil {
		return next(c)
	}
	scope := m.Scope(c)
	if len(scope) == 0 {
		return errNoScope
	}
	fingerprint, err := fingerprintOf(c)
	if err != nil {
		return err
	}
	// The key is a hash, so that a store doesn't learn the result of Scope.
	sum := hashOf(scope, name)
	key := base64.RawURLEncoding.EncodeToString(sum[:])
	claim := Record{
		Fingerprint: fingerprint, Scope: hashOf(scope), Claim: rand.Text(), Expires: time.Now().Add(m.MaxRun),
	}
	found, first, err := m.Store.Claim(c, key, claim)
	switch {
	case err != nil:
		if errors.Is(err, errKeysFull) {
			m.refused.Note(c, "idempotency: requests are refused, since the store is full of keys")
		}
		return err
	case first:
		return m.run(c, next, key, claim)
	case found.Fingerprint != fingerprint:
		return errKeyReused
	case found.Response == nil:
		return errKeyRunning
	}
	return replayAnswer(c, found.Response)
}

// replayAnswer sends an answer that was kept. A response without bytes means that the request's answer couldn't be kept.
func replayAnswer(c *filo.Ctx, response []byte) error {
	if len(response) == 0 {
		return errKeyNoAnswer
	}
	kept, err := replay.Parse(response)
	if err != nil {
		return err
	}
	if coding := kept.Get("Content-Encoding"); coding != "" {
		accepted, number := acceptedBy(c), syntax.CodingNumber([]byte(coding))
		if number < 0 || accepted.Weight(number) == 0 {
			return errKeyCoding
		}
	}
	kept.Give(c)
	c.Response.Header.Set("Idempotency-Replayed", "true")
	return nil
}

// acceptedBy returns the content codings that the client accepts.
func acceptedBy(c *filo.Ctx) (accepted syntax.Codings) {
	for list := range c.Request.Header.Values("Accept-Encoding") {
		accepted.Read(list)
	}
	return accepted
}

// run lets the handler execute the request, and keeps its answer.
func (m *keeper) run(c *filo.Ctx, next filo.Handler, key string, claim Record) error {
	undone, answer := false, []byte{}
	defer func() { // runs after a panic, too
		done := claim
		done.Response, done.Expires = answer, time.Now().Add(m.TTL)
		// The handler has executed the request: the client gets the answer, even if it couldn't be stored.
		storelog.Failure(c, "idempotency: storing a response or releasing a key failed", m.settle(c, key, undone, done))
	}()
	// A client that repeats the request may accept other codings, and gets the same answer.
	accepted := acceptedBy(c)
	if _, ok := accepted.Plain(); ok {
		c.Request.Header.Set("Accept-Encoding", "identity")
	}
	outer := replay.Fields(c)
	err := next(c)
	if err != nil {
		err = c.RenderError(err) // renders the answer that will be stored
	}
	if undone = refused(c, err); undone || errors.Is(err, filo.ErrAbort) {
		return err
	}
	if body, ok := c.Response.WholeBody(); ok && len(body) <= m.MaxBodyBytes {
		if whole, ok := replay.Record(c, outer); ok {
			answer = whole.AppendTo(nil)
		}
	}
	return err
}

// refused reports whether a request was refused before anything was done. The error is what RenderError returned.
func refused(c *filo.Ctx, err error) bool {
	if _, ok := errors.AsType[*admit.Refusal](err); ok {
		return true // even if a time-out has answered
	}
	switch known, ok := errors.AsType[*filo.HTTPError](err); {
	case c.Committed(): // a time-out has answered, whatever the handler has returned afterwards
		return false
	case errors.Is(err, filo.ErrAbort): // the error has no answer, since the client has left
		return ok && nothingDone(known.Status)
	}
	return nothingDone(c.Status())
}

// nothingDone reports whether a status says that a request was refused before anything was done: because of its sender, or only temporarily.
func nothingDone(status int) bool {
	return status == 401 || status == 403 || status == 429 || status == 503
}

// errBodyBegun is answered with a 500. Without this error, two bodies that differ only in the part already read would count as the same body.
var errBodyBegun = errors.New("idempotency: other middleware has read from the body before, as by BodyReader or MultipartForm: put it inside, or have it call Body first")

var errKeyLost = errors.New("the request took longer than MaxRun, and another request has claimed its key")

// settle ends the claim of a key.
func (m *keeper) settle(c *filo.Ctx, key string, undone bool, done Record) error {
	if undone {
		return m.Store.Release(c, key, done.Claim)
	}
	kept, err := m.Store.Complete(c, key, done)
	if err == nil && !kept {
		return errKeyLost
	}
	return err
}

// key returns the key of a request, which is borrowed, or nil if the request has none.
func (m *keeper) key(c *filo.Ctx) ([]byte, error) {
	var key []byte
	count := 0
	for value := range c.Request.Header.Values("Idempotency-Key") {
		key = value
		count++
	}
	switch {
	case count == 0 && m.Required:
		return nil, errKeyMissing
	case count == 0:
		return nil, nil
	case count > 1 || !validKey(key):
		return nil, errKeyInvalid
	}
	if key[0] == '"' {
		key = key[1 : len(key)-1]
	}
	return key, nil
}

// validKey accepts a string of structured fields (RFC 9651, section 3.3.3), without escapes, or what many
// clients send: a token.
func validKey(key []byte) bool {
	inQuotes := len(key) > 2 && key[0] == '"' && key[len(key)-1] == '"'
	if inQuotes {
		key = key[1 : len(key)-1]
	}
	if len(key) == 0 || len(key) > 255 {
		return false
	}
	for _, b := range key {
		if b < ' ' || b >= 0x7F || b == '"' || b == '\\' || !inQuotes && (b == ' ' || b == ',' || b == ';') {
			return false
		}
	}
	return true
}

// fingerprintOf hashes the parts of a request that must be equal in a repetition.
func fingerprintOf(c *filo.Ctx) (sum [32]byte, err error) {
	body, whole, err := inside.WholeBody(c)
	switch {
	case err != nil:
		return sum, err
	case !whole:
		return sum, errBodyBegun
	}
	r := &c.Request
	return hashOf(r.MethodBytes(), asked.Host(c), r.TargetBytes(), r.Header.GetBytes("Content-Type"), body), nil
}

// hashOf hashes parts so that the hash also depends on where each part ends.
func hashOf(parts ...[]byte) (sum [32]byte) {
	hash := sha256.New()
	var size [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		hash.Write(size[:])
		hash.Write(part)
	}
	hash.Sum(sum[:0])
	return sum
}
