package http2conf

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/conformance"
	"golang.org/x/net/http2/hpack"
)

// errServer is wrapped by every error about a frame that a server must not send.
var errServer = fmt.Errorf("%w: the server breaks the protocol", conformance.ErrMalformed)

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errServer, fmt.Sprintf(format, args...))
}

// A peer tracks the client's side of a connection: it records the frames that the client sends, and checks the server's frames against the RFCs.
type peer struct {
	streams map[uint32]*stream
	highest uint32 // the highest stream number in the client's HEADERS

	decoder *hpack.Decoder
	block   []byte // the incomplete field block of the stream inBlock
	inBlock uint32
	ends    bool // the block ends its stream

	server    ServerSettings
	began     bool          // the server's first SETTINGS have arrived
	acked     clientValues  // the values that the server has acknowledged
	unacked   []clientDelta // the changes by SETTINGS that the server hasn't acknowledged
	pings     []string      // the PINGs that the server has to answer
	mayShrink bool          // the next block must begin with an update of the table's size

	send, receive int64 // the connection's windows: how much DATA the client and the server may send

	goneAway []goAwayFrame
	replies  []Frame // the acknowledgments and PING answers that the client must still send
}

// clientValues are values of the client's SETTINGS.
type clientValues struct{ window, table int64 }

// clientDelta holds the values of one SETTINGS frame of the client, -1 for a setting that the frame lacks.
type clientDelta clientValues

type goAwayFrame struct {
	last  uint32
	code  Code
	debug string
}

// A stream records what the server has sent on a stream.
type stream struct {
	opened         bool // by HEADERS of the client
	interim        []int
	status         int // of the answer; 0 for none yet
	fields         []hpack.HeaderField
	body           []byte
	over           bool      // the answer has ended
	came           time.Time // when the last frame of the answer came
	resets         []Code
	waited         bool  // the first RST_STREAM came at least patience after the end of the answer
	granted, taken int64 // bytes that the client's WINDOW_UPDATE frames have granted, and bytes of DATA that the server has sent
	sendGranted    int64 // bytes that the server has granted, minus the bytes that the client has sent
	trailers       bool
}

func newPeer() *peer {
	return &peer{
		streams: map[uint32]*stream{},
		decoder: hpack.NewDecoder(4096, nil),
		server:  ServerSettings{MaxStreams: math.MaxUint32, InitialWindow: defaultWindow},
		acked:   clientValues{defaultWindow, 4096},
		send:    defaultWindow, receive: defaultWindow,
	}
}

// sent records a frame that the client sends.
func (p *peer) sent(f Frame) {
	if f.Raw != "" {
		return
	}
	id := f.Stream & maxID
	s := p.streams[id]
	if s == nil && id > 0 {
		s = &stream{}
		p.streams[id] = s
	}
	switch {
	case f.Type == typeHeaders && s != nil:
		s.opened = true
		p.highest = max(p.highest, id)
	case f.Type == typeSettings && f.Flags&ack == 0:
		p.sentSettings(f.Payload)
	case f.Type == typePing && f.Flags&ack == 0:
		p.pings = append(p.pings, f.Payload)
	case f.Type == typeWindowUpdate && len(f.Payload) == 4:
		increment := int64(binary.BigEndian.Uint32([]byte(f.Payload)) & maxID)
		if id == 0 {
			p.receive += increment
		} else if s != nil {
			s.granted += increment
		}
	case f.Type == typeData:
		p.send -= int64(len(f.Payload))
		if s != nil {
			s.sendGranted -= int64(len(f.Payload))
		}
	}
}

func (p *peer) sentSettings(entries string) {
	delta := clientDelta{-1, -1}
	for ; len(entries) >= 6; entries = entries[6:] {
		value := int64(binary.BigEndian.Uint32([]byte(entries[2:])))
		switch binary.BigEndian.Uint16([]byte(entries)) {
		case settingInitialWindow:
			delta.window = value
		case settingTableSize:
			delta.table = value
		}
	}
	p.unacked = append(p.unacked, delta)
	p.decoder.SetAllowedMaxDynamicTableSize(uint32(p.largest().table))
}

