package main

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/filohttp/filo"
)

// Limits of what visitors may choose, in characters.
const (
	maxRoom = 32
	maxName = 32
	maxText = 1000
	maxKey  = 64
)

// checkRoom returns an error if a text can't be the name of a room.
func checkRoom(name string) error {
	if name == "" || len(name) > maxRoom || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return filo.Error(http.StatusBadRequest, "the name of a room has 1 to "+strconv.Itoa(maxRoom)+" characters of a to z, 0 to 9 and -")
	}
	return nil
}

// checkName trims the name of a person, and returns an error if the name isn't valid.
func checkName(name *string) error {
	*name = strings.Join(strings.Fields(*name), " ")
	switch n := utf8.RuneCountInString(*name); {
	case n < 1 || n > maxName:
		return filo.Error(http.StatusBadRequest, "a name has 1 to "+strconv.Itoa(maxName)+" characters")
	case strings.ContainsFunc(*name, misleading):
		return filo.Error(http.StatusBadRequest, "a name has no control characters")
	}
	return nil
}

// checkText trims the text of a message. It returns what is wrong with the text, or "".
func checkText(text *string) (fault string) {
	*text = strings.TrimSpace(*text)
	switch n := utf8.RuneCountInString(*text); {
	case n < 1:
		return "there is nothing in it"
	case n > maxText:
		return "it has more than " + strconv.Itoa(maxText) + " characters"
	case strings.ContainsFunc(*text, func(r rune) bool { return r != '\n' && r != '\t' && misleading(r) }):
		return "it has control characters"
	}
	return ""
}

// misleading reports whether a character is invisible and may change how other characters are shown, for example their order. The joiners aren't
// misleading, since scripts and emoji need them.
func misleading(r rune) bool {
	const nonJoiner, joiner = '\u200C', '\u200D'
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && r != nonJoiner && r != joiner || r == utf8.RuneError
}

// checkKey returns an error if a key that a page has chosen isn't valid.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return filo.Error(http.StatusBadRequest, "a key has 1 to "+strconv.Itoa(maxKey)+" printable ASCII characters")
	}
	return nil
}
