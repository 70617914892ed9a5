package race

import "fmt"

// State is a state of something that goes from one state to the next. Its type says which states may follow which.
type State interface {
	~uint8
	// Next returns the states that may follow, a bit for each.
	Next() uint8
}

// Builds with the race detector call Entered for each step, if a test has set it.
var Entered func(from, to any)

// Enter sets the state to next. Builds with the race detector panic if next may not follow.
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