// largest returns the largest values that the server may still apply. Until the server has acknowledged newer SETTINGS, it may apply the
// older values or the newer ones.
func (p *peer) largest() clientValues {
	v := p.acked
	for _, delta := range p.unacked {
		v.window = max(v.window, delta.window)
		v.table = max(v.table, delta.table)
	}
	return v
}

// sendable returns how much DATA the client may send on a stream.
func (p *peer) sendable(id uint32) int64 {
	n := p.send
	if s := p.streams[id]; s != nil {
		n = min(n, int64(p.server.InitialWindow)+s.sendGranted)
	}
	return n
}

// serverFrame is a frame of the server.
type serverFrame struct {
	kind    Type
	flags   Flags
	stream  uint32
	payload []byte
}

// known are the flags that a server may set.
var known = map[Type]Flags{
	typeData: endStream | padded, typeHeaders: endStream | endHeaders | padded | prioritize, typeSettings: ack, typePing: ack,
	typeContinuation: endHeaders, typeReset: 0, typeGoAway: 0, typeWindowUpdate: 0,
}

// take checks and records a frame that the server has sent.
func (p *peer) take(f serverFrame) error {
	flags, ok := known[f.kind]
	switch {
	case !p.began && (f.kind != typeSettings || f.flags&ack != 0):
		return broken("%v comes before SETTINGS", f.kind)
	case p.inBlock != 0 && (f.kind != typeContinuation || f.stream != p.inBlock):
		return broken("%v comes in the middle of a field block", f.kind)
	case len(f.payload) > maxFrameSize:
		return broken("%v has %d bytes", f.kind, len(f.payload))
	case !ok:
		return broken("%v comes, which a client doesn't know or want", f.kind)
	case f.flags&^flags != 0:
		return broken("%v has the flags 0x%x", f.kind, f.flags)
	case f.stream > maxID:
		return broken("%v has its reserved bit set", f.kind)
	}
	switch f.kind {
	case typeSettings, typePing, typeGoAway:
		if f.stream != 0 {
			return broken("%v is on stream %d", f.kind, f.stream)
		}
		return p.takeOfConnection(f)
	case typeWindowUpdate:
		return p.takeWindowUpdate(f)
	}
	s := p.streams[f.stream]
	if s == nil || !s.opened && f.kind != typeReset {
		return broken("%v comes on stream %d, which the client hasn't opened", f.kind, f.stream)
	}
	if len(s.resets) > 0 && f.kind != typeReset {
		return broken("%v comes on stream %d behind RST_STREAM", f.kind, f.stream)
	}
	if s.over && f.kind != typeReset {
		return broken("%v comes on stream %d behind END_STREAM", f.kind, f.stream)
	}
	switch f.kind {
	case typeData:
		s.came = time.Now()
		return p.takeData(f, s)
	case typeHeaders, typeContinuation:
		s.came = time.Now()
		return p.takeBlock(f, s)
	}
	if len(f.payload) != 4 {
		return broken("RST_STREAM has %d bytes", len(f.payload))
	}
	if len(s.resets) == 0 {
		s.waited = s.over && time.Since(s.came) >= patience
	}
	s.resets = append(s.resets, Code(binary.BigEndian.Uint32(f.payload)))
	return nil
}

func (p *peer) takeOfConnection(f serverFrame) error {
	switch {
	case f.kind == typeGoAway:
		return p.takeGoAway(f)
	case f.kind == typeSettings && f.flags&ack != 0:
		return p.takeSettingsAck(f)
	case f.kind == typeSettings:
		return p.takeSettings(f)
	case len(f.payload) != 8:
		return broken("PING has %d bytes", len(f.payload))
	case f.flags&ack == 0:
		p.replies = append(p.replies, frame(typePing, ack, 0, string(f.payload)))
		return nil
	case len(p.pings) == 0:
		return broken("PING has ACK, and nobody asked")
	case p.pings[0] != string(f.payload):
		return broken("PING %q is answered by %q", p.pings[0], f.payload)
	}
	p.pings = p.pings[1:]
	return nil
}

