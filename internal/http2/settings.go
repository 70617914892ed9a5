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
	// DefaultHeaderTableSize is the maximum size of HPACK's table in bytes until SETTINGS changes it.
	DefaultHeaderTableSize = 4096
	// DefaultWindow is the size of a window in bytes until SETTINGS or WINDOW_UPDATE changes it.
	DefaultWindow = 65535
	// maxWindow is the largest size of a window (RFC 9113, section 6.9.1).
	maxWindow = 1<<31 - 1
)

// PeerSettings holds the client's settings that the server uses. The server ignores the settings for pushing, and the client's maximum frame
// size, since the server's frames are small. Call Reset first.
type PeerSettings struct {
	// InitialWindow is how many bytes of content may be sent on a new stream.
	InitialWindow int32
	// MaxHeaderList is the largest total size of an answer's fields. Each field counts 32 bytes in addition to its name and value. The limit
	// is advisory.
	MaxHeaderList             uint32
	tableSize, leastTableSize uint32
	tableChanged              bool
	// NoPriorities says that the client doesn't use the priorities of RFC 7540. It may use those of RFC 9218.
	NoPriorities bool
}

// Reset sets the values that apply before the client's first SETTINGS.
func (s *PeerSettings) Reset() {
	*s = PeerSettings{InitialWindow: DefaultWindow, MaxHeaderList: 1<<32 - 1, tableSize: DefaultHeaderTableSize}
}

// Apply applies the entries of SETTINGS without ACK. The caller must then acknowledge them, and change the send windows of all streams by
// windowDelta. If a frame has several initial windows, only the last one counts, so such a frame causes no extra work.
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

// TakeTableSize returns the allowed sizes of HPACK's table for Encoder.SetTableSize, and whether the client has sent one since the last
// call. The next field block must begin with an update to the size least and, if last is larger, a second update to last (RFC 7541, section 4.2).
func (s *PeerSettings) TakeTableSize() (least, last uint32, changed bool) {
	changed, s.tableChanged = s.tableChanged, false
	if !changed {
		return s.tableSize, s.tableSize, false
	}
	return s.leastTableSize, s.tableSize, true
}

// Settings holds the server's settings. A setting that is 0 or the default of RFC 9113 isn't sent.
type Settings struct {
	MaxStreams      uint32 // how many streams a client may have open
	MaxHeaderList   uint32 // the largest total size of a request's fields; each counts 32 bytes in addition to its name and value
	HeaderTableSize uint32 // the table size of HPACK's decoder, in bytes; 0: DefaultHeaderTableSize
	// InitialWindow is the initial receive window of a stream, in bytes. It must be at least DefaultWindow, since a client that hasn't
	// received SETTINGS yet may send that much. 0: DefaultWindow.
	InitialWindow uint32
	// ExtendedConnect says that the server accepts extended CONNECT requests (RFC 8441).
	ExtendedConnect bool
}

// Append appends SETTINGS. It includes SETTINGS_NO_RFC7540_PRIORITIES.
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

// Acks counts the SETTINGS that the server has sent and the client hasn't acknowledged. The zero value is for a connection on which no
// SETTINGS were sent.
type Acks struct {
	deadline clock.Time // for the acknowledgement of the last SETTINGS; 0 for none
	waiting  uint8
	acked    bool
}

// Sent records that SETTINGS are sent, which must be acknowledged within the time-out. If timeout is negative, there is no limit.
func (a *Acks) Sent(now clock.Time, timeout time.Duration) {
	a.waiting++
	a.deadline = now.Deadline(timeout)
}

// Received records that SETTINGS with ACK was received. It returns false if there were no unacknowledged SETTINGS. RFC 9113 doesn't say what
// such an ACK means, so the caller ignores it and charges a glitch.
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

// Acked reports whether the client has acknowledged the first SETTINGS. Until then it may not know how many streams it may open.
func (a *Acks) Acked() bool { return a.acked }

// Deadline returns the time by which the client must have acknowledged the last SETTINGS, or 0. After that the connection ends with
// FaultSettingsTimeout (RFC 9113, section 6.5.3).
func (a *Acks) Deadline() clock.Time { return a.deadline }
