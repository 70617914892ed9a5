package grpcfilo

import (
	"encoding/base64"
	"iter"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// isBinary reports whether the metadata of this name may have any bytes. On the wire it is base64.
func isBinary(name string) bool { return strings.HasSuffix(name, "-bin") }

// decodeBinary decodes the value of binary metadata, with padding or without.
func decodeBinary(value string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
}

// encodeBinary is decodeBinary's opposite.
func encodeBinary(value []byte) string { return base64.RawStdEncoding.EncodeToString(value) }

// isReserved reports whether the field is the protocol's own, and never metadata. content-type, grpc-accept-encoding and user-agent are told
// to handlers, as in grpc-go.
func isReserved(name string) bool {
	switch name {
	case "grpc-encoding", "grpc-message", "grpc-message-type", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return false
}

// metadataFields yields the fields that tell metadata. It leaves out what belongs to the protocol.
func metadataFields(md metadata.MD) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for name, values := range md {
			name = strings.ToLower(name)
			if isReserved(name) || name == "content-type" || name == "user-agent" {
				continue
			}
			for _, value := range values {
				if isBinary(name) {
					value = encodeBinary([]byte(value))
				}
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// validate returns an error if md has a name or a value that no field can have.
func validate(md metadata.MD) error {
	for name, values := range md {
		valid := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
		for _, value := range values {
			valid = valid && (isBinary(name) || isPrintable(value))
		}
		if !valid {
			return status.Errorf(codes.Internal, "grpc: metadata %q has bytes that a field can't have", name)
		}
	}
	return nil
}

// isPrintable reports whether the text is printable ASCII.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
