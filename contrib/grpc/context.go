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

// callContext is the context of a call, from which interceptors and stats handlers derive theirs. It has the values that grpc-go's packages
// look up: the client's metadata, the peer and the stream. It creates a value when a handler first looks it up. Functions such as
// metadata.NewIncomingContext would need all values in advance, for each call, although most handlers use none of them.
type callContext struct {
	context.Context // the request's context
	call            *call
	fields          string // the fields that are the client's metadata: see fieldsOf
	remote          netip.AddrPort
	tls             *tls.ConnectionState // nil without TLS

	mu   sync.Mutex
	md   metadata.MD // nil until it is looked up; guarded by mu
	peer *peer.Peer  // nil until it is looked up; guarded by mu
}

// grpc-go doesn't export the keys of these values. So keyOf calls grpc-go's function with a keyRecorder, which records the key that is looked up.
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

// client returns the client as a peer. It determines the addresses only when they are needed, since the local address costs a system call. If
// client is first called after the handler has returned, the local address is missing.
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

// authInfo returns the AuthInfo that grpc-go's TLS credentials would provide for the connection; nil without TLS.
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

// fieldEnd ends each name and each value in callContext.fields. No field of a request can contain it.
const fieldEnd = "\x00"

// fieldsOf returns the fields that are the client's metadata, with their names in lower case. It fails if a binary value isn't base64.
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
		if slices.ContainsFunc(name, isUpper) { // possible over HTTP/1.1
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
			decoded, _ := decodeBinary(value) // fieldsOf has checked it
			value = string(decoded)
		}
		md[name] = append(md[name], value)
	}
	return md
}
