package debug_test

import (
	"net/url"
	"runtime"
)

func mustURL(path string) *url.URL {
	u, err := url.Parse(path)
	if err != nil {
		panic(err)
	}
	return u
}

// pcOfTest returns the address of an instruction of its own.
func pcOfTest() uintptr {
	pc, _, _, _ := runtime.Caller(0)
	return pc
}
