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

// seedsFolder names an environment variable. If it is set, the program writes the target's seeds into that folder, and ends.
const seedsFolder = "FILO_FUZZ_SEEDS"

var target testing.InternalFuzzTarget

// Target names the target of this program. A package's init function calls it.
func Target(name string, f func(*testing.F)) { target = testing.InternalFuzzTarget{Name: name, Fn: f} }

// entry is an input in the form in which package testing passes it.
type entry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

// engine replaces the fuzzing engine of the go command, which package testing uses in a program built by go test. The target is run twice:
// first to get its arguments' types and its seeds, and then to receive inputs until the process ends.
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
		// In a program whose main function isn't Go's, a panic aborts the process, which libFuzzer sees.
		panic(fmt.Sprintf("%s fails with %#v:\n%v", target.Name, values, err))
	}
	return 0
}

var (
	runInput func(entry) error
	start    = sync.OnceValue(func() *engine {
		os.Args = os.Args[:1] // the other flags are libFuzzer's
		testing.Init()
		e := &engine{run: make(chan func(entry) error)}
		set("test.run", "^$")
		set("test.fuzz", "^"+target.Name+"$")
		set("test.fuzzcachedir", os.TempDir()) // must be set, and isn't used
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
