package filo

import (
	"bytes"
	"strings"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// Negotiate returns the offer, a media type such as "application/json", that the client's Accept field prefers. It returns the
// first of several equally preferred offers, the first of all without an Accept field, and "" if the client accepts none, which
// calls for a 406. It adds Accept to the response's Vary field. Offers may have parameters: a media range that gives one of
// them another value doesn't match.
func (c *Ctx) Negotiate(offers ...string) string {
	c.check()
	c.Response.Header.varyByAccept()
	best, bestQuality := "", 0
	for _, offer := range offers {
		if quality := acceptQuality(&c.Request.Header, offer); quality > bestQuality {
			best, bestQuality = offer, quality
		}
	}
	return best
}

// varyByAccept tells caches that the response depends on the request's Accept.
func (h *Header) varyByAccept() {
	if !h.list.HasToken(field.Vary, "accept") && !h.list.HasToken(field.Vary, "*") {
		h.Add(field.Vary.String(), field.Accept.String())
	}
}

// prefersJSON reports whether a client would rather have an error as JSON than as text. If it likes both alike, or says nothing,
// whoever has sent JSON can read it, and byDefault decides for others.
func prefersJSON(h *Header, byDefault bool) bool {
	problem := max(acceptQuality(h, "application/problem+json"), acceptQuality(h, "application/json"))
	text := acceptQuality(h, "text/plain")
	return problem > text || problem == text && (byDefault || isJSON(h.list.GetID(field.ContentType)))
}

// isJSON reports whether a Content-Type is one of JSON (RFC 6839, section 3.1).
func isJSON(contentType []byte) bool {
	mediaType, _ := cutQuoted(contentType, ';')
	mediaType = syntax.TrimSpace(mediaType)
	return syntax.EqualFold(mediaType, "application/json") || len(mediaType) > len("+json") && syntax.EqualFold(mediaType[len(mediaType)-len("+json"):], "+json")
}

// acceptQuality returns the weight, in thousandths, of the most specific media range in Accept that an offer matches (RFC 9110,
// section 12.5.1: "the most specific reference has precedence").
func acceptQuality(h *Header, offer string) int {
	quality, closest, any := 0, 0, false
	for i := range h.list.Len() {
		if h.list.ID(i) != field.Accept {
			continue
		}
		for list := h.list.Value(i); len(list) > 0; {
			var element []byte
			element, list = cutQuoted(list, ',')
			mediaRange, weight, ok := parseMediaRange(element)
			if !ok {
				continue
			}
			any = true
			if precision := matchPrecision(mediaRange, offer); precision > closest {
				quality, closest = weight, precision
			}
		}
	}
	if !any {
		return syntax.MaxQuality
	}
	return quality
}

// parseMediaRange takes the weight off an element of Accept: 0 if it is malformed. It reports false for what is no media range.
func parseMediaRange(element []byte) (mediaRange []byte, weight int, ok bool) {
	mediaRange = syntax.TrimSpace(element)
	typeEnd := bytes.IndexByte(mediaRange, '/')
	if typeEnd <= 0 || typeEnd == len(mediaRange)-1 {
		return nil, 0, false
	}
	for rest, position := mediaRange, 0; len(rest) > 0; {
		var parameter []byte
		before := len(rest)
		parameter, rest = cutQuoted(rest, ';')
		if parameter = syntax.TrimSpace(parameter); position > 0 && len(parameter) > 1 && parameter[0]|0x20 == 'q' && parameter[1] == '=' {
			return syntax.TrimSpace(mediaRange[:position-1]), syntax.Quality(parameter[2:]), true
		}
		position += before - len(rest)
	}
	return mediaRange, syntax.MaxQuality, true
}

// matchPrecision returns how precisely a media range describes an offer: 0 if it doesn't. A parameter that the offer says
// nothing about, such as a charset, is no reason to refuse it.
func matchPrecision(mediaRange []byte, offer string) int {
	name, parameters := cutQuoted(mediaRange, ';')
	offered, offeredParameters, _ := strings.Cut(offer, ";")
	name, offered = syntax.TrimSpace(name), strings.TrimSpace(offered)
	offeredType, _, _ := strings.Cut(offered, "/")
	precision, unknown := 0, 0
	switch slash := bytes.IndexByte(name, '/'); {
	case string(name) == "*/*":
		precision = 1
	case string(name[slash+1:]) == "*" && syntax.EqualFold(name[:slash], offeredType):
		precision = 2
	case syntax.EqualFold(name, offered):
		precision = 4
	default:
		return 0
	}
	for len(parameters) > 0 {
		var parameter []byte
		parameter, parameters = cutQuoted(parameters, ';')
		if parameter = syntax.TrimSpace(parameter); len(parameter) == 0 {
			continue
		}
		switch offered, same := offersParameter(offeredParameters, parameter); {
		case same:
			precision++
		case offered:
			return 0
		default:
			unknown = 1
		}
	}
	return precision - unknown
}

// offersParameter reports whether an offer has a parameter of the same name, and whether that has the same value.
func offersParameter(offered string, parameter []byte) (has, same bool) {
	name, _, _ := bytes.Cut(parameter, []byte{'='})
	for len(offered) > 0 {
		var each string
		each, offered, _ = strings.Cut(offered, ";")
		each = strings.TrimSpace(each)
		if syntax.EqualFold(parameter, each) {
			return true, true
		}
		eachName, _, _ := strings.Cut(each, "=")
		has = has || syntax.EqualFold(name, eachName)
	}
	return has, false
}

// cutQuoted returns what is before the first separator that isn't in a quoted string, and what is behind it.
func cutQuoted(list []byte, separator byte) (before, after []byte) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case quoted && list[i] == '\\':
			i++
		case !quoted && list[i] == separator:
			return list[:i], list[i+1:]
		}
	}
	return list, nil
}
