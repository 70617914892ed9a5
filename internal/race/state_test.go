package race

import (
	"fmt"
	"strings"
	"testing"
)

// light is a State of a traffic light: red, green and amber follow one another.
type light uint8

func (s light) Next() uint8 { return 1 << ((s + 1) % 3) }

// In builds with the race detector, Enter panics for a step that the type doesn't allow, and doesn't change the state.
func TestEnter(t *testing.T) {
	var entered []string
	Entered = func(from, to any) { entered = append(entered, fmt.Sprint(from, to)) }
	defer func() { Entered = nil }()
	var s light
	for _, next := range []light{1, 2, 0} {
		if Enter(&s, next); s != next {
			t.Errorf("%d was entered, and the state is %d", next, s)
		}
	}
	var message any
	func() {
		defer func() { message = recover() }()
		Enter(&s, 2)
	}()
	steps, want := "[]", light(2)
	if Enabled {
		steps, want = "[0 1 1 2 2 0]", 0
	}
	if panicked := strings.Contains(fmt.Sprint(message), "race.light 0 is followed by 2"); panicked != Enabled || s != want {
		t.Errorf("from 0 to 2: %v; the state is %d", message, s)
	}
	if got := fmt.Sprint(entered); got != steps {
		t.Errorf("told of %s, want %s", got, steps)
	}
}
