package bind

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// decoder sets dst to what text stands for, or returns what text must be. It doesn't keep text.
type decoder func(dst reflect.Value, text []byte) (detail string)

const (
	mustBeUTF8     = "must be UTF-8"
	mustBeBool     = "must be true or false"
	mustBeNumber   = "must be a number"
	mustBeDuration = "must be a duration, such as 1m30s"
	mustBeTime     = "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"
	outOfRange     = "is a number that is too large"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decoderOf returns the decoder for a type, nil if text can't become that, and whether empty text stands for no value. The
// layout is for times.
func decoderOf(t reflect.Type, layout string) (decode decoder, optional bool) {
	switch {
	case t == timeType:
		return timeDecoder(layout), true
	case t == durationType:
		return decodeDuration, true
	case reflect.PointerTo(t).Implements(textType):
		return decodeText, false
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner, optional := decoderOf(t.Elem(), layout)
		if inner == nil {
			return nil, false
		}
		return func(dst reflect.Value, text []byte) string {
			value := reflect.New(dst.Type().Elem())
			detail := inner(value.Elem(), text)
			if detail == "" {
				dst.Set(value)
			}
			return detail
		}, optional
	case reflect.String:
		return decodeString, false
	case reflect.Bool:
		return decodeBool, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt, true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return decodeUint, true
	case reflect.Float32, reflect.Float64:
		return decodeFloat, true
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return decodeBytes, false
		}
	}
	return nil, false
}

func decodeString(dst reflect.Value, text []byte) string {
	if !utf8.Valid(text) {
		return mustBeUTF8
	}
	dst.SetString(string(text))
	return ""
}

func decodeBytes(dst reflect.Value, text []byte) string {
	dst.SetBytes(slices.Clone(text))
	return ""
}

func decodeText(dst reflect.Value, text []byte) string {
	if err := dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
		return err.Error()
	}
	return ""
}

func decodeBool(dst reflect.Value, text []byte) string {
	value, err := strconv.ParseBool(string(text))
	switch {
	case string(text) == "on": // what a checkbox without a value sends
		value = true
	case string(text) != "off" && err != nil:
		return mustBeBool
	}
	dst.SetBool(value)
	return ""
}

func decodeInt(dst reflect.Value, text []byte) string {
	value, err := strconv.ParseInt(string(text), 10, dst.Type().Bits())
	if err != nil {
		return mustBeInteger(dst.Type(), text)
	}
	dst.SetInt(value)
	return ""
}

func decodeUint(dst reflect.Value, text []byte) string {
	value, err := strconv.ParseUint(string(text), 10, dst.Type().Bits())
	if err != nil {
		return mustBeInteger(dst.Type(), text)
	}
	dst.SetUint(value)
	return ""
}

func decodeFloat(dst reflect.Value, text []byte) string {
	for _, c := range text {
		// ParseFloat takes hexadecimal numbers, Inf and NaN too, which programs hardly expect.
		if (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' && c != 'e' && c != 'E' {
			return mustBeNumber
		}
	}
	value, err := strconv.ParseFloat(string(text), dst.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		return outOfRange
	case err != nil:
		return mustBeNumber
	}
	dst.SetFloat(value)
	return ""
}

func decodeDuration(dst reflect.Value, text []byte) string {
	value, err := time.ParseDuration(string(text))
	if err != nil {
		return mustBeDuration
	}
	dst.SetInt(int64(value))
	return ""
}

func timeDecoder(layout string) decoder {
	mustBe := mustBeTime
	if layout == "" {
		layout = time.RFC3339
	} else {
		mustBe = "must be a time written as " + layout
	}
	return func(dst reflect.Value, text []byte) string {
		value, err := time.Parse(layout, string(text))
		if err != nil {
			return mustBe
		}
		*dst.Addr().Interface().(*time.Time) = value
		return ""
	}
}

// mustBeInteger says what an integer type holds, where text is something else. The limits of 64 bits say nothing to anybody
// whose number is within them.
func mustBeInteger(t reflect.Type, text []byte) string {
	bits := t.Bits()
	if t.Kind() >= reflect.Uint {
		if _, err := strconv.ParseUint(string(text), 10, 64); bits == 64 && !errors.Is(err, strconv.ErrRange) {
			return "must be an integer of at least 0"
		}
		return fmt.Sprintf("must be an integer from 0 to %d", uint64(math.MaxUint64)>>(64-bits))
	}
	if _, err := strconv.ParseInt(string(text), 10, 64); bits == 64 && !errors.Is(err, strconv.ErrRange) {
		return "must be an integer"
	}
	return fmt.Sprintf("must be an integer from %d to %d", int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits))
}
