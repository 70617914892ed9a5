// Package field holds the numbers of the field names that the server knows, and the list of a message's fields.
package field

import "github.com/filohttp/filo/internal/syntax"

// ID is the number of a field name that the server or most handlers look up. A lookup by number compares no bytes.
type ID uint8

// The names before Framing decide how a message is framed or routed. The parser records where they occur.
const (
	Unknown ID = iota
	Host
	ContentLength
	TransferEncoding
	Connection
	Expect
	Upgrade
	Framing // not a name: the end of the group above

	Accept
	AcceptEncoding
	AcceptLanguage
	AcceptRanges
	AccessControlRequestHeaders
	AccessControlRequestMethod
	Age
	Allow
	Authorization
	CacheControl
	ContentDisposition
	ContentEncoding
	ContentLanguage
	ContentRange
	ContentType
	Cookie
	Date
	ETag
	Forwarded
	IfMatch
	IfModifiedSince
	IfNoneMatch
	IfRange
	IfUnmodifiedSince
	KeepAlive
	LastModified
	Location
	Origin
	Pragma
	ProxyAuthorization
	ProxyConnection
	Range
	RateLimit
	RateLimitPolicy
	Referer
	RetryAfter
	SecWebSocketKey
	SecWebSocketVersion
	Server
	SetCookie
	TE
	Trailer
	UserAgent
	Vary
	Via
	WWWAuthenticate
	XForwardedFor
	XForwardedHost
	XForwardedProto
	XRequestID
	Count
)

var names = [Count]string{
	Host:                        "Host",
	ContentLength:               "Content-Length",
	TransferEncoding:            "Transfer-Encoding",
	Connection:                  "Connection",
	Expect:                      "Expect",
	Upgrade:                     "Upgrade",
	Accept:                      "Accept",
	AcceptEncoding:              "Accept-Encoding",
	AcceptLanguage:              "Accept-Language",
	AcceptRanges:                "Accept-Ranges",
	AccessControlRequestHeaders: "Access-Control-Request-Headers",
	AccessControlRequestMethod:  "Access-Control-Request-Method",
	Age:                         "Age",
	Allow:                       "Allow",
	Authorization:               "Authorization",
	CacheControl:                "Cache-Control",
	ContentDisposition:          "Content-Disposition",
	ContentEncoding:             "Content-Encoding",
	ContentLanguage:             "Content-Language",
	ContentRange:                "Content-Range",
	ContentType:                 "Content-Type",
	Cookie:                      "Cookie",
	Date:                        "Date",
	ETag:                        "ETag",
	Forwarded:                   "Forwarded",
	IfMatch:                     "If-Match",
	IfModifiedSince:             "If-Modified-Since",
	IfNoneMatch:                 "If-None-Match",
	IfRange:                     "If-Range",
	IfUnmodifiedSince:           "If-Unmodified-Since",
	KeepAlive:                   "Keep-Alive",
	LastModified:                "Last-Modified",
	Location:                    "Location",
	Origin:                      "Origin",
	Pragma:                      "Pragma",
	ProxyAuthorization:          "Proxy-Authorization",
	ProxyConnection:             "Proxy-Connection",
	Range:                       "Range",
	RateLimit:                   "RateLimit",
	RateLimitPolicy:             "RateLimit-Policy",
	Referer:                     "Referer",
	RetryAfter:                  "Retry-After",
	SecWebSocketKey:             "Sec-WebSocket-Key",
	SecWebSocketVersion:         "Sec-WebSocket-Version",
	Server:                      "Server",
	SetCookie:                   "Set-Cookie",
	TE:                          "TE",
	Trailer:                     "Trailer",
	UserAgent:                   "User-Agent",
	Vary:                        "Vary",
	Via:                         "Via",
	WWWAuthenticate:             "WWW-Authenticate",
	XForwardedFor:               "X-Forwarded-For",
	XForwardedHost:              "X-Forwarded-Host",
	XForwardedProto:             "X-Forwarded-Proto",
	XRequestID:                  "X-Request-ID",
}

const maxKnownName = len("Access-Control-Request-Headers")

// table maps the hash of a known name to its number. The hashes of the known names don't collide, which a test checks.
var table = func() (table [256]ID) {
	for id := Unknown + 1; id < Count; id++ {
		if names[id] != "" {
			table[hash(names[id])] = id
		}
	}
	return table
}()

// hash tells the known names apart by their length and three of their letters, ignoring case. The name must not be empty.
func hash[S []byte | string](name S) uint8 {
	n := len(name)
	return uint8(n)*240 + (name[0]|0x20)*102 + (name[n/2]|0x20)*201 + (name[n-1]|0x20)*70
}

// Lookup returns the number of a field name, or Unknown.
func Lookup[S []byte | string](name S) ID {
	if len(name) == 0 || len(name) > maxKnownName {
		return Unknown
	}
	// Most names have their canonical case, so the exact comparison comes first.
	if id := table[hash(name)]; string(name) == names[id] || id != Unknown && syntax.EqualFold(name, names[id]) {
		return id
	}
	return Unknown
}

// String returns the name in its canonical case, "" for Unknown.
func (id ID) String() string { return names[id] }

// InFinal reports whether a final answer keeps this field if its handler has set it. Fields that frame the body are dropped, since only the server
// sets them.
func (id ID) InFinal() bool {
	switch id {
	case ContentLength, TransferEncoding, KeepAlive, Trailer:
		return false
	}
	return true
}

// InInterim reports whether an interim answer (RFC 9110, section 15.2) may have the field. A field that describes the final answer or the connection
// must not be in an interim answer.
func (id ID) InInterim() bool {
	switch id {
	case ContentLength, TransferEncoding, Connection, ContentType, KeepAlive, ProxyConnection, Trailer:
		return false
	}
	return true
}

// InTrailer reports whether a field may be in a trailer section. Two kinds of fields must not be there: those that decide how the message is
// framed, routed, authenticated or read (RFC 9110, section 6.5.1), and those about the connection.
func (id ID) InTrailer() bool {
	switch id {
	case Trailer, ContentType, ContentEncoding, ContentRange, Authorization, Cookie,
		SetCookie, TE, CacheControl, KeepAlive, ProxyConnection:
		return false
	}
	return id == Unknown || id > Framing
}

// OfContent are the fields that describe the body of an answer, besides Content-Type and Content-Range.
var OfContent = [...]string{"Content-Length", "Content-Encoding", "Content-Language", "Content-Location", "Content-Disposition",
	"Content-Digest", "Repr-Digest", "Content-MD5", "Digest", "ETag", "Last-Modified"}
