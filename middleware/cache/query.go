package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/syntax"
)

// maxQueryBytes is the maximum size of a QUERY's content for its answer to be kept: the content is read and hashed before the lookup.
const maxQueryBytes = 64 << 10

// query is a hash of what RFC 10008, section 2.7, requires in the key of an answer to QUERY: "the request content and related metadata". The
// cache uses the content as it was sent, and all fields that describe it. Nothing is normalized: two contents that a parser considers equal
// may differ to the handler.
type query [sha256.Size]byte

// readQuery returns the query of a QUERY request, and nil for other methods. It reports false if the request has content that the cache
// doesn't read, or that middleware outside has begun to read.
func readQuery(c *filo.Ctx) (q *query, ok bool, err error) {
	size := c.Request.ContentLength()
	if string(c.Request.MethodBytes()) != "QUERY" {
		return nil, size == 0, nil
	}
	if size < 0 || size > maxQueryBytes {
		return nil, false, nil
	}
	body, whole, err := inside.WholeBody(c)
	if err != nil || !whole {
		return nil, false, err
	}
	text := make([]byte, 0, 512)
	for name, value := range c.Request.Header.All() {
		if len(name) > len("content-") && syntax.EqualFold(name[:len("content-")], "content-") && !syntax.EqualFold(name, "content-length") {
			text = appendSized(text, bytes.ToLower(name))
			text = appendSized(text, value)
		}
	}
	hash := sha256.New()
	hash.Write(binary.AppendUvarint(nil, uint64(len(text))))
	hash.Write(text)
	hash.Write(body)
	q = new(query)
	hash.Sum(q[:0])
	return q, true, nil
}

// appendSized appends text after its length, so that two sequences of texts never give the same bytes.
func appendSized(dst, text []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// queries is the list of names in the rule for a target's answers to QUERY. Its only name stands for the content and the fields that describe
// it; no header field can have this name.
var queries = []string{"(content)"}

// appendQueries makes the key of the rule for a target's answers to QUERY. The answers' keys contain the rule's number: when the rule is
// removed, the answers can't be found any more.
func appendQueries(target []byte) []byte { return append(target, " QUERY"...) }

// appendKey appends the key of the answer to q. The key contains the number of the target's rule.
func (q *query) appendKey(target []byte, rule *varyRule) []byte {
	key := append(appendQueries(target), ' ')
	key = binary.AppendUvarint(key, rule.number)
	return shortKey(append(key, q[:]...))
}

// appendUnruled is like appendKey, for a target without a rule. Such a target has no stored answer to QUERY. The key begins with the target's
// key and a space, so that the method remove finds flights with this key. It needn't find notes.
func (q *query) appendUnruled(target []byte) []byte {
	return append(append(appendQueries(target), '-'), q[:]...)
}
