package openloop

// Failure is a kind of error that a request may end with.
type Failure uint8

// The kinds of errors.
const (
	FailedConnect   Failure = iota // the connection, its TLS handshake or its upgrade failed
	FailedReset                    // the server reset the connection
	FailedClosed                   // the server closed it before the answer's end
	FailedTimeout                  // no whole answer came within the time-out
	FailedStatus                   // the answer has another status
	FailedMalformed                // what came is no answer
	FailedMismatch                 // the answer has another body
	failures
)

var failureNames = [failures]string{"connect", "reset", "closed", "timeout", "status", "malformed", "mismatch"}

// String returns the kind's name, as Result.Errors has it.
func (f Failure) String() string { return failureNames[f] }
