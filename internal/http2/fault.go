package http2

// ErrCode says why a stream or a connection ends (RFC 9113, section 7). An unknown code counts as INTERNAL_ERROR.
type ErrCode uint32

// The codes of RFC 9113, section 7.
const (
	NoError            ErrCode = 0x0
	ProtocolError      ErrCode = 0x1
	InternalError      ErrCode = 0x2
	FlowControlError   ErrCode = 0x3
	SettingsTimeout    ErrCode = 0x4
	StreamClosed       ErrCode = 0x5
	FrameSizeError     ErrCode = 0x6
	RefusedStream      ErrCode = 0x7
	Cancel             ErrCode = 0x8
	CompressionError   ErrCode = 0x9
	ConnectError       ErrCode = 0xa
	EnhanceYourCalm    ErrCode = 0xb
	InadequateSecurity ErrCode = 0xc
	HTTP11Required     ErrCode = 0xd
)

var codeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String returns the code's name in the RFC.
func (c ErrCode) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "an unknown error code"
}

// Fault says what is wrong with a frame or a request of the client. The zero value is NoFault.
type Fault uint8

// The faults up to lastOfConnection end the connection. The others, up to faultCount, end a stream.
const (
	NoFault Fault = iota
	FaultPreface
	FaultFirstFrame
	FaultFrameSize
	FaultLength
	FaultNoStream
	FaultStreamGiven
	FaultPadding
	FaultInBlock
	FaultContinuation
	FaultPush
	FaultIdle
	FaultStreamID
	FaultReused
	FaultConnectionIncrement
	FaultConnectionWindow
	FaultConnectionOverrun
	FaultSetting
	FaultInitialWindow
	FaultSettingsTimeout
	FaultBlock
	FaultCompression
	FaultPrioritized
	FaultGlitches

	lastOfConnection = FaultGlitches

	FaultPriorityLength Fault = iota - 1
	FaultSelfDependency
	FaultIncrement
	FaultWindow
	FaultOverrun
	FaultStreamClosed
	FaultTrailersGoOn
	FaultRefused

	// A request with one of the following faults is malformed (RFC 9113, section 8.1.1).
	FaultField
	FaultConnectionField
	FaultTE
	FaultPseudoOrder
	FaultPseudoRepeated
	FaultPseudoUnknown
	FaultPseudoMissing
	FaultPseudoInTrailer
	FaultConnect
	FaultScheme
	FaultPath
	FaultAuthority
	FaultHostDiffers
	FaultContentLength
	FaultMalformed
	faultCount
)

