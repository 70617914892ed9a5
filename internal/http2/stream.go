package http2

import "slices"

// State is the state of a stream on a server that doesn't push (RFC 9113, section 5.1). So the two "reserved" states, which are for pushed
// streams, don't occur.
//
//	                   +------+
//	                   | Idle |
//	                   +------+
//	             HEADERS |  | HEADERS with END_STREAM
//	                     v  +------------------+
//	                   +------+                |
//	          +--------| Open |--------+       |
//	END_STREAM|        +------+        |END_STREAM
//	was sent  |                        |received
//	          v                        v       v
//	+-----------------+          +------------------+
//	| HalfClosedLocal |          | HalfClosedRemote |
//	+-----------------+          +------------------+
//	          |                        |
//	END_STREAM|       +--------+       |END_STREAM
//	received  +------>| Closed |<------+was sent
//	                  +--------+
//
// In each state but Idle, receiving RST_STREAM makes the stream Closed, and sending RST_STREAM makes it Reset.
//
// RFC 9113 has one closed state, in which the meaning of a received frame depends on why the stream was closed. Here it is divided into two.
// In the state Reset, the client may have sent frames before it received our RST_STREAM.
type State uint8

const (
	// Idle is a stream that the client hasn't opened yet.
	Idle State = iota
	// Open is a stream whose request isn't complete.
	Open
	// HalfClosedRemote is a stream whose request is complete, and whose answer isn't.
	HalfClosedRemote
	// HalfClosedLocal is a stream whose answer is complete, and whose request isn't.
	HalfClosedLocal
	// Closed is a stream that has ended on both sides, or was reset by the client.
	Closed
	// Reset is a stream that the server has reset or never served: frames on it are discarded. IDs.Reset records the numbers of such
	// streams.
	Reset
	states
)

var stateNames = [states]string{"idle", "open", "half-closed (remote)", "half-closed (local)", "closed", "closed by our RST_STREAM"}

// String returns the state's name in the RFC.
func (s State) String() string { return stateNames[s] }

// Event is a frame that is received or sent on a stream.
type Event uint8

// The events. CONTINUATION is no event, since it is a part of HEADERS. Neither is PRIORITY_UPDATE, since it is sent on the connection.
const (
	ReceiveHeaders Event = iota
	ReceiveHeadersEnd
	ReceiveData
	ReceiveDataEnd
	ReceivePriority
	ReceiveReset
	ReceiveWindowUpdate
	SendHeaders
	SendHeadersEnd
	SendData
	SendDataEnd
	SendReset
	SendWindowUpdate
	events
)

// Verdict is what an event means in a state.
type Verdict struct {
	Next State
	// Fault says what is wrong with a received frame. It takes precedence over a fault that the Reader has found. The stream's state doesn't
	// change until RST_STREAM or GOAWAY is sent because of the fault.
	Fault Fault
	// Late says that the frame was received on a stream that has ended, and must be discarded. But the bytes of DATA must be credited to the
	// connection's window, and the field block of HEADERS must be decoded.
	Late bool
	// GivesUp says that the client gives up an answer that isn't complete. After a whole answer, RST_STREAM only ends the request: the
	// clients of net/http and gRPC, for example, send it after an answer that was complete before the request.
	GivesUp bool
	// Drop says that the frame mustn't be sent: either the stream has ended since the caller decided to send it, or the caller has a bug.
	Drop bool
}

// Step returns what the event means in the state.
func (s State) Step(e Event) Verdict { return steps[s][e] }

// EventOf returns the event of a received frame. It returns false if the frame is no event of a stream: because of its type, because it is
// CONTINUATION, or because it is a WINDOW_UPDATE of the connection.
func EventOf(f *Frame) (Event, bool) {
	end := Event(f.Flags & FlagEndStream)
	switch f.Type {
	case FrameHeaders:
		return ReceiveHeaders + end, true
	case FrameData:
		return ReceiveData + end, true
	case FramePriority:
		return ReceivePriority, true
	case FrameReset:
		return ReceiveReset, true
	case FrameWindowUpdate:
		return ReceiveWindowUpdate, f.Stream != 0
	}
	return 0, false
}

