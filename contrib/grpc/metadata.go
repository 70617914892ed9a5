package grpcfilo

import (
	"encoding/base64"
	"iter"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// isBinary reports whether metadata with this name may contain any bytes. Such metadata is base64 on the wire.
func isBinary(name string) bool { return strings.HasSuffix(name, "-bin") }

// decodeBinary decodes the value of binary metadata, with padding or without.
func decodeBinary(value string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
}

// encodeBinary encodes a value of binary metadata, without padding.
func encodeBinary(value []byte) string { return base64.RawStdEncoding.EncodeToString(value) }

// isReserved reports whether the field belongs to the protocol, and is never metadata. As in grpc-go, handlers get content-type,
// grpc-accept-encoding and user-agent as metadata.
func isReserved(name string) bool {
	switch name {
	case "grpc-encoding", "grpc-message", "grpc-message-type", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return false
}

// metadataFields yields the fields that carry md. It leaves out names that belong to the protocol.
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

// validate returns an error if md has a name or a value that can't be sent as a field.
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
