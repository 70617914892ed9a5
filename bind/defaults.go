package bind

import "reflect"

// defaulter is an input that sets its own defaults.
type defaulter interface{ SetDefaults() }

// unshare replaces the slices, maps and pointers in v that decoders would write through by copies. SetDefaults may have taken them from
// variables, which all requests share. The values of a map aren't copied, since a decoder replaces them.
func unshare(v reflect.Value) {
	kind := v.Kind()
	if kind == reflect.Slice || kind == reflect.Map || kind == reflect.Pointer {
		if v.IsNil() || !v.CanSet() {
			return
		}
	}
	switch kind {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Anonymous || f.Tag.Get("json") != "-" {
				unshare(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			unshare(v.Index(i))
		}
	case reflect.Map:
		own := reflect.MakeMapWithSize(v.Type(), v.Len())
		for entry := v.MapRange(); entry.Next(); {
			own.SetMapIndex(entry.Key(), entry.Value())
		}
		v.Set(own)
	case reflect.Pointer:
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		unshare(own.Elem())
		v.Set(own)
	}
}
