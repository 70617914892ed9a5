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

// decoder sets dst to the value of text, or returns what is wrong with text. It doesn't keep text.
type decoder func(dst reflect.Value, text []byte) flaw

var (
	mustBeUTF8     = flaw{code: "utf8", detail: "must be UTF-8"}
	mustBeBool     = flaw{code: "boolean", detail: "must be true or false"}
	mustBeNumber   = flaw{code: "float", detail: "must be a number"}
	mustBeDuration = flaw{code: "duration", detail: "must be a duration, such as 1m30s"}
	mustBeTime     = flaw{code: "time", detail: "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"}
	mustBeString   = flaw{code: "string", detail: "must be a string"}
	outOfRange     = flaw{code: "range", detail: "is a number that is too large"}
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decoderOf returns the decoder for a type, nil if text can't be converted to the type, and whether empty text means that there
// is no value. layout is the format of times.
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
		return func(dst reflect.Value, text []byte) flaw {
			value := reflect.New(dst.Type().Elem())
			wrong := inner(value.Elem(), text)
			if wrong.code == "" {
				dst.Set(value)
			}
			return wrong
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

func decodeString(dst reflect.Value, text []byte) flaw {
	if !utf8.Valid(text) {
		return mustBeUTF8
	}
	dst.SetString(string(text))
	return flaw{}
}

func decodeBytes(dst reflect.Value, text []byte) flaw {
	dst.SetBytes(slices.Clone(text))
	return flaw{}
}

func decodeText(dst reflect.Value, text []byte) flaw {
	if err := dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
		return refusedBy(err)
	}
	return flaw{}
}

func decodeBool(dst reflect.Value, text []byte) flaw {
	value, err := strconv.ParseBool(string(text))
	switch {
	case string(text) == "on": // what a checkbox without a value sends
		value = true
	case string(text) != "off" && err != nil:
		return mustBeBool
	}
	dst.SetBool(value)
	return flaw{}
}

func decodeInt(dst reflect.Value, text []byte) flaw {
	value, err := strconv.ParseInt(string(text), 10, dst.Type().Bits())
	if err != nil {
		return mustBeInteger(dst.Type(), text)
	}
	dst.SetInt(value)
	return flaw{}
}

func decodeUint(dst reflect.Value, text []byte) flaw {
	value, err := strconv.ParseUint(string(text), 10, dst.Type().Bits())
	if err != nil {
		return mustBeInteger(dst.Type(), text)
	}
	dst.SetUint(value)
	return flaw{}
}

func decodeFloat(dst reflect.Value, text []byte) flaw {
	for _, c := range text {
		// ParseFloat also accepts hexadecimal numbers, Inf and NaN, which programs hardly expect.
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
	return flaw{}
}

func decodeDuration(dst reflect.Value, text []byte) flaw {
	value, err := time.ParseDuration(string(text))
	if err != nil {
		return mustBeDuration
	}
	dst.SetInt(int64(value))
	return flaw{}
}

func timeDecoder(layout string) decoder {
	mustBe := mustBeTime
	if layout == "" {
		layout = time.RFC3339
	} else {
		mustBe = flaw{code: "time", detail: "must be a time written as " + layout, params: map[string]any{"layout": layout}}
	}
	return func(dst reflect.Value, text []byte) flaw {
		value, err := time.Parse(layout, string(text))
		if err != nil {
			return mustBe
		}
		*dst.Addr().Interface().(*time.Time) = value
		return flaw{}
	}
}

// mustBeInteger returns the flaw of text that isn't an integer of the type. It states the limits of a 64-bit type only if the
// number exceeds them.
func mustBeInteger(t reflect.Type, text []byte) flaw {
	bits := t.Bits()
	if t.Kind() >= reflect.Uint {
		if _, err := strconv.ParseUint(string(text), 10, 64); bits == 64 && !errors.Is(err, strconv.ErrRange) {
			return flaw{code: "integer", detail: "must be an integer of at least 0", params: map[string]any{"minimum": 0}}
		}
		return integerBetween(0, uint64(math.MaxUint64)>>(64-bits))
	}
	if _, err := strconv.ParseInt(string(text), 10, 64); bits == 64 && !errors.Is(err, strconv.ErrRange) {
		return flaw{code: "integer", detail: "must be an integer"}
	}
	return integerBetween(int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits))
}

func integerBetween(low, high any) flaw {
	return flaw{code: "integer", detail: fmt.Sprintf("must be an integer from %d to %d", low, high), params: map[string]any{"minimum": low, "maximum": high}}
}

// refusedBy returns the flaw of a value that the type's own decoder has refused.
func refusedBy(err error) flaw { return flaw{code: "invalid", detail: err.Error()} }
