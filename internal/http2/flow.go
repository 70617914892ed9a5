package http2

// SendWindow is how many bytes of DATA may be sent on a stream, or on all streams together (RFC 9113, section 6.9.1). It is negative if the
// client has made the initial window smaller than the number of bytes already sent. The zero value allows no bytes.
type SendWindow int32

// Grow adds the increment of a WINDOW_UPDATE. It returns false if the window would exceed 2^31-1, which is FaultWindow or
// FaultConnectionWindow.
func (w *SendWindow) Grow(increment uint32) bool { return w.add(int64(increment)) }

// Adjust adds delta, the client's change of the initial window, to a stream's window. It returns false if the window would exceed 2^31-1, which
// is FaultInitialWindow.
func (w *SendWindow) Adjust(delta int32) bool { return w.add(int64(delta)) }

func (w *SendWindow) add(n int64) bool {
	sum := int64(*w) + n
	if sum > maxWindow {
		return false
	}
	*w = SendWindow(sum)
	return true
}

// Sendable returns how many of n bytes may be sent now, in one frame.
func Sendable(connection, stream SendWindow, n int) int {
	return max(0, min(n, MaxFrameSize, int(connection), int(stream)))
}

// Sent subtracts n bytes from both windows.
func Sent(connection, stream *SendWindow, n int) {
	*connection -= SendWindow(n)
	*stream -= SendWindow(n)
}

// ReceiveWindow is how many bytes of DATA the client may send, on a stream or on all streams together. It begins small, and grows fourfold
// when as many bytes as its size were drained and no received byte is left undrained: see Drain. So only a body whose reader keeps up gets a
// large window.
//
// The window's size is always the sum of three numbers of bytes: those that the client may still send, those that were received but not
// drained, and those that were drained but not credited.
type ReceiveWindow struct {
	size    int32
	left    int32 // bytes that the client may still send
	owed    int32 // drained, and not credited yet
	drained int32 // since the size changed, or since Recount
}

// MaxReceiveWindow is the size in bytes up to which a receive window grows by default.
const MaxReceiveWindow = 4 << 20

// Open gives the window its first size.
func (w *ReceiveWindow) Open(size int32) { *w = ReceiveWindow{size: size, left: size} }

// Size returns the size of the window.
func (w *ReceiveWindow) Size() int32 { return w.size }

// Undrained returns how many of the received bytes haven't been drained.
func (w *ReceiveWindow) Undrained() int { return int(w.size - w.left - w.owed) }

// Recount resets Drained to 0.
func (w *ReceiveWindow) Recount() { w.drained = 0 }

// Drained returns how many bytes were drained since the size changed, or since Recount.
func (w *ReceiveWindow) Drained() int32 { return w.drained }

// Receive counts n received bytes of DATA, including the padding. It returns false if the client wasn't allowed to send that many
// bytes, which is FaultOverrun or FaultConnectionOverrun.
func (w *ReceiveWindow) Receive(n int) bool {
	if n > int(w.left) {
		return false
	}
	w.left -= int32(n)
	return true
}

// Drain records that n of the received bytes take up no memory any more. It returns the increment of the WINDOW_UPDATE that must be sent
// now. It returns 0 until the increment is at least an eighth of the window, to save frames. If as many bytes as the window's size were
// drained, and none is left to be drained, the window grows fourfold, up to limit. A window that is larger than limit keeps its size.
func (w *ReceiveWindow) Drain(n int, limit int32) (increment uint32) {
	w.owed += int32(n)
	w.drained = min(w.drained, maxWindow-int32(n)) + int32(n)
	if w.drained >= w.size && w.size < limit && w.Undrained() == 0 {
		grown := int32(min(int64(limit-w.size), 3*int64(w.size)))
		w.size += grown
		w.owed += grown
		w.drained = 0
	}
	if w.owed < w.size/8 {
		return 0
	}
	increment = uint32(w.owed)
	w.left += w.owed
	w.owed = 0
	return increment
}
