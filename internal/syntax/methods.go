package syntax

// Methods are the methods of RFC 9110 (section 9), PATCH (RFC 5789) and QUERY (RFC 10008), the most common ones first.
var Methods = [...]string{"GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "QUERY", "CONNECT", "TRACE"}

// Retrieves reports whether a method is GET, HEAD or QUERY. These ask for a representation, which the client may already have, or which a cache may
// serve.
func Retrieves[T ~string | ~[]byte](method T) bool {
	switch string(method) {
	case "GET", "HEAD", "QUERY":
		return true
	}
	return false
}

// IsSafe reports whether a method is safe, that is, doesn't ask for a change (RFC 9110, section 9.2.1; RFC 10008, section 2).
func IsSafe[T ~string | ~[]byte](method T) bool {
	return Retrieves(method) || string(method) == "OPTIONS" || string(method) == "TRACE"
}

// IsIdempotent reports whether sending a request with the method twice has the same intended effect as sending it once (RFC 9110, section 9.2.2; RFC
// 10008, section 2).
func IsIdempotent[T ~string | ~[]byte](method T) bool {
	return IsSafe(method) || string(method) == "PUT" || string(method) == "DELETE"
}
