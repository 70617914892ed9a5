package websocket

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
)

// The fields of the handshake (RFC 6455, section 11.3).
const (
	fieldKey        = "Sec-WebSocket-Key"
	fieldVersion    = "Sec-WebSocket-Version"
	fieldAccept     = "Sec-WebSocket-Accept"
	fieldProtocol   = "Sec-WebSocket-Protocol"
	fieldExtensions = "Sec-WebSocket-Extensions"
)

const (
	version   = "13"
	protocol  = "websocket"
	keyLength = 24 // of 16 bytes in base64
	// acceptGUID is appended to a client's key to compute the answer (section 1.3).
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

var (
	versionField    = filo.NewField(fieldVersion, version)
	upgradeField    = filo.NewField("Upgrade", protocol)
	connectionField = filo.NewField("Connection", "Upgrade") // a sender of Upgrade must send this too (RFC 9110, section 7.8)
	allowField      = filo.NewField("Allow", "GET")
)

var (
	errMethod     = filo.Error(405, "a WebSocket is opened by GET")
	errNoUpgrade  = filo.Error(426, "this is a WebSocket: the client must ask for an upgrade to it")
	errVersion    = filo.Error(426, "the version of the WebSocket protocol must be 13")
	errKey        = filo.Error(400, "Sec-WebSocket-Key must be there once, with 16 bytes in base64")
	errBody       = filo.Error(400, "the request that opens a WebSocket must have no body")
	errExtensions = filo.Error(400, "Sec-WebSocket-Extensions is malformed")
	errProtocols  = filo.Error(400, "Sec-WebSocket-Protocol is malformed")
	errOrigin     = filo.Error(403, "pages of this origin may not connect")
)

// agreement is the result of a handshake.
type agreement struct {
	subprotocol string
	deflate     deflateTerms
}

// shake checks the client's handshake (section 4.2.1), and sets the response fields of the server's handshake.
func (u *Upgrader) shake(c *filo.Ctx) (a agreement, err error) {
	request, response := &c.Request.Header, &c.Response.Header
	if err := checkRequest(c); err != nil {
		return a, err
	}
	key, err := handshakeKey(request)
	if err != nil {
		return a, err
	}
	if !u.originAllowed(c) {
		return a, errOrigin
	}
	if a.subprotocol, err = u.chooseSubprotocol(request); err != nil {
		return a, err
	}
	if a.deflate, err = negotiate(request, u.options.Compression); err != nil {
		return a, err
	}
	response.Set(fieldAccept, acceptKey(key))
	if a.subprotocol != "" {
		response.Set(fieldProtocol, a.subprotocol)
	}
	if a.deflate.on {
		response.Set(fieldExtensions, a.deflate.answer())
	}
	return a, nil
}

// checkRequest checks the requirements that don't depend on the options.
func checkRequest(c *filo.Ctx) error {
	request, response := &c.Request.Header, &c.Response.Header
	switch {
	case c.Request.Method() != "GET":
		response.SetField(&allowField)
		return errMethod
	case c.Request.Proto() == "HTTP/1.0", !hasToken(request, "Upgrade", protocol), !hasToken(request, "Connection", "upgrade"):
		refuseUpgrade(response)
		return errNoUpgrade
	}
	value, once := only(request, fieldVersion)
	switch {
	case !once || string(value) != version:
		refuseUpgrade(response)
		return errVersion
	case c.Request.ContentLength() != 0:
		return errBody // otherwise the body's bytes would be parsed as frames
	}
	return nil
}

// refuseUpgrade sets the fields of a 426, which state the protocol and the version that the client must request (section 4.4).
func refuseUpgrade(response *filo.Header) {
	response.SetField(&upgradeField)
	response.SetField(&connectionField)
	response.SetField(&versionField)
}

// withdraw removes the response fields that shake has set.
func withdraw(response *filo.Header) {
	for _, name := range [...]string{fieldAccept, fieldProtocol, fieldExtensions} {
		response.Del(name)
	}
}

// handshakeKey returns the client's nonce as it was sent.
func handshakeKey(request *filo.Header) ([]byte, error) {
	key, once := only(request, fieldKey)
	var nonce [18]byte
	if !once || len(key) != keyLength {
		return nil, errKey
	}
	if n, err := base64.StdEncoding.Decode(nonce[:], key); err != nil || n != 16 {
		return nil, errKey
	}
	return key, nil
}

// acceptKey returns the answer to a nonce (section 4.2.2).
func acceptKey(key []byte) string {
	var text [keyLength + len(acceptGUID)]byte
	copy(text[copy(text[:], key):], acceptGUID)
	sum := sha1.Sum(text[:])
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (u *Upgrader) originAllowed(c *filo.Ctx) bool {
	origins := 0
	for value := range c.Request.Header.Values("Origin") {
		if origins++; origins > 1 || !u.origins.allows(string(value), middleware.Host(c), middleware.Scheme(c)) {
			return false
		}
	}
	return true
}

// chooseSubprotocol returns the first of the server's subprotocols that the client offers, or "" if there is none.
func (u *Upgrader) chooseSubprotocol(request *filo.Header) (string, error) {
	best := len(u.options.Subprotocols)
	for value := range request.Values(fieldProtocol) {
		valid := eachToken(string(value), func(token string) {
			if i := slices.Index(u.options.Subprotocols[:best], token); i >= 0 {
				best = i
			}
		})
		if !valid {
			return "", errProtocols
		}
	}
	if best == len(u.options.Subprotocols) {
		return "", nil
	}
	return u.options.Subprotocols[best], nil
}

// only returns the value of a field that must be present exactly once.
func only(h *filo.Header, name string) (value []byte, once bool) {
	for v := range h.Values(name) {
		if once {
			return nil, false
		}
		value, once = v, true
	}
	return value, once
}

// hasToken reports whether a field whose value is a list contains the token.
func hasToken(h *filo.Header, name, token string) bool {
	for value := range h.Values(name) {
		for element := range strings.SplitSeq(string(value), ",") {
			if strings.EqualFold(strings.Trim(element, " \t"), token) {
				return true
			}
		}
	}
	return false
}
