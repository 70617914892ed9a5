package filo

import (
	"bytes"
	"strconv"
)

// prefersJSON reports whether a client would rather have an error as JSON than as text, by the Accept fields
// (RFC 9110, section 12.5.1). Without a preference it is text.
func prefersJSON(h *Header) bool {
	var problem, plain mediaQuality
	for i := h.findID(fieldAccept, 0); i >= 0; i = h.findID(fieldAccept, i+1) {
		for list := h.valueOf(i); len(list) > 0; {
			var element []byte
			element, list, _ = bytes.Cut(list, []byte{','})
			mediaRange, quality := parseMediaRange(element)
			problem.consider(mediaRange, quality, "application", "problem+json")
			problem.consider(mediaRange, quality, "application", "json")
			plain.consider(mediaRange, quality, "text", "plain")
		}
	}
	return problem.quality > plain.quality
}

// mediaQuality is the quality of a media type by the most specific range that it has met.
type mediaQuality struct {
	quality     float64
	specificity int
}

func (m *mediaQuality) consider(mediaRange []byte, quality float64, kind, subtype string) {
	typePart, subtypePart, _ := bytes.Cut(mediaRange, []byte{'/'})
	specificity := 0
	switch {
	case equalFold(typePart, kind) && equalFold(subtypePart, subtype):
		specificity = 3
	case equalFold(typePart, kind) && string(subtypePart) == "*":
		specificity = 2
	case string(mediaRange) == "*/*":
		specificity = 1
	}
	if specificity > m.specificity || specificity > 0 && specificity == m.specificity && quality > m.quality {
		m.quality, m.specificity = quality, specificity
	}
}

// parseMediaRange splits an element of Accept into its media range and its weight.
func parseMediaRange(element []byte) (mediaRange []byte, quality float64) {
	mediaRange, parameters, _ := bytes.Cut(element, []byte{';'})
	quality = 1
	for len(parameters) > 0 {
		var parameter []byte
		parameter, parameters, _ = bytes.Cut(parameters, []byte{';'})
		name, value, _ := bytes.Cut(trimSpace(parameter), []byte{'='})
		if equalFold(name, "q") {
			q, err := strconv.ParseFloat(string(value), 64)
			if err != nil || !(q >= 0 && q <= 1) { // NaN is none
				q = 0
			}
			quality = q
		}
	}
	return trimSpace(mediaRange), quality
}
