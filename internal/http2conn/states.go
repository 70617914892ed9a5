package http2conn

// This file has the states of connections and of streams. race.Enter changes them, and builds with the race detector check each step: Next
// returns the states that may follow, a bit for each.

// life is how far a connection is on its way to the end. The owner changes it, with mu held.
type life uint8

const (
	lifeServing  life = iota
	lifeLeaving       // GOAWAY with the highest number was sent, and a PING behind it: streams that are on their way are still served
	lifeAnswered      // likewise, and the client has answered the PING
	lifeLast          // GOAWAY with the last stream that is served was sent
	lifeEnding        // no frame is taken any more: the connection ends when the output has been sent
)

func (s life) Next() uint8 {
	return [...]uint8{
		lifeServing:  1<<lifeLeaving | 1<<lifeEnding,
		lifeLeaving:  1<<lifeAnswered | 1<<lifeLast | 1<<lifeEnding,
		lifeAnswered: 1<<lifeLast | 1<<lifeEnding,
		lifeLast:     1 << lifeEnding,
		lifeEnding:   1 << lifeEnding,
	}[s]
}

// output says what happens to a connection's queue. Guarded by mu.
type output uint8

const (
	outputIdle      output = iota
	outputFlushing         // a goroutine moves the queue to Out
	outputFinishing        // likewise, and the owner waits until the goroutine has finished
	outputClosed           // nothing is sent any more
)

func (s output) Next() uint8 {
	return [...]uint8{
		outputIdle:      1<<outputFlushing | 1<<outputClosed,
		outputFlushing:  1<<outputIdle | 1<<outputFinishing | 1<<outputClosed,
		outputFinishing: 1<<outputIdle | 1<<outputFinishing | 1<<outputClosed,
		outputClosed:    1 << outputClosed, // another turn finds that all has been sent
	}[s]
}

// sending is how far a stream's answer is.
type sending uint8

const (
	sendingNothing sending = iota // no final answer yet, but perhaps interim ones
	sendingParts                  // the head of a streamed answer was sent, and its handler adds content
	sendingRest                   // nothing is added: the end follows the unsent bytes
	sendingDone                   // the end is in the queue
	sendingLost                   // nothing is sent any more: the stream was reset, or the connection has ended
)

func (s sending) Next() uint8 {
	return [...]uint8{
		sendingNothing: 1<<sendingParts | 1<<sendingRest | 1<<sendingDone | 1<<sendingLost,
		sendingParts:   1<<sendingRest | 1<<sendingLost,
		sendingRest:    1<<sendingDone | 1<<sendingLost,
		sendingDone:    1 << sendingLost, // the request goes on
		sendingLost:    0,
	}[s]
}

// reader says what the goroutine that reads a request's body does.
type reader uint8

const (
	readerAway  reader = iota // it doesn't wait, or there is none
	readerWaits               // for some of the body
	readerAsks                // its time is over: it waits until the owner has looked once more
)

func (s reader) Next() uint8 {
	return [...]uint8{
		readerAway:  1 << readerWaits,
		readerWaits: 1<<readerAway | 1<<readerAsks,
		readerAsks:  1<<readerAway | 1<<readerWaits,
	}[s]
}

// awaits says what a stream that has no handler awaits of its client.
type awaits uint8

const (
	awaitsNothing awaits = iota
	awaitsBody           // the handler runs when the body has come
	awaitsEnd            // the answer was sent before the request has ended
	awaitsWindow         // the handler has returned, and the client hasn't opened its window for the rest of the answer
)

func (s awaits) Next() uint8 {
	return [...]uint8{
		awaitsNothing: 1<<awaitsNothing | 1<<awaitsBody | 1<<awaitsEnd | 1<<awaitsWindow,
		awaitsBody:    1 << awaitsNothing,
		awaitsEnd:     1 << awaitsNothing,
		awaitsWindow:  1<<awaitsNothing | 1<<awaitsEnd,
	}[s]
}

// tunnelSide says what this side of a tunnel has closed.
type tunnelSide uint8

const (
	tunnelOpen   tunnelSide = iota
	tunnelHalf              // its answer: CloseWrite
	tunnelClosed            // both directions: Close
)

func (s tunnelSide) Next() uint8 {
	return [...]uint8{
		tunnelOpen:   1<<tunnelHalf | 1<<tunnelClosed,
		tunnelHalf:   1 << tunnelClosed,
		tunnelClosed: 0,
	}[s]
}

// parkPhase says what becomes of a parked stream.
type parkPhase uint8

const (
	parkBusy    parkPhase = iota // a goroutine has it: the handler's goroutine, or one that calls the function
	parkAgain                    // as parkBusy, and the stream was woken meanwhile
	parkResting                  // no goroutine has it
	parkSending                  // as parkResting, but it only waits for its outbox to be sent
	parkClosed                   // it was closed: the goroutine that has it ends it
	parkOver                     // it isn't parked any more
)

func (s parkPhase) Next() uint8 {
	return [...]uint8{
		parkBusy:    1<<parkAgain | 1<<parkResting | 1<<parkSending | 1<<parkClosed | 1<<parkOver,
		parkAgain:   1<<parkBusy | 1<<parkClosed | 1<<parkOver,
		parkResting: 1 << parkBusy,
		parkSending: 1 << parkBusy,
		parkClosed:  1 << parkOver,
		parkOver:    0,
	}[s]
}
