package grpcfilo

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// callContext is the context of a call before interceptors and stats handlers derive theirs from it. It has what grpc-go's packages look for:
// the client's metadata, the peer and the stream. Contexts that metadata.NewIncomingContext and the like return would have the same values, but
// would make them for each call, although most handlers ask for none of them.
type callContext struct {
	context.Context // of the request
	call            *call
	fields          string // the request's fields: see appendField
	remote          netip.AddrPort
	tls             *tls.ConnectionState // nil without TLS

	mu   sync.Mutex
	md   metadata.MD // nil until asked for; guarded by mu
	peer *peer.Peer  // nil until asked for; guarded by mu
}

// The keys of these values aren't exported, so they are found out: a keyRecorder records which key it is asked for.
var (
	metadataKey = keyOf(func(ctx context.Context) { metadata.FromIncomingContext(ctx) })
	peerKey     = keyOf(func(ctx context.Context) { peer.FromContext(ctx) })
	streamKey   = keyOf(func(ctx context.Context) { grpc.ServerTransportStreamFromContext(ctx) })
)

func keyOf(ask func(context.Context)) any {
	r := keyRecorder{Context: context.Background()}
	ask(&r)
	return r.key
}

type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

// Value implements context.Context.
func (c *callContext) Value(key any) any {
	switch key {
	case metadataKey:
		return c.metadata()
	case peerKey:
		return c.client()
	case streamKey:
		return (*transportStream)(c.call)
	}
	return c.Context.Value(key)
}

// metadata returns the client's metadata.
func (c *callContext) metadata() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.md == nil {
		c.md = incoming(c.fields)
	}
	return c.md
}

// client returns who has called. The addresses are asked for late, since the system is asked for the local one. If nobody has asked before
// the call is over, the local one is missing.
func (c *callContext) client() *peer.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer == nil {
		c.peer = &peer.Peer{AuthInfo: authInfo(c.tls)}
		if !c.call.withCtx(func(ctx *filo.Ctx) { c.peer.Addr, c.peer.LocalAddr = ctx.RemoteAddr(), ctx.LocalAddr() }) {
			c.peer.Addr = net.TCPAddrFromAddrPort(c.remote)
		}
	}
	return c.peer
}

// authInfo returns what grpc-go's TLS credentials tell handlers of a connection; nil without TLS.
func authInfo(state *tls.ConnectionState) credentials.AuthInfo {
	if state == nil {
		return nil
	}
	info := credentials.TLSInfo{State: *state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	if len(state.PeerCertificates) > 0 {
		if uris := state.PeerCertificates[0].URIs; len(uris) == 1 && uris[0].Scheme == "spiffe" {
			info.SPIFFEID = uris[0]
		}
	}
	return info
}

// fieldEnd is behind each name and value in callContext.fields. No field of a request can contain it.
const fieldEnd = "\x00"

// fieldsOf returns the fields that are the client's metadata. Their names are in lower case. The error is about a value that isn't base64.
func fieldsOf(c *filo.Ctx) (fields string, err error) {
	var b strings.Builder
	add := func(name, value []byte) {
		b.Write(name)
		b.WriteString(fieldEnd)
		b.Write(value)
		b.WriteString(fieldEnd)
	}
	h := &c.Request.Header
	b.Grow(usualFieldSize * h.Len())
	add([]byte(":authority"), c.HostBytes())
	for name, value := range h.All() {
		if slices.ContainsFunc(name, isUpper) { // over HTTP/1.1
			name = bytes.ToLower(name)
		}
		switch {
		case isReserved(string(name)) || string(name) == "host":
			continue
		case isBinary(string(name)) && err == nil:
			if _, err = decodeBinary(string(value)); err != nil {
				err = status.Errorf(codes.Internal, "malformed binary metadata %q in header %q: %v", value, name, err)
			}
		}
		add(name, value)
	}
	return b.String(), err
}

// usualFieldSize is about the size of a field with its name, in bytes.
const usualFieldSize = 32

func isUpper(b byte) bool { return 'A' <= b && b <= 'Z' }

// incoming turns the fields into metadata.
func incoming(fields string) metadata.MD {
	md := make(metadata.MD, strings.Count(fields, fieldEnd)/2)
	for fields != "" {
		var name, value string
		name, fields, _ = strings.Cut(fields, fieldEnd)
		value, fields, _ = strings.Cut(fields, fieldEnd)
		if isBinary(name) {
			decoded, _ := decodeBinary(value) // begin has checked it
			value = string(decoded)
		}
		md[name] = append(md[name], value)
	}
	return md
}