func (p *peer) takeGoAway(f serverFrame) error {
	if len(f.payload) < 8 {
		return broken("GOAWAY has %d bytes", len(f.payload))
	}
	g := goAwayFrame{binary.BigEndian.Uint32(f.payload), Code(binary.BigEndian.Uint32(f.payload[4:])), string(f.payload[8:])}
	switch n := len(p.goneAway); {
	case g.last > maxID:
		return broken("GOAWAY has a reserved bit set")
	case n > 0 && g.last > p.goneAway[n-1].last:
		return broken("GOAWAY has stream %d, and had %d before", g.last, p.goneAway[n-1].last)
	case g.last > p.highest && (g.last != maxID || g.code != noError):
		return broken("GOAWAY has stream %d, and the client has opened none over %d", g.last, p.highest)
	}
	for id, s := range p.streams {
		if id > g.last && s.status > 0 {
			return broken("GOAWAY says that no stream over %d was served, and %d was answered", g.last, id)
		}
	}
	p.goneAway = append(p.goneAway, g)
	return nil
}

func (p *peer) takeSettingsAck(f serverFrame) error {
	if len(f.payload) > 0 {
		return broken("SETTINGS with ACK have %d bytes", len(f.payload))
	}
	if len(p.unacked) == 0 {
		return broken("SETTINGS have ACK, and nobody sent any")
	}
	if w := p.unacked[0].window; w >= 0 {
		p.acked.window = w
	}
	if size := p.unacked[0].table; size >= 0 {
		p.mayShrink = p.mayShrink || size < min(p.acked.table, 4096)
		p.acked.table = size
	}
	p.unacked = p.unacked[1:]
	p.decoder.SetAllowedMaxDynamicTableSize(uint32(p.largest().table))
	return nil
}

func (p *peer) takeSettings(f serverFrame) error {
	if len(f.payload)%6 != 0 {
		return broken("SETTINGS have %d bytes", len(f.payload))
	}
	for entries := f.payload; len(entries) > 0; entries = entries[6:] {
		id, value := binary.BigEndian.Uint16(entries), binary.BigEndian.Uint32(entries[2:])
		wrong := false
		switch id {
		case settingPush:
			wrong = value != 0 // "A server MUST NOT explicitly set this value to 1."
		case settingMaxStreams:
			p.server.MaxStreams = value
		case settingInitialWindow:
			p.server.InitialWindow, wrong = value, value > maxID
		case settingMaxFrameSize:
			wrong = value < maxFrameSize || value > 1<<24-1
		case settingExtendedConnect, settingNoPriorities:
			wrong = value > 1
		}
		if wrong {
			return broken("the setting %d is %d", id, value)
		}
	}
	p.began = true
	p.replies = append(p.replies, frame(typeSettings, ack, 0, ""))
	return nil
}

func (p *peer) takeWindowUpdate(f serverFrame) error {
	if len(f.payload) != 4 {
		return broken("WINDOW_UPDATE has %d bytes", len(f.payload))
	}
	increment := int64(binary.BigEndian.Uint32(f.payload))
	if increment == 0 || increment > maxID {
		return broken("WINDOW_UPDATE of %d on stream %d", increment, f.stream)
	}
	if f.stream == 0 {
		if p.send += increment; p.send > maxID {
			return broken("the connection's window is %d", p.send)
		}
		return nil
	}
	s := p.streams[f.stream]
	switch {
	case s == nil || !s.opened:
		return broken("WINDOW_UPDATE comes on stream %d, which the client hasn't opened", f.stream)
	case len(s.resets) > 0:
		return broken("WINDOW_UPDATE comes on stream %d behind RST_STREAM", f.stream)
	}
	if s.sendGranted += increment; int64(p.server.InitialWindow)+s.sendGranted > maxID {
		return broken("the window of stream %d is %d", f.stream, int64(p.server.InitialWindow)+s.sendGranted)
	}
	return nil
}

func (p *peer) takeData(f serverFrame, s *stream) error {
	n := int64(len(f.payload))
	p.receive -= n
	s.taken += n
	switch {
	case s.status == 0:
		return broken("DATA come on stream %d before HEADERS", f.stream)
	case n > 0 && p.receive < 0:
		return broken("DATA are %d bytes beyond the connection's window", -p.receive)
	case n > 0 && p.largest().window+s.granted-s.taken < 0:
		return broken("DATA are %d bytes beyond the window of stream %d", s.taken-s.granted-p.largest().window, f.stream)
	}
	payload, err := unpadded(f)
	if err != nil {
		return err
	}
	s.body = append(s.body, payload...)
	s.over = f.flags&endStream != 0
	return nil
}

