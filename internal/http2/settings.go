package http2

import (
	"encoding/binary"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// settingLen is the length of an entry of SETTINGS (RFC 9113, section 6.5.1).
const settingLen = 6

// The settings of RFC 9113, section 6.5.2, RFC 8441, section 3, and RFC 9218, section 2.1.
const (
	settingHeaderTableSize       = 0x1
	settingEnablePush            = 0x2
	settingMaxConcurrentStreams  = 0x3
	settingInitialWindowSize     = 0x4
	settingMaxFrameSize          = 0x5
	settingMaxHeaderListSize     = 0x6
	settingEnableConnectProtocol = 0x8
	settingNoRFC7540Priorities   = 0x9
)

const (
	// DefaultHeaderTableSize is how large HPACK's table is until SETTINGS say otherwise, in bytes.
	DefaultHeaderTableSize = 4096
	// DefaultWindow is how large a window is until SETTINGS or WINDOW_UPDATE say otherwise, in bytes.
	DefaultWindow = 65535
	// maxWindow is the largest one (RFC 9113, section 6.9.1).
	maxWindow = 1<<31 - 1
)

// PeerSettings are the client's, as far as a server that pushes nothing and sends small frames uses them. Call Reset first.
type PeerSettings struct {
	// InitialWindow is how many bytes of content may be sent on a new stream.
	InitialWindow int32
	// MaxHeaderList is how large the fields of an answer may be, in bytes and 32 more for each field; advice.
	MaxHeaderList             uint32
	tableSize, leastTableSize uint32
	tableChanged              bool
	// NoPriorities says that the client doesn't use the priorities of RFC 7540, but perhaps those of RFC 9218.
	NoPriorities bool
}

// Reset sets the values that hold before the client's first SETTINGS.
func (s *PeerSettings) Reset() {
	*s = PeerSettings{InitialWindow: DefaultWindow, MaxHeaderList: 1<<32 - 1, tableSize: DefaultHeaderTableSize}
}

// Apply takes over the entries of SETTINGS without ACK, which must then be acknowledged. The send windows of all streams change by
// windowDelta. Only the last of several initial windows counts, so a frame full of them is no more work than one.
func (s *PeerSettings) Apply(entries []byte) (windowDelta int32, fault Fault) {
	before := s.InitialWindow
	for ; len(entries) >= settingLen; entries = entries[settingLen:] {
		value := binary.BigEndian.Uint32(entries[2:])
		switch binary.BigEndian.Uint16(entries) {
		case settingHeaderTableSize:
			if !s.tableChanged || value < s.leastTableSize {
				s.leastTableSize = value
			}
			s.tableSize, s.tableChanged = value, true
		case settingEnablePush, settingEnableConnectProtocol:
			if value > 1 {
				return 0, FaultSetting
			}
		case settingInitialWindowSize:
			if value > maxWindow {
				return 0, FaultInitialWindow
			}
			s.InitialWindow = int32(value)
		case settingMaxFrameSize:
			if value < 16<<10 || value > 1<<24-1 {
				return 0, FaultSetting
			}
		case settingMaxHeaderListSize:
			s.MaxHeaderList = value
		case settingNoRFC7540Priorities:
			if value > 1 {
				return 0, FaultSetting
			}
			s.NoPriorities = value == 1
		}
	}
	return s.InitialWindow - before, NoFault
}

// TakeTableSize returns how large the table of HPACK's encoder may be, if the client has said so since the last call. RFC 7541, section
// 4.2: the next field block begins with an update to least, and with one to last if last is larger.
func (s *PeerSettings) TakeTableSize() (least, last uint32, changed bool) {
	changed, s.tableChanged = s.tableChanged, false
	if !changed {
		return s.tableSize, s.tableSize, false
	}
	return s.leastTableSize, s.tableSize, true
}

// Settings are the server's. Those that have the default of RFC 9113 aren't sent, nor those that are 0.
type Settings struct {
	MaxStreams      uint32 // how many streams a client may have open
	MaxHeaderList   uint32 // how large a request's fields may be, in bytes and 32 more for each field
	HeaderTableSize uint32 // of HPACK's decoder, in bytes; 0: DefaultHeaderTableSize
	// InitialWindow is the receive window of a stream, in bytes, at least DefaultWindow: a client that doesn't know about a smaller one yet
	// may fill that. 0: DefaultWindow.
	InitialWindow uint32
	// ExtendedConnect says that the server takes requests by extended CONNECT (RFC 8441).
	ExtendedConnect bool
}

// Append appends SETTINGS. They say that the priorities of RFC 7540 aren't used.
func (s *Settings) Append(b []byte) []byte {
	start := len(b)
	b = AppendFrameHeader(b, 0, FrameSettings, 0, 0)
	for _, entry := range [...]struct {
		id     uint16
		value  uint32
		unsent uint32
	}{
		{settingHeaderTableSize, s.HeaderTableSize, DefaultHeaderTableSize},
		{settingMaxConcurrentStreams, s.MaxStreams, 0},
		{settingInitialWindowSize, s.InitialWindow, DefaultWindow},
		{settingMaxHeaderListSize, s.MaxHeaderList, 0},
		{settingEnableConnectProtocol, number(s.ExtendedConnect), 0},
		{settingNoRFC7540Priorities, 1, 0},
	} {
		if entry.value != 0 && entry.value != entry.unsent {
			b = binary.BigEndian.AppendUint16(b, entry.id)
			b = binary.BigEndian.AppendUint32(b, entry.value)
		}
	}
	AppendFrameHeader(b[:start], len(b)-start-FrameHeaderLen, FrameSettings, 0, 0)
	return b
}

func number(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

// Acks counts the SETTINGS that the server has sent and the client hasn't acknowledged. The zero value is for a connection on which
// nothing was sent.
type Acks struct {
	deadline clock.Time // of the last that were sent; 0 for none
	waiting  uint8
	acked    bool
}

// Sent records SETTINGS that are sent, and must be acknowledged within the time-out; a negative one is no limit.
func (a *Acks) Sent(now clock.Time, timeout time.Duration) {
	a.waiting++
	a.deadline = now.Deadline(timeout)
}

// Received records SETTINGS with ACK. False means that there were none to acknowledge: RFC 9113 doesn't say what such SETTINGS mean, so
// they are ignored and charged as a glitch.
func (a *Acks) Received() bool {
	if a.waiting == 0 {
		return false
	}
	a.waiting--
	a.acked = true
	if a.waiting == 0 {
		a.deadline = 0
	}
	return true
}

// Acked reports whether the client has acknowledged the first SETTINGS. Until then it can't know how many streams it may open.
func (a *Acks) Acked() bool { return a.acked }

// Deadline returns the time by which the client must have acknowledged the SETTINGS that were sent, or 0. After that the fault is
// FaultSettingsTimeout (RFC 9113, section 6.5.3).
func (a *Acks) Deadline() clock.Time { return a.deadline }
