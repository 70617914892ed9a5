package grpcfilo

import (
	"testing"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
)

// replacement is a codec that a program registers instead of grpc-go's.
type replacement struct{ encoding.CodecV2 }

// The package encodes and decodes protobuf itself only in place of grpc-go's own codec. The registry has no CodecV2 for protobuf if a package
// that was initialized earlier has registered a Codec instead.
func TestReplacedCodecs(t *testing.T) {
	own := encoding.GetCodecV2(grpcproto.Name)
	if unlessReplaced(own) != own {
		t.Error("grpc-go's own codec counts as replaced")
	}
	for _, c := range []encoding.CodecV2{nil, replacement{own}, &replacement{own}} {
		if got := unlessReplaced(c); got != nil {
			t.Errorf("%T counts as grpc-go's own codec", c)
		}
	}
}
