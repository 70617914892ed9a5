package http2

import (
	"strings"
	"testing"
	"time"
)

// attacks are frames that an attacker repeats endlessly, each round on a new stream, whose number is id. want is the fault that ends the
// connection, at once or within 1,100 rounds.
var attacks = []struct {
	name  string
	round func(id uint32) string
	want  Fault
}{
	{"Rapid Reset", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FrameReset, 0, id, uint32Of(8))
	}, FaultGlitches},
	{"MadeYouReset by WINDOW_UPDATE of 0", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FrameWindowUpdate, 0, id, uint32Of(0))
	}, FaultGlitches},
	{"MadeYouReset by a window over 2^31-1", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FrameWindowUpdate, 0, id, uint32Of(1<<31-1))
	}, FaultGlitches},
	{"MadeYouReset by DATA behind END_STREAM", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FrameData, 0, id, "abc")
	}, FaultGlitches},
	{"MadeYouReset by HEADERS behind END_STREAM", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock)
	}, FaultGlitches},
	{"MadeYouReset by PRIORITY of 4 bytes", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FramePriority, 0, id, uint32Of(0))
	}, FaultGlitches},
	{"MadeYouReset by PRIORITY on itself", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FramePriority, 0, id, uint32Of(id)+"\x00")
	}, FaultGlitches},
	{"MadeYouReset by HEADERS on itself", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream|FlagPriority, id, uint32Of(id)+"\x00"+getBlock)
	}, FaultGlitches},
	{"MadeYouReset by trailers without END_STREAM", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders, id, getBlock) + frameOf(FrameHeaders, FlagEndHeaders, id, "\x00\x01x\x01y")
	}, FaultGlitches},
	{"MadeYouReset by more DATA than announced", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders, id, getBlock+"\x0f\x0d\x011") + frameOf(FrameData, 0, id, "abc")
	}, FaultGlitches},
	{"MadeYouReset by a malformed request", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock+"\x00\x01X\x01y")
	}, FaultGlitches},
	{"DATA behind the client's RST_STREAM", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders, id, getBlock) + frameOf(FrameReset, 0, id, uint32Of(8)) + frameOf(FrameData, 0, id, "abc")
	}, FaultGlitches},
	{"empty DATA", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders, id, getBlock) + frameOf(FrameData, 0, id, "") + frameOf(FrameData, FlagEndStream, id, "")
	}, FaultGlitches},
	{"PING", func(uint32) string { return frameOf(FramePing, 0, 0, "12345678") }, FaultGlitches},
	{"PING with ACK", func(uint32) string { return frameOf(FramePing, FlagAck, 0, "12345678") }, FaultGlitches},
	{"SETTINGS", func(uint32) string { return frameOf(FrameSettings, 0, 0, "") }, FaultGlitches},
	{"SETTINGS with ACK", func(uint32) string { return frameOf(FrameSettings, FlagAck, 0, "") }, FaultGlitches},
	{"full SETTINGS", func(uint32) string { return frameOf(FrameSettings, 0, 0, strings.Repeat(settingOf(4, 5), 2730)) }, FaultGlitches},
	{"PRIORITY", func(id uint32) string { return frameOf(FramePriority, 0, id, uint32Of(0)+"\x00") }, FaultGlitches},
	{"PRIORITY_UPDATE", func(id uint32) string { return frameOf(FramePriorityUpdate, 0, 0, uint32Of(id)+"u=1") }, FaultGlitches},
	{"unknown frames", func(uint32) string { return frameOf(0xaa, 0, 0, "") }, FaultGlitches},
	{"WINDOW_UPDATE byte by byte", func(uint32) string { return frameOf(FrameWindowUpdate, 0, 0, uint32Of(1)) }, FaultGlitches},
	{"WINDOW_UPDATE on a closed stream", func(id uint32) string {
		return frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + "|" + strings.Repeat(frameOf(FrameWindowUpdate, 0, id, uint32Of(5000)), 2)
	}, FaultGlitches},
	{"GOAWAY", func(uint32) string { return frameOf(FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00") }, FaultGlitches},
	{"a CONTINUATION flood", func(id uint32) string {
		return frameOf(FrameHeaders, 0, id, "") + strings.Repeat(frameOf(FrameContinuation, 0, id, ""), 9)
	}, FaultBlock},
	{"a large block", func(id uint32) string {
		return frameOf(FrameHeaders, 0, id, strings.Repeat("x", 16384)) +
			strings.Repeat(frameOf(FrameContinuation, 0, id, strings.Repeat("x", 16384)), 2)
	}, FaultBlock},
	{"a zip of windows", func(uint32) string { return frameOf(FrameWindowUpdate, 0, 0, uint32Of(1<<31-1)) }, FaultConnectionWindow},
}

// The connection of each attack ends after about a thousand rounds.
func TestAttacks(t *testing.T) {
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			m := newModel(t)
			m.feed([]byte(clientPreface))
			rounds := 0
			for id := uint32(1); m.ended == NoFault && rounds <= 1100; id += 2 {
				client, late, _ := strings.Cut(attack.round(id), "|")
				m.feed([]byte(client))
				m.answer(id)
				m.feed([]byte(late))
				m.check()
				m.log = nil
				rounds++
			}
			if m.ended != attack.want {
				t.Errorf("after %d rounds: %v", rounds, m.ended)
			}
		})
	}
}

// answer sends an answer to the request on a stream, if the request is complete.
func (m *model) answer(id uint32) {
	if s := m.table.Find(id); s != nil && s.state == HalfClosedRemote {
		m.sends(id, SendHeaders)
		m.sends(id, SendDataEnd)
		m.earned.Answer(0)
	}
}

// A busy client that does nothing unusual is never charged: it sends requests with bodies, a WINDOW_UPDATE and a PING for each small answer,
// as gRPC does, and sometimes cancels a request.
func TestPoliteClient(t *testing.T) {
	m := newModel(t)
	m.feed([]byte(clientPreface + frameOf(FrameSettings, FlagAck, 0, "")))
	id := uint32(1)
	for i := range 20_000 {
		m.feed([]byte(frameOf(FrameHeaders, FlagEndHeaders, id, getBlock)))
		m.feed([]byte(frameOf(FrameData, 0, id, "abc") + frameOf(FrameData, FlagEndStream, id, "")))
		if s := m.table.Find(id); s != nil {
			m.drain(s, 3)
		}
		m.answer(id)
		if i%2 == 0 {
			m.feed([]byte(frameOf(FrameWindowUpdate, 0, 0, uint32Of(13))))
		} else {
			m.feed([]byte(frameOf(FramePing, 0, 0, "12345678")))
		}
		if id += 2; i%100 == 0 {
			m.feed([]byte(frameOf(FrameHeaders, FlagEndHeaders|FlagEndStream, id, getBlock) + frameOf(FrameReset, 0, id, uint32Of(8))))
			id += 2
		}
		m.now = m.now.Add(time.Millisecond)
		if m.check(); m.ended != NoFault {
			t.Fatalf("request %d: %v", i, m.ended)
		}
		m.log = nil
	}
	if m.charged > 500 {
		t.Errorf("%d glitches", m.charged)
	}
}
