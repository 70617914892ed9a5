package http1

import "testing"

// Each fault has a status of 400 or more, and a text that no other fault has.
func TestFaults(t *testing.T) {
	texts := make(map[string]Fault)
	for fault := NoFault + 1; fault < FaultCount; fault++ {
		if status := fault.Status(); status < 400 || status > 599 || fault.String() == "" {
			t.Errorf("fault %d: %d %q", fault, status, fault)
		}
		if other, taken := texts[fault.String()]; taken {
			t.Errorf("the faults %d and %d are both %q", fault, other, fault)
		}
		texts[fault.String()] = fault
	}
}
