package grpcfilo

import (
	"time"

	"google.golang.org/grpc/stats"
)

// tell passes s to the stats handlers.
func (k *call) tell(s stats.RPCStats) {
	for _, h := range k.services.options.StatsHandlers {
		h.HandleRPC(k.context, s)
	}
}

// isTold reports whether there are stats handlers. Callers create values for tell only if there are.
func (k *call) isTold() bool { return len(k.services.options.StatsHandlers) > 0 }

// tellBegin lets the stats handlers derive the handler's context, and tells them that the call begins. The caller must call end with the
// call's error after the status has been sent.
func (k *call) tellBegin() (end func(error)) {
	if !k.isTold() {
		return func(error) {}
	}
	for _, h := range k.services.options.StatsHandlers {
		k.context = h.TagRPC(k.context, &stats.RPCTagInfo{FullMethodName: k.name})
	}
	md, client := k.own.metadata().Copy(), k.own.client()
	k.tell(&stats.InHeader{FullMethod: k.name, RemoteAddr: client.Addr, LocalAddr: client.LocalAddr, Compression: k.encodingName, Header: md})
	began := time.Now()
	k.tell(&stats.Begin{BeginTime: began, IsClientStream: k.ClientStreams, IsServerStream: k.ServerStreams})
	return func(err error) {
		k.tellHeader()
		k.tell(&stats.OutTrailer{Trailer: k.trailer.Copy()})
		k.tell(&stats.End{BeginTime: began, EndTime: time.Now(), Error: err})
	}
}

// tellReceived tells the stats handlers that a message was received.
func (k *call) tellReceived(v any, m *message) {
	if k.isTold() {
		k.tell(&stats.InPayload{Payload: v, Length: m.dataSize(), CompressedLength: m.wireSize(), WireLength: prefixSize + m.wireSize(),
			RecvTime: time.Now()})
	}
}

// tellHeader passes the header to the stats handlers, once it has been sent. The caller must not hold mu, since stats handlers may look up the
// peer in the context, which locks mu.
func (k *call) tellHeader() {
	if !k.isTold() {
		return
	}
	k.mu.Lock()
	due := k.headSent && !k.headTold
	k.headTold = k.headSent
	k.mu.Unlock()
	if due {
		k.tell(&stats.OutHeader{Header: k.header.Copy(), Compression: k.sentEncoding()})
	}
}

// tellSent tells the stats handlers that a message was sent.
func (k *call) tellSent(v any, m *message) {
	if k.isTold() {
		k.tell(&stats.OutPayload{Payload: v, Length: m.dataSize(), CompressedLength: m.wireSize(), WireLength: prefixSize + m.wireSize(),
			SentTime: time.Now()})
	}
}
