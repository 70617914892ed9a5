package filo

import "github.com/filohttp/filo/internal/syntax"

// fieldID is the number of a field name that the server or most handlers look up.
// A lookup by number needs no comparison of bytes.
type fieldID uint8

// The numbers up to fieldFraming are those that decide how a message is framed or routed:
// the parser takes note of them as it passes.
const (
	fieldUnknown fieldID = iota
	fieldHost
	fieldContentLength
	fieldTransferEncoding
	fieldConnection
	fieldExpect
	fieldUpgrade
	fieldFraming // not a name: the end of the group above

	fieldAccept
	fieldAcceptEncoding
	fieldAcceptLanguage
	fieldAcceptRanges
	fieldAccessControlRequestHeaders
	fieldAccessControlRequestMethod
	fieldAge
	fieldAllow
	fieldAuthorization
	fieldCacheControl
	fieldContentDisposition
	fieldContentEncoding
	fieldContentLanguage
	fieldContentRange
	fieldContentType
	fieldCookie
	fieldDate
	fieldETag
	fieldForwarded
	fieldIfMatch
	fieldIfModifiedSince
	fieldIfNoneMatch
	fieldIfRange
	fieldIfUnmodifiedSince
	fieldKeepAlive
	fieldLastModified
	fieldLocation
	fieldOrigin
	fieldPragma
	fieldProxyAuthorization
	fieldProxyConnection
	fieldRange
	fieldRateLimit
	fieldRateLimitPolicy
	fieldReferer
	fieldRetryAfter
	fieldSecWebSocketKey
	fieldSecWebSocketVersion
	fieldServer
	fieldSetCookie
	fieldTE
	fieldTrailer
	fieldUserAgent
	fieldVary
	fieldVia
	fieldWWWAuthenticate
	fieldXForwardedFor
	fieldXForwardedHost
	fieldXForwardedProto
	fieldXRequestID
	fieldCount
)

var fieldNames = [fieldCount]string{
	fieldHost:                        "Host",
	fieldContentLength:               "Content-Length",
	fieldTransferEncoding:            "Transfer-Encoding",
	fieldConnection:                  "Connection",
	fieldExpect:                      "Expect",
	fieldUpgrade:                     "Upgrade",
	fieldAccept:                      "Accept",
	fieldAcceptEncoding:              "Accept-Encoding",
	fieldAcceptLanguage:              "Accept-Language",
	fieldAcceptRanges:                "Accept-Ranges",
	fieldAccessControlRequestHeaders: "Access-Control-Request-Headers",
	fieldAccessControlRequestMethod:  "Access-Control-Request-Method",
	fieldAge:                         "Age",
	fieldAllow:                       "Allow",
	fieldAuthorization:               "Authorization",
	fieldCacheControl:                "Cache-Control",
	fieldContentDisposition:          "Content-Disposition",
	fieldContentEncoding:             "Content-Encoding",
	fieldContentLanguage:             "Content-Language",
	fieldContentRange:                "Content-Range",
	fieldContentType:                 "Content-Type",
	fieldCookie:                      "Cookie",
	fieldDate:                        "Date",
	fieldETag:                        "ETag",
	fieldForwarded:                   "Forwarded",
	fieldIfMatch:                     "If-Match",
	fieldIfModifiedSince:             "If-Modified-Since",
	fieldIfNoneMatch:                 "If-None-Match",
	fieldIfRange:                     "If-Range",
	fieldIfUnmodifiedSince:           "If-Unmodified-Since",
	fieldKeepAlive:                   "Keep-Alive",
	fieldLastModified:                "Last-Modified",
	fieldLocation:                    "Location",
	fieldOrigin:                      "Origin",
	fieldPragma:                      "Pragma",
	fieldProxyAuthorization:          "Proxy-Authorization",
	fieldProxyConnection:             "Proxy-Connection",
	fieldRange:                       "Range",
	fieldRateLimit:                   "RateLimit",
	fieldRateLimitPolicy:             "RateLimit-Policy",
	fieldReferer:                     "Referer",
	fieldRetryAfter:                  "Retry-After",
	fieldSecWebSocketKey:             "Sec-WebSocket-Key",
	fieldSecWebSocketVersion:         "Sec-WebSocket-Version",
	fieldServer:                      "Server",
	fieldSetCookie:                   "Set-Cookie",
	fieldTE:                          "TE",
	fieldTrailer:                     "Trailer",
	fieldUserAgent:                   "User-Agent",
	fieldVary:                        "Vary",
	fieldVia:                         "Via",
	fieldWWWAuthenticate:             "WWW-Authenticate",
	fieldXForwardedFor:               "X-Forwarded-For",
	fieldXForwardedHost:              "X-Forwarded-Host",
	fieldXForwardedProto:             "X-Forwarded-Proto",
	fieldXRequestID:                  "X-Request-ID",
}

const maxKnownFieldName = len("Access-Control-Request-Headers")

// fieldTable finds a known name by fieldHash, which has no collision among them (a test says so).
var fieldTable = func() (table [256]fieldID) {
	for id := fieldUnknown + 1; id < fieldCount; id++ {
		if fieldNames[id] != "" {
			table[fieldHash(fieldNames[id])] = id
		}
	}
	return table
}()

// fieldHash tells the known names apart by their length and three of their letters, of whatever case.
// The name must not be empty.
func fieldHash[S []byte | string](name S) uint8 {
	n := len(name)
	return uint8(n)*240 + (name[0]|0x20)*102 + (name[n/2]|0x20)*201 + (name[n-1]|0x20)*70
}

// lookupField returns the number of a field name, or fieldUnknown.
func lookupField[S []byte | string](name S) fieldID {
	if len(name) == 0 || len(name) > maxKnownFieldName {
		return fieldUnknown
	}
	if id := fieldTable[fieldHash(name)]; id != fieldUnknown && syntax.EqualFold(name, fieldNames[id]) {
		return id
	}
	return fieldUnknown
}

// inTrailer reports whether a field may be in a trailer section: not one that decides how the message is framed, routed,
// authenticated or read (RFC 9110, section 6.5.1).
func (id fieldID) inTrailer() bool {
	switch id {
	case fieldTrailer, fieldContentType, fieldContentEncoding, fieldContentRange, fieldAuthorization, fieldCookie,
		fieldSetCookie, fieldTE, fieldCacheControl:
		return false
	}
	return id == fieldUnknown || id > fieldFraming
}
