package http1

// Fault is a reason for which a request is refused.
type Fault uint8

// The faults. NoFault means that there is none.
const (
	NoFault Fault = iota
	FaultMethod
	FaultMethodTooLong
	FaultTarget
	FaultVersion
	FaultVersionNotSupported
	FaultLineTooLong
	FaultHeadTooLarge
	FaultTooManyFields
	FaultBareCR
	FaultBareLF
	FaultFold
	FaultSpaceBeforeColon
	FaultFieldName
	FaultFieldValue
	FaultNoHost
	FaultTwoHosts
	FaultHost
	FaultContentLength
	FaultLengthAndEncoding
	FaultTransferEncoding
	FaultTransferCoding
	FaultExpectation
	FaultChunkSize
	FaultChunkEnd
	FaultChunkExtension
	FaultChunkExtensions
	FaultTrailer
	FaultCount
)

var faults = [FaultCount]struct {
	status int
	detail string
}{
	FaultMethod:              {400, "the request line must start with a method, a token, and one space"},
	FaultMethodTooLong:       {501, "the method is longer than any known one"},
	FaultTarget:              {400, "invalid request target"},
	FaultVersion:             {400, "the request line must end with HTTP/1.1 or HTTP/1.0"},
	FaultVersionNotSupported: {505, "HTTP/1.1 and HTTP/1.0 are supported here"},
	FaultLineTooLong:         {414, "request line too long"},
	FaultHeadTooLarge:        {431, "request head too large"},
	FaultTooManyFields:       {431, "too many header fields"},
	FaultBareCR:              {400, "CR without LF"},
	FaultBareLF:              {400, "LF without CR"},
	FaultFold:                {400, "a header field may not be folded over lines"},
	FaultSpaceBeforeColon:    {400, "white space before the colon of a header field"},
	FaultFieldName:           {400, "invalid header field name"},
	FaultFieldValue:          {400, "control character in a header field value"},
	FaultNoHost:              {400, "missing Host"},
	FaultTwoHosts:            {400, "more than one Host"},
	FaultHost:                {400, "invalid Host"},
	FaultContentLength:       {400, "Content-Length must be one decimal number"},
	FaultLengthAndEncoding:   {400, "both Content-Length and Transfer-Encoding"},
	FaultTransferEncoding:    {400, "Transfer-Encoding must be chunked, in HTTP/1.1"},
	FaultTransferCoding:      {501, "chunked is the only transfer coding supported here"},
	FaultExpectation:         {417, "100-continue is the only expectation supported here"},
	FaultChunkSize:           {400, "invalid chunk size"},
	FaultChunkEnd:            {400, "missing CRLF after chunk data"},
	FaultChunkExtension:      {400, "invalid chunk extension"},
	FaultChunkExtensions:     {400, "too many bytes of chunk extensions"},
	FaultTrailer:             {400, "a framing field in the trailer section"},
}

// Status returns the status of the answer to a request with the fault.
func (f Fault) Status() int { return faults[f].status }

// String explains the fault to the client. It is "" for NoFault.
func (f Fault) String() string { return faults[f].detail }
