package websocket

import (
	"strconv"

	"github.com/filohttp/filo"
)

const extensionName = "permessage-deflate"

// deflateTerms are the negotiated parameters of compression (RFC 7692, section 7.1).
type deflateTerms struct {
	on bool
	// sendContext says that this side's messages may refer to earlier messages; receiveContext says the same of the client's messages.
	sendContext, receiveContext bool
	// bits is the window size, as a power of two, that the client asks the server not to exceed; 0 if the client doesn't ask.
	bits uint8
}

// longest returns the maximum length of a message to be compressed. The compressor supports only the largest window, so for a smaller window
// only messages that fit into it are compressed: these can't refer beyond it.
func (d deflateTerms) longest() int {
	if d.bits == 0 || d.bits == 15 {
		return int(^uint(0) >> 1)
	}
	return 1 << d.bits
}

// answer returns the value of Sec-WebSocket-Extensions in the response.
func (d deflateTerms) answer() string {
	s := extensionName
	if !d.sendContext {
		s += "; server_no_context_takeover"
	}
	if !d.receiveContext {
		s += "; client_no_context_takeover"
	}
	if d.bits != 0 {
		s += "; server_max_window_bits=" + strconv.Itoa(int(d.bits))
	}
	return s
}

// offer holds the parameters of one of the client's offers of permessage-deflate.
type offer struct {
	serverAlone, clientAlone bool // server_no_context_takeover and client_no_context_takeover
	serverBits, clientBits   uint8
}

// negotiate accepts the first of the client's offers that is valid. An offer with a parameter that is unknown, repeated or invalid is
// declined (section 7.1), as are other extensions.
func negotiate(request *filo.Header, compression Compression) (terms deflateTerms, err error) {
	for value := range request.Values(fieldExtensions) {
		valid := eachExtension(string(value), func(e extension) {
			if terms.on || compression == CompressionOff || e.name != extensionName {
				return
			}
			var o offer
			for _, p := range e.params {
				if !o.set(p) {
					return
				}
			}
			terms = o.accept(compression)
		})
		if !valid {
			return deflateTerms{}, errExtensions
		}
	}
	return terms, nil
}

// set sets a parameter of the offer. It reports whether the parameter is valid.
func (o *offer) set(p param) bool {
	switch {
	case p.name == "server_no_context_takeover" && !o.serverAlone && !p.hasValue:
		o.serverAlone = true
	case p.name == "client_no_context_takeover" && !o.clientAlone && !p.hasValue:
		o.clientAlone = true
	case p.name == "server_max_window_bits" && o.serverBits == 0:
		o.serverBits = windowBits(p.value)
		return o.serverBits != 0
	case p.name == "client_max_window_bits" && o.clientBits == 0:
		// The inflater has the largest window, which suits every window size of the client.
		if o.clientBits = 15; p.hasValue {
			o.clientBits = windowBits(p.value)
		}
		return o.clientBits != 0
	default:
		return false
	}
	return true
}

// windowBits parses a window size, a number from 8 to 15 without leading zeros (section 7.1.2). It returns 0 for an invalid size.
func windowBits(value string) uint8 {
	switch {
	case len(value) == 1 && (value[0] == '8' || value[0] == '9'):
		return value[0] - '0'
	case len(value) == 2 && value[0] == '1' && value[1] >= '0' && value[1] <= '5':
		return 10 + value[1] - '0'
	}
	return 0
}

// accept returns the terms under which the offer is accepted.
func (o *offer) accept(compression Compression) deflateTerms {
	context := compression == CompressionContext
	return deflateTerms{
		on:             true,
		sendContext:    context && !o.serverAlone && (o.serverBits == 0 || o.serverBits == 15),
		receiveContext: context && !o.clientAlone,
		bits:           o.serverBits,
	}
}