var steps = func() (table [states][events]Verdict) {
	to := func(s State) Verdict { return Verdict{Next: s} }
	wrong := func(f Fault) Verdict { return Verdict{Fault: f} }
	late, drop, givesUp := Verdict{Late: true}, Verdict{Drop: true}, Verdict{Next: Closed, GivesUp: true}

	// "Receiving any frame other than HEADERS or PRIORITY on a stream in this state MUST be treated as a connection error of type
	// PROTOCOL_ERROR."
	table[Idle] = [events]Verdict{
		ReceiveHeaders: to(Open), ReceiveHeadersEnd: to(HalfClosedRemote), ReceiveData: wrong(FaultIdle), ReceiveDataEnd: wrong(FaultIdle),
		ReceivePriority: to(Idle), ReceiveReset: wrong(FaultIdle), ReceiveWindowUpdate: wrong(FaultIdle),
		SendHeaders: drop, SendHeadersEnd: drop, SendData: drop, SendDataEnd: drop, SendReset: drop, SendWindowUpdate: drop,
	}
	// Section 8.1: the second HEADERS of a request are its trailer section, which must end the stream.
	table[Open] = [events]Verdict{
		ReceiveHeaders: wrong(FaultTrailersGoOn), ReceiveHeadersEnd: to(HalfClosedRemote), ReceiveData: to(Open),
		ReceiveDataEnd: to(HalfClosedRemote), ReceivePriority: to(Open), ReceiveReset: givesUp, ReceiveWindowUpdate: to(Open),
		SendHeaders: to(Open), SendHeadersEnd: to(HalfClosedLocal), SendData: to(Open), SendDataEnd: to(HalfClosedLocal),
		SendReset: to(Reset), SendWindowUpdate: to(Open),
	}
	// "If an endpoint receives additional frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM, for a stream that is in this state, it
	// MUST respond with a stream error of type STREAM_CLOSED."
	table[HalfClosedRemote] = [events]Verdict{
		ReceiveHeaders: wrong(FaultStreamClosed), ReceiveHeadersEnd: wrong(FaultStreamClosed), ReceiveData: wrong(FaultStreamClosed),
		ReceiveDataEnd: wrong(FaultStreamClosed), ReceivePriority: to(HalfClosedRemote), ReceiveReset: givesUp,
		ReceiveWindowUpdate: to(HalfClosedRemote),
		SendHeaders:         to(HalfClosedRemote), SendHeadersEnd: to(Closed), SendData: to(HalfClosedRemote), SendDataEnd: to(Closed),
		SendReset: to(Reset), SendWindowUpdate: drop,
	}
	// "An endpoint can receive any type of frame in this state." WINDOW_UPDATE has no effect any more.
	table[HalfClosedLocal] = [events]Verdict{
		ReceiveHeaders: wrong(FaultTrailersGoOn), ReceiveHeadersEnd: to(Closed), ReceiveData: to(HalfClosedLocal), ReceiveDataEnd: to(Closed),
		ReceivePriority: to(HalfClosedLocal), ReceiveReset: to(Closed), ReceiveWindowUpdate: to(HalfClosedLocal),
		SendHeaders: drop, SendHeadersEnd: drop, SendData: drop, SendDataEnd: drop, SendReset: to(Reset), SendWindowUpdate: to(HalfClosedLocal),
	}
	// A client may send WINDOW_UPDATE and RST_STREAM before it knows that the stream has ended. It can't do so with DATA and HEADERS, since
	// it has itself ended its side of the stream. HEADERS would open the stream again, which ends the connection (section 5.1.1). DATA is
	// answered with RST_STREAM, but only once: after that the stream is Reset.
	table[Closed] = [events]Verdict{
		ReceiveHeaders: wrong(FaultReused), ReceiveHeadersEnd: wrong(FaultReused), ReceiveData: wrong(FaultStreamClosed),
		ReceiveDataEnd: wrong(FaultStreamClosed), ReceivePriority: to(Closed), ReceiveReset: late, ReceiveWindowUpdate: late,
		SendHeaders: drop, SendHeadersEnd: drop, SendData: drop, SendDataEnd: drop, SendReset: to(Reset), SendWindowUpdate: drop,
	}
	// "An endpoint that sends a RST_STREAM frame on a stream that is in the "open" or "half-closed (local)" state could receive any type of
	// frame. [It] MUST minimally process and then discard any frames it receives in this state."
	table[Reset] = [events]Verdict{
		ReceiveHeaders: late, ReceiveHeadersEnd: late, ReceiveData: late, ReceiveDataEnd: late, ReceivePriority: to(Reset),
		ReceiveReset: late, ReceiveWindowUpdate: late,
		SendHeaders: drop, SendHeadersEnd: drop, SendData: drop, SendDataEnd: drop, SendReset: drop, SendWindowUpdate: drop,
	}
	for s := range table {
		for e := range table[s] {
			if v := &table[s][e]; v.Fault != NoFault || v.Late || v.Drop {
				v.Next = State(s)
			}
		}
	}
	return table
}()

