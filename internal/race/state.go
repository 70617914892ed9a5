package race

import "fmt"

// State is a state of a state machine. Each type that implements it says which states may follow which.
type State interface {
	~uint8
	// Next returns a set of bits: bit i is set if state i may follow.
	Next() uint8
}

// Entered is called for each step in builds with the race detector, if a test has set it.
var Entered func(from, to any)

// Enter sets the state to next. In builds with the race detector it panics if next may not follow *state.
func Enter[S State](state *S, next S) {
	if Enabled {
		if (*state).Next()>>next&1 == 0 {
			panic(fmt.Sprintf("filo: %[1]T %[1]d is followed by %[2]d", *state, next))
		}
		if Entered != nil {
			Entered(*state, next)
		}
	}
	*state = next
}
