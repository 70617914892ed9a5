package http2conn

// This file defines the states of connections and of streams. race.Enter changes a state. Builds with the race detector check each change:
// Next returns a bit mask of the states that may follow.

// life says how far the shutdown of a connection has progressed. The owner changes it, with mu held.
type life uint8

const (
	lifeServing  life = iota
	lifeLeaving       // GOAWAY with the highest number was sent, followed by a PING: requests that the client has already sent are still served
	lifeAnswered      // as lifeLeaving, and the client has answered the PING
	lifeLast          // GOAWAY with the number of the last served stream was sent
	lifeEnding        // no more frames are processed: the connection ends when the output has been sent
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
	outputFinishing        // as outputFlushing, and the owner waits until the goroutine has finished
	outputClosed           // nothing is sent any more
)

func (s output) Next() uint8 {
	return [...]uint8{
		outputIdle:      1<<outputFlushing | 1<<outputClosed,
		outputFlushing:  1<<outputIdle | 1<<outputFinishing | 1<<outputClosed,
		outputFinishing: 1<<outputIdle | 1<<outputFinishing | 1<<outputClosed,
		outputClosed:    1 << outputClosed, // a later turn may call Close again
	}[s]
}

// sending says how much of a stream's answer was produced and sent.
type sending uint8

const (
	sendingNothing sending = iota // no final answer yet, but perhaps an interim answer
	sendingParts                  // the head of a streamed answer was sent, and its handler adds content
	sendingRest                   // the handler adds no more: the end of the answer follows the unsent bytes
	sendingDone                   // the end of the answer is in the queue
	sendingLost                   // nothing is sent any more: the stream was reset, or the connection has ended
)

func (s sending) Next() uint8 {
	return [...]uint8{
		sendingNothing: 1<<sendingParts | 1<<sendingRest | 1<<sendingDone | 1<<sendingLost,
		sendingParts:   1<<sendingRest | 1<<sendingLost,
		sendingRest:    1<<sendingDone | 1<<sendingLost,
		sendingDone:    1 << sendingLost, // the rest of the request may still be reset
		sendingLost:    0,
	}[s]
}

// reader says what the goroutine that reads a request's body is doing.
type reader uint8

const (
	readerAway  reader = iota // the goroutine doesn't wait, or there is none
	readerWaits               // the goroutine waits for bytes of the body
	readerAsks                // the goroutine's deadline has passed: it waits until the owner has read from the socket once more
)

func (s reader) Next() uint8 {
	return [...]uint8{
		readerAway:  1 << readerWaits,
		readerWaits: 1<<readerAway | 1<<readerAsks,
		readerAsks:  1<<readerAway | 1<<readerWaits,
	}[s]
}

// awaits says what a stream without a running handler waits for.
type awaits uint8

const (
	awaitsNothing awaits = iota
	awaitsBody           // the handler runs when the body was received
	awaitsEnd            // the answer was sent, but the request hasn't ended
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

// tunnelSide says which directions of a tunnel the server has closed.
type tunnelSide uint8

const (
	tunnelOpen   tunnelSide = iota
	tunnelHalf              // the answer was ended: CloseWrite
	tunnelClosed            // both directions were closed: Close
)

func (s tunnelSide) Next() uint8 {
	return [...]uint8{
		tunnelOpen:   1<<tunnelHalf | 1<<tunnelClosed,
		tunnelHalf:   1 << tunnelClosed,
		tunnelClosed: 0,
	}[s]
}

// parkPhase says which goroutine, if any, serves a parked stream.
type parkPhase uint8

const (
	parkBusy    parkPhase = iota // a goroutine owns the stream: the handler's goroutine, or one that calls the program's function
	parkAgain                    // as parkBusy, and the stream was woken after that goroutine began
	parkResting                  // no goroutine owns the stream
	parkSending                  // as parkResting, but the stream only waits until its outbox is empty
	parkClosed                   // Close was called: the goroutine that owns the stream will end it
	parkOver                     // the stream isn't parked any more
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