// Over reports whether the stream has ended on both sides, or was reset.
func (s State) Over() bool { return s >= Closed }

// Ends says whether a fault ends a stream, the connection, or neither.
type Ends uint8

const (
	// EndsNothing means that the frame is discarded, since its stream has already ended.
	EndsNothing Ends = iota
	// EndsStream means that RST_STREAM must be sent.
	EndsStream
	// EndsConnection means that GOAWAY must be sent.
	EndsConnection
)

// Ends returns what the fault of a frame ends. s is the state of the stream after the frame, so after HEADERS it isn't Idle. An idle stream
// can't be reset, since a client treats RST_STREAM on it as a connection error (RFC 9113, section 5.1). A stream that is over needn't be
// reset, unless the frame wasn't allowed on a closed stream, or its format is wrong.
func (s State) Ends(f Fault) Ends {
	switch {
	case !f.OfStream() || s == Idle:
		return EndsConnection
	case s.Over() && (s == Reset || f != FaultStreamClosed && !f.ofForm()):
		return EndsNothing
	}
	return EndsStream
}

// IDs determines the state of streams that aren't in the Table. It compares their numbers with that of the last stream: "The first use of a
// new stream identifier implicitly closes all streams in the "idle" state that might have been initiated by that peer with a lower-valued
// stream identifier" (RFC 9113, section 5.1.1). The zero value is for a connection without streams.
type IDs struct {
	last  uint32
	reset uint32 // the highest number of a stream that became Reset
}

// Open records that the client opens a stream. It returns FaultStreamID if the client can't open a stream with this number.
func (s *IDs) Open(id uint32) Fault {
	if id&1 == 0 || id <= s.last {
		return FaultStreamID
	}
	s.last = id
	return NoFault
}

// Last returns the number of the last stream that the client has opened, 0 for none. It is the number for GOAWAY.
func (s *IDs) Last() uint32 { return s.last }

// Reset records that the stream has become Reset, or was opened after GOAWAY and will never be served: further frames on it are late, but
// aren't faults. The same then applies to all streams with lower numbers, so that IDs needs no list, which a client could make grow. Late frames
// are charged as glitches, even on streams with lower numbers that weren't reset.
func (s *IDs) Reset(id uint32) { s.reset = max(s.reset, id) }

// State returns the state of a stream that isn't in the Table: Idle, Closed or Reset. Streams with even numbers are always Idle,
// since only a server could open them.
func (s *IDs) State(id uint32) State {
	switch {
	case id > s.last || id&1 == 0:
		return Idle
	case id <= s.reset:
		return Reset
	}
	return Closed
}

// Table finds streams by their numbers. It is a list sorted by number, since numbers rise, and has gaps where streams were removed. The zero
// value is empty, and has no memory.
type Table[S any] struct {
	slots []slot[S]
	live  int
}

type slot[S any] struct {
	id     uint32
	stream *S // nil once the stream was removed
}

// keptSlots is the capacity up to which an empty table keeps its memory.
const keptSlots = 8

// Len returns the number of streams.
func (t *Table[S]) Len() int { return t.live }

// Add adds a stream, whose number must be higher than those of all earlier streams.
func (t *Table[S]) Add(id uint32, s *S) {
	if len(t.slots) == cap(t.slots) && t.live < len(t.slots)/2 {
		t.slots = slices.DeleteFunc(t.slots, func(e slot[S]) bool { return e.stream == nil })
	}
	t.slots = append(t.slots, slot[S]{id, s})
	t.live++
}

// Find returns the stream with the number, nil if there is none.
func (t *Table[S]) Find(id uint32) *S {
	if i, ok := t.index(id); ok {
		return t.slots[i].stream
	}
	return nil
}

// Remove removes the stream with the number, if there is one.
func (t *Table[S]) Remove(id uint32) {
	i, ok := t.index(id)
	if !ok || t.slots[i].stream == nil {
		return
	}
	t.slots[i].stream = nil
	if t.live--; t.live > 0 {
		return
	}
	if t.slots = t.slots[:0]; cap(t.slots) > keptSlots {
		t.slots = nil
	}
}

func (t *Table[S]) index(id uint32) (int, bool) {
	low, high := 0, len(t.slots)
	for low < high {
		middle := int(uint(low+high) / 2)
		if t.slots[middle].id < id {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(t.slots) && t.slots[low].id == id
}

// All yields the streams in the order of their numbers. During the iteration streams may be removed, but not added.
func (t *Table[S]) All(yield func(*S) bool) {
	for _, e := range t.slots {
		if e.stream != nil && !yield(e.stream) {
			return
		}
	}
}
