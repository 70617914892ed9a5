package grpcfilo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/filohttp/filo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// statusOf returns the status of a call whose handler has returned err.
func statusOf(ctx context.Context, err error) *status.Status {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s
	}
	var problem *filo.HTTPError
	switch {
	case errors.As(err, &problem):
		return status.New(codeOf(problem.Status), problem.Detail)
	case errors.Is(err, context.Canceled) && context.Cause(ctx) == filo.ErrServerClosed:
		return status.New(codes.Unavailable, "the server is shutting down")
	case errors.Is(err, filo.ErrClientGone):
		return status.New(codes.Canceled, err.Error())
	}
	return status.FromContextError(err)
}

// finish sends the status of a call whose handler has returned err, and returns that status as an error.
func (k *call) finish(err error) error {
	s := statusOf(k.context, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken {
		s = status.Convert(errBroken)
	}
	codeKey.Set(k.c, s.Code())
	k.unloadLocked() // an error is ignored: the stream keeps it, and the server finds it when it ends the response
	if k.format.web {
		k.headLocked()
		k.writeLocked(k.bodyLocked(), trailerMessage(s, k.trailer)) // an error is ignored, as above
		return s.Err()
	}
	target := &k.c.Response.Trailer
	if !k.headSent && len(k.header) == 0 { // gRPC's "Trailers-Only" response
		target = &k.c.Response.Header
		k.format.setContentType(target)
	} else {
		k.headLocked()
	}
	if s.Code() == codes.OK && len(k.trailer) == 0 {
		target.SetField(&fieldOK)
		return nil
	}
	for name, value := range statusFields(s, k.trailer) {
		target.Add(name, value)
	}
	return s.Err()
}

var codeKey = filo.NewKey[codes.Code]("gRPC code")

// Code returns the code with which a call has ended. It is for middleware that logs or counts results, since the HTTP status of a call's
// response is always 200. ok is false for requests that aren't calls, and before the method has returned.
func Code(c *filo.Ctx) (code codes.Code, ok bool) { return codeKey.Get(c) }

var fieldOK = filo.NewField("grpc-status", "0")

// trailerMessage returns the last message of a gRPC-Web response, which contains the fields of the status.
func trailerMessage(s *status.Status, trailer metadata.MD) *message {
	var text []byte
	for name, value := range statusFields(s, trailer) {
		text = fmt.Appendf(text, "%s: %s\r\n", name, value)
	}
	return &message{flags: flagTrailer, wire: mem.BufferSlice{mem.SliceBuffer(text)}}
}

// ErrorHandler returns a filo.Server.ErrorHandler that answers gRPC and gRPC-Web requests with a gRPC status. It passes the errors of other
// requests to next, or to filo.DefaultErrorHandler if next is nil. Without ErrorHandler, calls that the server, the router or middleware
// refuses get an HTTP error, which gRPC clients turn into a code without a message. ErrorHandler turns the Retry-After field of an overloaded
// server into grpc-retry-pushback-ms.
func ErrorHandler(next func(c *filo.Ctx, err error)) func(c *filo.Ctx, err error) {
	if next == nil {
		next = filo.DefaultErrorHandler
	}
	return func(c *filo.Ctx, err error) {
		f, ok := formatOf(c.Request.Header.GetBytes("Content-Type"))
		if !ok {
			next(c, err)
			return
		}
		var trailer metadata.MD
		if seconds, err := strconv.Atoi(c.Response.Header.Get("Retry-After")); err == nil && seconds >= 0 {
			trailer = metadata.Pairs("grpc-retry-pushback-ms", strconv.Itoa(seconds*1000))
		}
		c.Response.SetStatus(200)
		c.Response.SetBody(nil)
		k := call{format: f, c: c, trailer: trailer}
		k.finish(refusalOf(err))
	}
}

// refusalOf turns an error that doesn't come from a method into the error for the client. As with filo's HTTP errors, clients see the
// HTTPError's Detail, but not the text of an internal error.
func refusalOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	problem := &filo.HTTPError{Status: 500}
	errors.As(err, &problem)
	return status.Error(codeOf(problem.Status), cmp.Or(problem.Detail, http.StatusText(problem.Status)))
}

// codeOf returns the gRPC code for an HTTP status. It follows the table that gRPC's clients use (http-grpc-status-mapping.md), and adds
// statuses of filo that the table doesn't list.
func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case 400:
		return codes.Internal
	case 401:
		return codes.Unauthenticated
	case 403:
		return codes.PermissionDenied
	case 404, 405, 415, 505:
		return codes.Unimplemented
	case 408:
		return codes.DeadlineExceeded
	case 413:
		return codes.ResourceExhausted
	case 429, 502, 503, 504:
		return codes.Unavailable
	case 500:
		return codes.Internal
	}
	return codes.Unknown
}

// statusFields yields the fields of a status: grpc-status, and grpc-message, the details and the trailer unless they are empty.
func statusFields(s *status.Status, trailer metadata.MD) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		const details = "grpc-status-details-bin"
		if !yield("grpc-status", strconv.Itoa(int(s.Code()))) {
			return
		}
		if s.Message() != "" && !yield("grpc-message", encodeMessage(s.Message())) {
			return
		}
		hasDetails := len(s.Proto().GetDetails()) > 0
		if hasDetails {
			if b, err := proto.Marshal(s.Proto()); err == nil && !yield(details, encodeBinary(b)) {
				return
			}
		}
		for name, value := range metadataFields(trailer) {
			if !(hasDetails && name == details) && !yield(name, value) {
				return
			}
		}
	}
}

// encodeMessage encodes the value of grpc-message: all but printable ASCII is percent-encoded, as is "%".
func encodeMessage(message string) string {
	plain := func(b byte) bool { return b >= ' ' && b <= '~' && b != '%' }
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if !slices.ContainsFunc([]byte(message), func(b byte) bool { return !plain(b) }) {
		return message
	}
	var out strings.Builder
	for _, b := range []byte(message) {
		if plain(b) {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}