var faults = [faultCount]struct {
	code ErrCode
	text string
}{
	FaultPreface:             {ProtocolError, "the connection must begin with the preface of HTTP/2"},              // RFC 9113, 3.4
	FaultFirstFrame:          {ProtocolError, "the first frame must be SETTINGS without ACK"},                      // 3.4
	FaultFrameSize:           {FrameSizeError, "a frame is longer than SETTINGS_MAX_FRAME_SIZE"},                   // 4.2
	FaultLength:              {FrameSizeError, "the length of a frame isn't one that its type has"},                // 4.2
	FaultNoStream:            {ProtocolError, "a frame of a stream is on stream 0"},                                // 6.1 to 6.4, 6.10
	FaultStreamGiven:         {ProtocolError, "a frame of the connection is on a stream"},                          // 6.5, 6.7, 6.8
	FaultPadding:             {ProtocolError, "the padding is longer than the frame has room for"},                 // 6.1, 6.2
	FaultInBlock:             {ProtocolError, "only CONTINUATION may follow HEADERS without END_HEADERS"},          // 6.2, 6.10
	FaultContinuation:        {ProtocolError, "CONTINUATION without a field block that goes on"},                   // 6.10
	FaultPush:                {ProtocolError, "a client can't push"},                                               // 8.4
	FaultIdle:                {ProtocolError, "a frame on an idle stream"},                                         // 5.1
	FaultStreamID:            {ProtocolError, "a client's streams must have odd and rising numbers"},               // 5.1.1
	FaultReused:              {StreamClosed, "HEADERS on a stream that is closed"},                                 // 5.1
	FaultConnectionIncrement: {ProtocolError, "WINDOW_UPDATE of 0 on the connection"},                              // 6.9
	FaultConnectionWindow:    {FlowControlError, "the connection's window is over 2^31-1"},                         // 6.9.1
	FaultConnectionOverrun:   {FlowControlError, "DATA beyond the connection's window"},                            // 6.9.1
	FaultSetting:             {ProtocolError, "the value of a setting is out of range"},                            // 6.5.2
	FaultInitialWindow:       {FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE makes a window larger than 2^31-1"}, // 6.5.2, 6.9.2
	FaultSettingsTimeout:     {SettingsTimeout, "SETTINGS weren't acknowledged in time"},                           // 6.5.3
	FaultBlock:               {EnhanceYourCalm, "a field block is too large, or in too many frames"},               // 10.5.1
	FaultCompression:         {CompressionError, "a field block can't be decoded"},                                 // 4.3
	FaultPrioritized:         {ProtocolError, "PRIORITY_UPDATE for a stream that the client can't open"},           // RFC 9218, 7.1
	FaultGlitches:            {EnhanceYourCalm, "too many frames that serve no purpose"},                           // 10.5

	FaultPriorityLength: {FrameSizeError, "PRIORITY must have 5 bytes"},                          // 6.3
	FaultSelfDependency: {ProtocolError, "a stream can't depend on itself"},                      // RFC 7540, 5.3.1
	FaultIncrement:      {ProtocolError, "WINDOW_UPDATE of 0"},                                   // 6.9
	FaultWindow:         {FlowControlError, "the stream's window is over 2^31-1"},                // 6.9.1
	FaultOverrun:        {FlowControlError, "DATA beyond the stream's window"},                   // 6.9.1
	FaultStreamClosed:   {StreamClosed, "DATA or HEADERS on a stream that the client has ended"}, // 5.1
	FaultTrailersGoOn:   {ProtocolError, "a trailer section must end its stream"},                // 8.1
	FaultRefused:        {RefusedStream, "more streams than SETTINGS_MAX_CONCURRENT_STREAMS"},    // 5.1.2

	FaultField:           {ProtocolError, "a field needs a token in lower case as its name, and a value without control bytes"}, // 8.2.1
	FaultConnectionField: {ProtocolError, "a field that concerns the connection"},                                               // 8.2.2
	FaultTE:              {ProtocolError, "TE may only be trailers"},                                                            // 8.2.2
	FaultPseudoOrder:     {ProtocolError, "a pseudo-header field behind other fields"},                                          // 8.3
	FaultPseudoRepeated:  {ProtocolError, "a pseudo-header field occurs twice"},                                                 // 8.3
	FaultPseudoUnknown:   {ProtocolError, "a pseudo-header field that requests don't have"},                                     // 8.3
	FaultPseudoMissing:   {ProtocolError, "a request needs :method, :scheme and :path"},                                         // 8.3.1
	FaultPseudoInTrailer: {ProtocolError, "a pseudo-header field in a trailer section"},                                         // 8.1
	FaultConnect:         {ProtocolError, "CONNECT has :method and :authority alone, but with :protocol"},
	// 8.5; RFC 8441, 4
	FaultScheme:        {ProtocolError, "the :scheme isn't one"},                            // 8.3.1
	FaultPath:          {ProtocolError, "the :path must begin with /, or be * for OPTIONS"}, // 8.3.1
	FaultAuthority:     {ProtocolError, "the :authority or Host isn't a host with a port"},  // 8.3.1
	FaultHostDiffers:   {ProtocolError, "Host differs from :authority"},                     // 8.3.1
	FaultContentLength: {ProtocolError, "Content-Length isn't the length of the content"},   // 8.1.1
	FaultMalformed:     {ProtocolError, "the head of a request is malformed"},               // 8.1.1
}

// Code returns the code for the RST_STREAM or GOAWAY that answers the fault.
func (f Fault) Code() ErrCode { return faults[f].code }

// OfStream reports whether the fault can end only its stream, and not the connection. State.Ends makes the decision, since any fault on an
// idle stream ends the connection.
func (f Fault) OfStream() bool { return f > lastOfConnection }

// ofForm reports whether the fault is one of the frame's own format, and doesn't depend on the state of the stream.
func (f Fault) ofForm() bool { return f == FaultPriorityLength || f == FaultIncrement }

// String explains the fault to the client. It is "" for NoFault.
func (f Fault) String() string { return faults[f].text }
