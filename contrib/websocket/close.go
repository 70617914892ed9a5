package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// StatusCode is the reason for which a connection was closed (RFC 6455, section 7.4, and IANA's registry). 3000 to 3999 are
// registered for libraries and applications; 4000 to 4999 are for private use.
type StatusCode uint16

const (
	StatusNormalClosure   StatusCode = 1000
	StatusGoingAway       StatusCode = 1001 // the server shuts down, or the user has left the page
	StatusProtocolError   StatusCode = 1002
	StatusUnsupportedData StatusCode = 1003
	// StatusNoStatusReceived stands for a close frame without a code. It is never sent.
	StatusNoStatusReceived StatusCode = 1005
	// StatusAbnormalClosure stands for an end without a close frame. It is never sent.
	StatusAbnormalClosure  StatusCode = 1006
	StatusInvalidPayload   StatusCode = 1007 // text that isn't UTF-8, or invalid compressed data
	StatusPolicyViolation  StatusCode = 1008
	StatusMessageTooBig    StatusCode = 1009
	StatusMissingExtension StatusCode = 1010 // sent by clients only
	StatusInternalError    StatusCode = 1011
	StatusServiceRestart   StatusCode = 1012
	StatusTryAgainLater    StatusCode = 1013
	StatusBadGateway       StatusCode = 1014
)

// sendable reports whether a close frame may carry the code.
func (code StatusCode) sendable() bool {
	switch {
	case code < 1000, code >= 5000, code == 1004, code == StatusNoStatusReceived, code == StatusAbnormalClosure:
		return false
	}
	return code <= StatusBadGateway || code >= 3000
}

// CloseError is the error of a connection that has ended with a close frame from either side.
type CloseError struct {
	// Code is the code of the close frame, or StatusNoStatusReceived if the client's frame had none.
	Code StatusCode
	// Reason is a text for people, of at most 123 bytes.
	Reason string
	// Local is true if this side sent its close frame first: by Close, because of an error, or because the server shuts down.
	Local bool
}

// Error returns the code, the reason and the side in one line.
func (e *CloseError) Error() string {
	by := "the client"
	if e.Local {
		by = "the server"
	}
	if e.Reason == "" {
		return fmt.Sprintf("websocket: closed by %s with status %d", by, e.Code)
	}
	return fmt.Sprintf("websocket: closed by %s with status %d: %s", by, e.Code, e.Reason)
}

// CloseStatus returns the code of the close frame that ended a connection. err is the error of one of the connection's methods,
// or of OnClose. Without a close frame the code is StatusAbnormalClosure; if err is nil, it is 0.
func CloseStatus(err error) StatusCode {
	var closed *CloseError
	switch {
	case errors.As(err, &closed):
		return closed.Code
	case err != nil:
		return StatusAbnormalClosure
	}
	return 0
}

// failure is an error that fails the connection (section 7.1.7) with a close frame.
func failure(code StatusCode, reason string) *CloseError {
	return &CloseError{Code: code, Reason: reason, Local: true}
}

func violation(reason string) *CloseError { return failure(StatusProtocolError, reason) }

var (
	errShortClose  = violation("the payload of a close frame has one byte")
	errCloseCode   = violation("the status of a close frame isn't one")
	errCloseReason = failure(StatusInvalidPayload, "the reason of a close frame isn't UTF-8")
)

// parseClose returns the code and the reason of a client's close frame (section 5.5.1), or an error if the frame violates the protocol.
func parseClose(payload []byte) (closed, wrong *CloseError) {
	switch len(payload) {
	case 0:
		return &CloseError{Code: StatusNoStatusReceived}, nil
	case 1:
		return nil, errShortClose
	}
	code, reason := StatusCode(binary.BigEndian.Uint16(payload)), payload[2:]
	switch {
	case !code.sendable():
		return nil, errCloseCode
	case !utf8.Valid(reason):
		return nil, errCloseReason
	}
	return &CloseError{Code: code, Reason: string(reason)}, nil
}

// maxReason is the maximum length of a close frame's reason in bytes.
const maxReason = maxControl - 2

// appendClose appends a close frame. For a code that can't be sent, the payload is empty.
func appendClose(dst []byte, code StatusCode, reason string) []byte {
	if !code.sendable() {
		return appendHeader(dst, bitFin|opClose, 0)
	}
	dst = appendHeader(dst, bitFin|opClose, 2+len(reason))
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	return append(dst, reason...)
}

// closeReason turns a text into a valid reason: UTF-8, and not too long.
func closeReason(reason string) string {
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	for len(reason) > maxReason {
		_, size := utf8.DecodeLastRuneInString(reason)
		reason = reason[:len(reason)-size]
	}
	return reason
}
