package race

import "fmt"

// State is a state of something that goes from one to the next. Its type says which may follow which.
type State interface {
	~uint8
	// Next returns the states that may follow, a bit for each.
	Next() uint8
}

// Entered is told of each step, by builds with the race detector, if a test sets it.
var Entered func(from, to any)

// Enter goes on to the next state.
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
