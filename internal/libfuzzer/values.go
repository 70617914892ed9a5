// Package libfuzzer lets libFuzzer call unchanged fuzz targets of any test package. ossfuzz/build.sh compiles a package's tests to an
// archive, together with a file that names the target, and links the archive with libFuzzer's main function. The functions that C calls have
// the build tag libfuzzer.
package libfuzzer

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
)

// decode converts libFuzzer's bytes to arguments of these types. The numbers come first, with eight bytes each, so that a change of a text's
// length doesn't move them. The texts follow. Each text except the last begins with two bytes for its length. Missing bytes are zero.
func decode(data []byte, types []reflect.Type) []any {
	take := func(n int) []byte {
		n = min(n, len(data))
		taken := data[:n:n]
		data = data[n:]
		return taken
	}
	values, texts := make([]any, len(types)), 0
	for i, t := range types {
		if isText(t) {
			texts++
			continue
		}
		var eight [8]byte
		copy(eight[:], take(8))
		values[i] = number(binary.LittleEndian.Uint64(eight[:]), t)
	}
	for i, t := range types {
		if !isText(t) {
			continue
		}
		text := data
		if texts--; texts > 0 {
			var two [2]byte
			copy(two[:], take(2))
			text = take(int(binary.LittleEndian.Uint16(two[:])))
		}
		values[i] = reflect.ValueOf(append([]byte{}, text...)).Convert(t).Interface()
	}
	return values
}

// encode returns bytes that decode turns into the values. It truncates all texts except the last to 65,535 bytes.
func encode(values []any) (data []byte) {
	var texts [][]byte
	for _, value := range values {
		v := reflect.ValueOf(value)
		if isText(v.Type()) {
			texts = append(texts, v.Convert(reflect.TypeFor[[]byte]()).Bytes())
			continue
		}
		data = binary.LittleEndian.AppendUint64(data, bits(v))
	}
	for i, text := range texts {
		if i < len(texts)-1 {
			text = text[:min(len(text), math.MaxUint16)]
			data = binary.LittleEndian.AppendUint16(data, uint16(len(text)))
		}
		data = append(data, text...)
	}
	return data
}

func isText(t reflect.Type) bool { return t.Kind() == reflect.String || t.Kind() == reflect.Slice }

// number converts u to a number or a boolean of the type t.
func number(u uint64, t reflect.Type) any {
	v := reflect.New(t).Elem()
	switch {
	case t.Kind() == reflect.Bool:
		v.SetBool(u&1 == 1)
	case v.CanInt():
		v.SetInt(int64(u)) // SetInt drops the high bits
	case v.CanUint():
		v.SetUint(u)
	case t.Kind() == reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(uint32(u))))
	case t.Kind() == reflect.Float64:
		v.SetFloat(math.Float64frombits(u))
	default:
		panic(fmt.Sprintf("libfuzzer: no value of type %v", t))
	}
	return v.Interface()
}

// bits is the inverse of number.
func bits(v reflect.Value) uint64 {
	switch {
	case v.Kind() == reflect.Bool:
		if v.Bool() {
			return 1
		}
		return 0
	case v.CanInt():
		return uint64(v.Int())
	case v.CanUint():
		return v.Uint()
	case v.Kind() == reflect.Float32:
		return uint64(math.Float32bits(float32(v.Float())))
	case v.Kind() == reflect.Float64:
		return math.Float64bits(v.Float())
	}
	panic(fmt.Sprintf("libfuzzer: no bits for type %v", v.Type()))
}
