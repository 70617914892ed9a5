package http2

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

func settingOf(id uint16, value uint32) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, id), value))
}

// RFC 9113, section 6.5.2, and the RFCs that define further settings.
func TestPeerSettings(t *testing.T) {
	for _, test := range []struct {
		rfc   string
		id    uint16
		value uint32
		want  Fault
	}{
		{"6.5.2: HEADER_TABLE_SIZE", 1, 0, NoFault},
		{"6.5.2: HEADER_TABLE_SIZE", 1, math.MaxUint32, NoFault},
		{"6.5.2: ENABLE_PUSH", 2, 0, NoFault},
		{"6.5.2: ENABLE_PUSH", 2, 1, NoFault},
		{"6.5.2: ENABLE_PUSH other than 0 or 1", 2, 2, FaultSetting},
		{"6.5.2: MAX_CONCURRENT_STREAMS", 3, 0, NoFault},
		{"6.5.2: MAX_CONCURRENT_STREAMS", 3, math.MaxUint32, NoFault},
		{"6.5.2: INITIAL_WINDOW_SIZE", 4, 0, NoFault},
		{"6.5.2: INITIAL_WINDOW_SIZE", 4, 1<<31 - 1, NoFault},
		{"6.5.2: INITIAL_WINDOW_SIZE over 2^31-1", 4, 1 << 31, FaultInitialWindow},
		{"6.5.2: INITIAL_WINDOW_SIZE over 2^31-1", 4, math.MaxUint32, FaultInitialWindow},
		{"6.5.2: MAX_FRAME_SIZE", 5, 16384, NoFault},
		{"6.5.2: MAX_FRAME_SIZE", 5, 1<<24 - 1, NoFault},
		{"6.5.2: MAX_FRAME_SIZE below 2^14", 5, 16383, FaultSetting},
		{"6.5.2: MAX_FRAME_SIZE over 2^24-1", 5, 1 << 24, FaultSetting},
		{"6.5.2: MAX_HEADER_LIST_SIZE", 6, 0, NoFault},
		{"6.5.2: unknown", 7, math.MaxUint32, NoFault},
		{"RFC 8441, 3: ENABLE_CONNECT_PROTOCOL", 8, 1, NoFault},
		{"RFC 8441, 3: ENABLE_CONNECT_PROTOCOL other than 0 or 1", 8, 2, FaultSetting},
		{"RFC 9218, 2.1: NO_RFC7540_PRIORITIES", 9, 1, NoFault},
		{"RFC 9218, 2.1: NO_RFC7540_PRIORITIES other than 0 or 1", 9, 2, FaultSetting},
		{"6.5.2: unknown", 0xfeed, 5, NoFault},
	} {
		var s PeerSettings
		s.Reset()
		if _, got := s.Apply([]byte(settingOf(3, 100) + settingOf(test.id, test.value))); got != test.want {
			t.Errorf("%s, %d: %v, want %v", test.rfc, test.value, got, test.want)
		}
	}
}

// "The values in the SETTINGS frame MUST be processed in the order they appear."
func TestPeerSettingsValues(t *testing.T) {
	var s PeerSettings
	s.Reset()
	if s.InitialWindow != 65535 || s.MaxHeaderList != math.MaxUint32 || s.NoPriorities {
		t.Errorf("at first: %+v", s)
	}
	for _, test := range []struct {
		entries string
		delta   int32
		want    string
	}{
		{"", 0, "65535 4294967295 false"},
		{settingOf(4, 100), 100 - 65535, "100 4294967295 false"},
		{settingOf(4, 0) + settingOf(4, 1<<31-1) + settingOf(4, 200) + settingOf(6, 5) + settingOf(9, 1), 100, "200 5 true"},
		{settingOf(4, 1<<31-1), 1<<31 - 1 - 200, "2147483647 5 true"},
		{settingOf(4, 0), -(1<<31 - 1), "0 5 true"},
	} {
		delta, fault := s.Apply([]byte(test.entries))
		if got := fmt.Sprint(s.InitialWindow, s.MaxHeaderList, s.NoPriorities); got != test.want || delta != test.delta || fault != NoFault {
			t.Errorf("%q: %s, windows by %d, %v", test.entries, got, delta, fault)
		}
	}
}

// RFC 7541, section 4.2: the smallest of several sizes must be signalled, and then the last.
func TestTakeTableSize(t *testing.T) {
	var s PeerSettings
	s.Reset()
	for _, test := range []struct {
		frames      []string
		least, last uint32
		changed     bool
	}{
		{nil, 4096, 4096, false},
		{[]string{settingOf(3, 5)}, 4096, 4096, false},
		{[]string{settingOf(1, 100)}, 100, 100, true},
		{nil, 100, 100, false},
		{[]string{settingOf(1, 50) + settingOf(1, 8000), settingOf(1, 200) + settingOf(1, 300)}, 50, 300, true},
		{[]string{settingOf(1, 400)}, 400, 400, true},
		{[]string{settingOf(1, 300) + settingOf(1, 200), settingOf(1, 100), settingOf(1, 250)}, 100, 250, true},
		{[]string{settingOf(1, 0) + settingOf(1, math.MaxUint32)}, 0, math.MaxUint32, true},
	} {
		for _, frame := range test.frames {
			s.Apply([]byte(frame))
		}
		if least, last, changed := s.TakeTableSize(); least != test.least || last != test.last || changed != test.changed {
			t.Errorf("%q: %d, %d, %t", test.frames, least, last, changed)
		}
	}
}

func TestSettingsAppend(t *testing.T) {
	for _, test := range []struct {
		settings Settings
		want     string
	}{
		{Settings{}, settingOf(9, 1)},
		{Settings{MaxStreams: 128, MaxHeaderList: 16384}, settingOf(3, 128) + settingOf(6, 16384) + settingOf(9, 1)},
		{Settings{HeaderTableSize: 4096, InitialWindow: 65535}, settingOf(9, 1)},
		{Settings{HeaderTableSize: 8192, InitialWindow: 1 << 20, ExtendedConnect: true}, settingOf(1, 8192) + settingOf(4, 1<<20) +
			settingOf(8, 1) + settingOf(9, 1)},
	} {
		if got := test.settings.Append([]byte("x")); string(got) != "x"+frameOf(FrameSettings, 0, 0, test.want) {
			t.Errorf("%+v: %q", test.settings, got)
		}
	}
}

// RFC 9113, section 6.5.3.
func TestAcks(t *testing.T) {
	const now = clock.Time(time.Hour)
	var a Acks
	if a.Received() || a.Acked() || a.Deadline() != 0 {
		t.Errorf("before any SETTINGS: %+v", a)
	}
	a.Sent(now, 5*time.Second)
	if a.Acked() || a.Deadline() != now.Add(5*time.Second) {
		t.Errorf("%+v", a)
	}
	a.Sent(now.Add(time.Second), 5*time.Second)
	if !a.Received() || !a.Acked() || a.Deadline() != now.Add(6*time.Second) {
		t.Errorf("of two one is acknowledged: %+v", a)
	}
	if !a.Received() || a.Deadline() != 0 || a.Received() {
		t.Errorf("both are acknowledged: %+v", a)
	}
	if a.Sent(now, -1); a.Deadline() != 0 {
		t.Errorf("without a time-out: %+v", a)
	}
}