func unpadded(f serverFrame) ([]byte, error) {
	if f.flags&padded == 0 {
		return f.payload, nil
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return nil, broken("the padding of %v is as long as the frame, or longer", f.kind)
	}
	end := len(f.payload) - int(f.payload[0])
	if strings.Trim(string(f.payload[end:]), "\x00") != "" {
		return nil, broken("the padding of %v isn't zero", f.kind)
	}
	return f.payload[1:end], nil
}

func (p *peer) takeBlock(f serverFrame, s *stream) error {
	fragment, err := unpadded(f)
	switch {
	case err != nil:
		return err
	case f.kind == typeContinuation && p.inBlock == 0:
		return broken("CONTINUATION without HEADERS")
	case f.flags&prioritize != 0:
		return broken("the server's HEADERS have a priority")
	case f.kind == typeHeaders:
		p.block, p.inBlock, p.ends = nil, f.stream, f.flags&endStream != 0
	}
	p.block = append(p.block, fragment...)
	if f.flags&endHeaders == 0 {
		return nil
	}
	p.inBlock = 0
	if p.mayShrink && (len(p.block) == 0 || p.block[0]&0xe0 != 0x20) {
		return broken("a field block doesn't begin with the update of the table's size that SETTINGS have asked for")
	}
	p.mayShrink = false
	fields, err := p.decoder.DecodeFull(p.block)
	if err != nil {
		return broken("a field block: %v", err)
	}
	return s.takeFields(fields, p.ends)
}

// takeFields checks and records the fields of an interim answer, a final answer, or a trailer section.
func (s *stream) takeFields(fields []hpack.HeaderField, ends bool) error {
	for i, f := range fields {
		if err := checkField(f, i == 0 && s.status == 0); err != nil {
			return err
		}
	}
	if s.status > 0 {
		if !ends || s.trailers {
			return broken("HEADERS behind those of the answer don't end it")
		}
		s.trailers, s.over = true, true
		return nil
	}
	if len(fields) == 0 || fields[0].Name != ":status" {
		return broken("an answer doesn't begin with :status: %v", fields)
	}
	status, err := strconv.Atoi(fields[0].Value)
	if err != nil || status < 100 || status > 599 || len(fields[0].Value) != 3 {
		return broken(":status is %q", fields[0].Value)
	}
	if status < 200 {
		if ends || status == 101 {
			return broken("a %d, which ends the answer: %t", status, ends)
		}
		s.interim = append(s.interim, status)
		return nil
	}
	s.status, s.fields, s.over = status, fields, ends
	return s.checkAnswer()
}

// checkField checks a field against RFC 9113, sections 8.2 and 8.3.
func checkField(f hpack.HeaderField, first bool) error {
	switch f.Name {
	case ":status":
		if !first {
			return broken(":status isn't the first field, or comes twice")
		}
		return nil
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "te":
		return broken("the server sends %s", f.Name)
	}
	if f.Name == "" || strings.Trim(f.Name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return broken("the name of a field is %q", f.Name)
	}
	if strings.Trim(f.Value, " \t") != f.Value || strings.ContainsFunc(f.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return broken("%s is %q", f.Name, f.Value)
	}
	return nil
}

// checkAnswer checks the fields of an answer against RFC 9110.
func (s *stream) checkAnswer() error {
	lengths, dates := s.values("content-length"), s.values("date")
	switch {
	case len(lengths) > 1 || len(lengths) == 1 && (lengths[0] == "" || strings.Trim(lengths[0], "0123456789") != ""):
		return broken("content-length is %q", lengths)
	case s.status == 204 && len(lengths) > 0:
		return broken("a 204 with content-length")
	case s.status == 405 && len(s.values("allow")) != 1:
		return broken("a 405 without allow")
	case len(dates) != 1:
		return broken("%d date fields, want 1", len(dates))
	}
	if _, err := time.Parse(http.TimeFormat, dates[0]); err != nil {
		return broken("date: %v", err)
	}
	return nil
}

func (s *stream) values(name string) []string {
	var values []string
	for _, f := range s.fields {
		if f.Name == name {
			values = append(values, f.Value)
		}
	}
	return values
}

