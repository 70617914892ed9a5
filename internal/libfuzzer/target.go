//go:build libfuzzer

package libfuzzer

/*
#include <stddef.h>
#include <stdint.h>
*/
import "C"

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// seedsFolder is the name of an environment variable with a directory. If the variable is set, the program writes the target's seeds into the
// directory, and ends.
const seedsFolder = "FILO_FUZZ_SEEDS"

var target testing.InternalFuzzTarget

// Target sets the fuzz target of this program. An init function in the package under test calls it.
func Target(name string, f func(*testing.F)) { target = testing.InternalFuzzTarget{Name: name, Fn: f} }

// entry is an input, with the same fields as package testing's own type.
type entry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

// engine replaces the fuzzing engine that package testing uses in a program built by go test. It runs the target twice: first to learn the
// types of its arguments and its seeds, and then to pass inputs to it until the process ends.
type engine struct {
	types []reflect.Type
	seeds []entry
	run   chan func(entry) error
}

//export LLVMFuzzerInitialize
func LLVMFuzzerInitialize(*C.int, ***C.char) C.int {
	folder := os.Getenv(seedsFolder)
	if folder == "" {
		return 0
	}
	for i, seed := range start().seeds {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("seed-%d", i)), encode(seed.Values), 0o644); err != nil {
			panic(err)
		}
	}
	os.Exit(0)
	return 0
}

//export LLVMFuzzerTestOneInput
func LLVMFuzzerTestOneInput(data *C.uint8_t, size C.size_t) C.int {
	e := start()
	values := decode(unsafe.Slice((*byte)(unsafe.Pointer(data)), int(size)), e.types)
	if err := runInput(entry{Values: values}); err != nil {
		// The main function isn't written in Go, so a panic aborts the process, and libFuzzer reports a crash.
		panic(fmt.Sprintf("%s fails with %#v:\n%v", target.Name, values, err))
	}
	return 0
}

var (
	runInput func(entry) error
	start    = sync.OnceValue(func() *engine {
		os.Args = os.Args[:1] // the other arguments are libFuzzer's
		testing.Init()
		e := &engine{run: make(chan func(entry) error)}
		set("test.run", "^$")
		set("test.fuzz", "^"+target.Name+"$")
		set("test.fuzzcachedir", os.TempDir()) // package testing requires it, but doesn't use it here
		e.main()
		if e.types == nil {
			panic("libfuzzer: " + target.Name + " hasn't called F.Fuzz")
		}
		set("test.fuzzworker", "true")
		go e.main()
		runInput = <-e.run
		return e
	})
)

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}

func (e *engine) main() {
	testing.MainStart(e, nil, nil, []testing.InternalFuzzTarget{target}, nil).Run()
}

func (e *engine) CoordinateFuzzing(_ time.Duration, _ int64, _ time.Duration, _ int64, _ int, seeds []entry, types []reflect.Type, _, _ string) error {
	e.seeds, e.types = seeds, types
	return nil
}

// RunFuzzWorker passes run to LLVMFuzzerTestOneInput, and never returns.
func (e *engine) RunFuzzWorker(run func(entry) error) error {
	e.run <- run
	select {}
}

func (e *engine) CheckCorpus(values []any, types []reflect.Type) error {
	if len(values) != len(types) {
		return errors.New("the seed has another number of values than the target has arguments")
	}
	for i, value := range values {
		if reflect.TypeOf(value) != types[i] {
			return fmt.Errorf("value %d of the seed is a %T, not a %v", i, value, types[i])
		}
	}
	return nil
}

func (e *engine) MatchString(pattern, text string) (bool, error)     { return pattern == "^"+text+"$", nil }
func (e *engine) ImportPath() string                                 { return "" }
func (e *engine) ModulePath() string                                 { return "" }
func (e *engine) SetPanicOnExit0(bool)                               {}
func (e *engine) StartCPUProfile(io.Writer) error                    { return nil }
func (e *engine) StopCPUProfile()                                    {}
func (e *engine) StartTestLog(io.Writer)                             {}
func (e *engine) StopTestLog() error                                 { return nil }
func (e *engine) WriteProfileTo(string, io.Writer, int) error        { return nil }
func (e *engine) ReadCorpus(string, []reflect.Type) ([]entry, error) { return nil, nil }
func (e *engine) ResetCoverage()                                     {}
func (e *engine) SnapshotCoverage()                                  {}
func (e *engine) InitRuntimeCoverage() (string, func(string, string) (string, error), func() float64) {
	return "", nil, nil
}