// String describes what the server has sent on the stream.
func (s *stream) String() string {
	var words []string
	for _, status := range s.interim {
		words = append(words, strconv.Itoa(status))
	}
	if s.status > 0 {
		word := fmt.Sprintf("%d %.40q", s.status, s.body)
		if !s.over {
			word += " and no end"
		}
		words = append(words, word)
	}
	for _, code := range s.resets {
		words = append(words, fmt.Sprintf("RST_STREAM %v", code))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// String describes what the server has sent on all streams, with its GOAWAY frames.
func (p *peer) String() string {
	var words []string
	ids := make([]uint32, 0, len(p.streams))
	for id := range p.streams {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if s := p.streams[id].String(); s != "nothing" {
			words = append(words, fmt.Sprintf("stream %d: %s", id, s))
		}
	}
	for _, g := range p.goneAway {
		words = append(words, fmt.Sprintf("GOAWAY %v, stream %d, %q", g.code, g.last, g.debug))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, "; ")
}

// patience is how long a server must wait for the rest of a request after its answer. After that time, the server may send RST_STREAM with
// NO_ERROR, even if the client only sends slowly because the machine is busy. The server then ignores a later frame that would have reset the
// stream with another code, so the runner accepts NO_ERROR instead.
const patience = 500 * time.Millisecond

// met reports whether the stream has the outcome w, and the server has sent nothing else on it.
func (w Want) met(s *stream) bool {
	if s == nil {
		s = &stream{}
	}
	if w.What == Anything {
		return true
	}
	if !slices.Equal(s.interim, w.Interim) {
		return false
	}
	answer := (s.status == w.Status || w.Or != 0 && s.status == w.Or) && s.has(w)
	switch w.What {
	case Answered:
		return answer && s.over && s.fits(w) && (len(s.resets) == 0 || s.gaveUp())
	case AnsweredEarly:
		return answer && s.over && s.fits(w) && slices.Equal(s.resets, []Code{noError})
	case Reset:
		return (s.status == 0 || s.status == w.Status) && (slices.Equal(s.resets, []Code{w.Code}) || s.gaveUp())
	case Begun:
		return answer && !s.over && len(s.resets) == 0 && s.fits(w)
	case Going:
		return (s.status == 0 || s.status == w.Status) && !s.over && len(s.resets) == 0
	}
	return s.status == 0 && len(s.resets) == 0
}

// gaveUp reports whether the server has answered, waited for the rest of the request at least for patience, and then sent RST_STREAM with NO_ERROR.
func (s *stream) gaveUp() bool { return s.waited && slices.Equal(s.resets, []Code{noError}) }

// fits reports whether the content is the wanted one, and has the length that Content-Length announces.
func (s *stream) fits(w Want) bool {
	if w.Head {
		return len(s.body) == 0
	}
	if lengths := s.values("content-length"); len(lengths) == 1 && s.over && lengths[0] != strconv.Itoa(len(s.body)) {
		return false
	}
	return w.Body == "" || string(s.body) == strings.TrimSuffix(w.Body, Empty)
}

// has reports whether the answer has the wanted fields.
func (s *stream) has(w Want) bool {
	for _, f := range w.Fields {
		prefix, wild := strings.CutSuffix(f.Value, "*")
		if !slices.ContainsFunc(s.values(f.Name), func(value string) bool {
			return f.Value == "" || value == f.Value || wild && strings.HasPrefix(value, prefix)
		}) {
			return false
		}
	}
	return true
}

// String describes the wanted outcome.
func (w Want) String() string {
	answer := strconv.Itoa(w.Status)
	if w.Body != "" {
		answer += fmt.Sprintf(" %.40q", strings.TrimSuffix(w.Body, Empty))
	}
	for _, f := range w.Fields {
		answer += fmt.Sprintf(" %s: %s", f.Name, f.Value)
	}
	switch w.What {
	case AnsweredEarly:
		answer += ", RST_STREAM NO_ERROR"
	case Reset:
		answer = fmt.Sprintf("RST_STREAM %v", w.Code)
	case Begun, Going:
		answer += " and no end"
	case Nothing:
		answer = "nothing"
	case Anything:
		answer = "anything"
	}
	if len(w.Interim) > 0 {
		answer = fmt.Sprintf("%v, %s", w.Interim, answer)
	}
	return fmt.Sprintf("stream %d: %s", w.Stream, answer)
}
