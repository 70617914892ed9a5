package grpcfilo_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

// frame returns a message in its wire format.
func frame(flags byte, data string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data)))) + data
}

// request returns the message of a request in its wire format.
func request(t testing.TB, text string) string {
	b, err := proto.Marshal(&testpb.SimpleRequest{Payload: payload(text)})
	if err != nil {
		t.Fatal(err)
	}
	return frame(0, string(b))
}

// dialHTTP2 returns a client that sends exactly the frames that a test specifies.
func dialHTTP2(t *testing.T, address string) *h2test.Client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testTimeout))
	c, err := h2test.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each malformed request that no generated client sends gets the right status, in a "Trailers-Only" response. Its handler isn't called, or
// gets an error.
func TestOddRequests(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: echo, input: func(s testpb.TestService_StreamingInputCallServer) error {
		for {
			if _, err := s.Recv(); err == io.EOF {
				return s.SendAndClose(&testpb.StreamingInputCallResponse{})
			} else if err != nil {
				return err
			}
		}
	}})
	c := dialHTTP2(t, start(t, &filo.Server{}, g))
	const unary, stream = "/grpc.testing.TestService/UnaryCall", "/grpc.testing.TestService/StreamingInputCall"
	hello := request(t, "hello")
	for _, test := range []struct {
		name, path, body string
		fields           []string
		status           int
		code, message    string
	}{
		{name: "no content type of gRPC", path: unary, body: hello, fields: []string{"content-type", "application/json"}, status: 415},
		{name: "a longer content type", path: unary, body: hello, fields: []string{"content-type", "application/grpcx"}, status: 415},
		{name: "an unknown codec", path: unary, body: hello, fields: []string{"content-type", "application/grpc+none"}, code: "12", message: `no codec is registered for "none"`},
		{name: "an unknown method", path: "/grpc.testing.TestService/None", body: hello, code: "12", message: "Not Found"},
		{name: "an unknown service", path: "/a.B/C", body: hello, code: "12", message: "Not Found"},
		{name: "GET", path: unary, fields: []string{":method", "GET"}, code: "12", message: "Method Not Allowed"},
		{name: "a deadline in the past", path: unary, body: hello, fields: []string{"grpc-timeout", "0n"}, code: "4", message: "context deadline exceeded"},
		{name: "a malformed deadline", path: unary, body: hello, fields: []string{"grpc-timeout", "5"}, code: "13", message: "malformed grpc-timeout"},
		{name: "a deadline of nine digits", path: unary, body: hello, fields: []string{"grpc-timeout", "123456789S"}, code: "13", message: "malformed grpc-timeout"},
		{name: "metadata that isn't base64", path: unary, body: hello, fields: []string{"a-bin", "*"}, code: "13", message: "malformed binary metadata"},
		{name: "an unknown encoding", path: unary, body: hello, fields: []string{"grpc-encoding", "none-such"}, code: "12", message: `Decompressor is not installed for grpc-encoding "none-such"`},
		{name: "compressed without an encoding", path: unary, body: frame(1, "x"), code: "13", message: "compressed flag set with identity"},
		{name: "compressed, but not really", path: unary, body: frame(1, "x"), fields: []string{"grpc-encoding", "gzip"}, code: "13", message: "failed to decompress"},
		{name: "unknown flags", path: unary, body: frame(4, "x"), code: "13", message: "unexpected payload format 4"},
		{name: "no message", path: unary, code: "12", message: "no message"},
		{name: "half a prefix", path: unary, body: hello[:3], code: "13", message: "ends within a message"},
		{name: "only a prefix", path: unary, body: hello[:5], code: "13", message: "ends within a message"},
		{name: "half a message", path: unary, body: hello[:8], code: "13", message: "ends within a message"},
		{name: "two messages", path: unary, body: hello + hello, code: "12", message: "more than one message"},
		{name: "a message that isn't proto's", path: unary, body: frame(0, "\xff"), code: "13", message: "failed to unmarshal"},
		{name: "a message of 4 GB", path: unary, body: "\x00\xff\xff\xff\xff", code: "8", message: "larger than max"},
		{name: "half a message in a stream", path: stream, body: hello + hello[:8], code: "13", message: "ends within a message"},
		{name: "a large message in a stream", path: stream, body: hello + "\x00\xff\xff\xff\xff", code: "8", message: "larger than max"},
	} {
		fields := []string{":method", "POST", ":scheme", "http", ":path", test.path, ":authority", "filo.test", "content-type", "application/grpc"}
		for i := 0; i < len(test.fields); i += 2 {
			if fields[1] = "POST"; test.fields[i] == ":method" {
				fields[1] = test.fields[i+1]
			} else if test.fields[i] == "content-type" {
				fields[9] = test.fields[i+1]
			} else {
				fields = append(fields, test.fields[i:i+2]...)
			}
		}
		s := c.Open(false, fields...)
		s.Send([]byte(test.body), true)
		got, err := s.Status()
		if test.status == 0 {
			test.status = 200
		}
		if err != nil || got != test.status || s.Field("grpc-status") != test.code || !strings.Contains(s.Field("grpc-message"), test.message) {
			t.Errorf("%s: %d, %v, status %q %q", test.name, got, err, s.Field("grpc-status"), s.Field("grpc-message"))
		}
	}
	// A client whose encoding is unknown learns which encodings it may use.
	unknown := c.Open(true, ":method", "POST", ":scheme", "http", ":path", unary, ":authority", "filo.test", "content-type", "application/grpc",
		"grpc-encoding", "none-such")
	if _, err := unknown.Status(); err != nil || unknown.Field("grpc-accept-encoding") != "identity,gzip" {
		t.Errorf("%v, accepted are %q", err, unknown.Field("grpc-accept-encoding"))
	}
	// None of the requests in this test has the field te, since the server doesn't need it.
	s := c.Open(false, ":method", "POST", ":scheme", "http", ":path", unary, ":authority", "filo.test", "content-type", "application/grpc+proto")
	s.Send([]byte(hello), true)
	got, err := s.Status()
	if body, _ := io.ReadAll(s); got != 200 || err != nil || s.Field("grpc-status") != "" || s.Field("content-type") != "application/grpc+proto" ||
		len(body) < len("hello") {
		t.Errorf("%d, %v, %q, %q", got, err, s.Field("content-type"), body)
	}
}

// gRPC without HTTP/2 is refused.
func TestHTTP1(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: echo})
	address := start(t, &filo.Server{}, g)
	response, err := http.Post("http://"+address+"/grpc.testing.TestService/UnaryCall", "application/grpc", strings.NewReader(request(t, "hello")))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Grpc-Status"); got != "12" {
		t.Errorf("%d, status %q", response.StatusCode, got)
	}
}

// webAnswer is a gRPC-Web response.
type webAnswer struct {
	messages []string
	trailer  string
	header   http.Header
}

// web calls a method with gRPC-Web.
func web(t *testing.T, client *http.Client, url, contentType, body string, fields ...string) (a webAnswer) {
	t.Helper()
	if strings.Contains(contentType, "-text") {
		body = base64.StdEncoding.EncodeToString([]byte(body[:1])) + base64.StdEncoding.EncodeToString([]byte(body[1:]))
	}
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != contentType {
		t.Fatalf("%d, %v, %v", response.StatusCode, response.Header, err)
	}
	a.header = response.Header
	if strings.Contains(contentType, "-text") {
		var decoded []byte
		for len(b) > 0 { // each message has its own padding
			group, err := base64.StdEncoding.DecodeString(string(b[:4]))
			if err != nil {
				t.Fatal(err)
			}
			decoded, b = append(decoded, group...), b[4:]
		}
		b = decoded
	}
	for len(b) > 0 {
		size := int(binary.BigEndian.Uint32(b[1:]))
		if data := string(b[5 : 5+size]); b[0] == 0x80 {
			a.trailer = data
		} else {
			a.messages = append(a.messages, data)
		}
		b = b[5+size:]
	}
	return a
}

// A gRPC-Web response has its trailer after the messages, in the binary and the text format, over HTTP/1.1 and HTTP/2.
func TestWeb(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{
		unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if in.FillUsername {
				return nil, filo.Error(403, "not for\r\nyou")
			}
			return echo(ctx, in)
		},
		output: func(in *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error {
			for range 3 {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
					return err
				}
			}
			return nil
		},
		input: func(s testpb.TestService_StreamingInputCallServer) error {
			var size int32
			for {
				in, err := s.Recv()
				if err == io.EOF {
					return s.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: size})
				} else if err != nil {
					return err
				}
				size += int32(len(in.Payload.Body))
			}
		},
	})
	address := start(t, &filo.Server{}, g)
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	for name, client := range map[string]*http.Client{"HTTP/1.1": {}, "HTTP/2": {Transport: &http.Transport{Protocols: &plain}}} {
		defer client.CloseIdleConnections()
		for _, contentType := range []string{"application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text", "application/grpc-web-text+proto"} {
			url := "http://" + address + "/grpc.testing.TestService/"
			hello := request(t, "hello")
			echoed, _ := proto.Marshal(&testpb.SimpleResponse{Payload: payload("hello")})
			a := web(t, client, url+"UnaryCall", contentType, hello, "X-Grpc-Web", "1")
			if len(a.messages) != 1 || a.messages[0] != string(echoed) || a.trailer != "grpc-status: 0\r\n" {
				t.Errorf("%s, %s: unary %q, %q", name, contentType, a.messages, a.trailer)
			}
			large := request(t, strings.Repeat("x", 100_000))
			if a = web(t, client, url+"UnaryCall", contentType, large); len(a.messages) != 1 || len(a.messages[0]) < 100_000 {
				t.Errorf("%s, %s: a large one %d, %q", name, contentType, len(a.messages), a.trailer)
			}
			denied, _ := proto.Marshal(&testpb.SimpleRequest{FillUsername: true})
			if a = web(t, client, url+"UnaryCall", contentType, frame(0, string(denied))); len(a.messages) != 0 ||
				a.trailer != "grpc-status: 7\r\ngrpc-message: not for%0D%0Ayou\r\n" {
				t.Errorf("%s, %s: denied %q, %q", name, contentType, a.messages, a.trailer)
			}
			if a = web(t, client, url+"None", contentType, hello); a.trailer != "grpc-status: 12\r\ngrpc-message: Not Found\r\n" {
				t.Errorf("%s, %s: unknown %q, %q", name, contentType, a.messages, a.trailer)
			}
			payloadOnly, _ := proto.Marshal(&testpb.StreamingOutputCallRequest{Payload: payload("hello")})
			if a = web(t, client, url+"StreamingOutputCall", contentType, frame(0, string(payloadOnly))); len(a.messages) != 3 || a.trailer != "grpc-status: 0\r\n" {
				t.Errorf("%s, %s: a stream %q, %q", name, contentType, a.messages, a.trailer)
			}
			part, _ := proto.Marshal(&testpb.StreamingInputCallRequest{Payload: payload("hello")})
			sum, _ := proto.Marshal(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: 15})
			if a = web(t, client, url+"StreamingInputCall", contentType, strings.Repeat(frame(0, string(part)), 3)); len(a.messages) != 1 || a.messages[0] != string(sum) {
				t.Errorf("%s, %s: a client's stream %q, %q", name, contentType, a.messages, a.trailer)
			}
		}
	}
}

// FuzzRequest sends arbitrary bodies to a unary method and to a stream, in each format of gRPC-Web. The HTTP status of each answer is 200. In the
// binary format, the answer consists of whole messages, and a trailer is the last of them and contains the gRPC status.
func FuzzRequest(f *testing.F) {
	f.Add(request(f, "hello"), uint8(0))
	f.Add(frame(1, "x")+frame(0, ""), uint8(4))
	f.Add("\x00\x00\x00\x00", uint8(2))
	f.Add(base64.StdEncoding.EncodeToString([]byte(frame(0, "")))+"AA==", uint8(3))
	g := grpcfilo.New(grpcfilo.Options{MaxRecvMsgSize: 1 << 16})
	testpb.RegisterTestServiceServer(g, service{unary: echo, duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		for {
			in, err := s.Recv()
			if err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			s.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload})
		}
	}})
	r := router.New()
	g.Mount(r)
	server := servertest.NewServer(f, &filo.Server{Handler: r.Serve, ErrorHandler: grpcfilo.ErrorHandler(nil), Logger: quiet})
	f.Fuzz(func(t *testing.T, body string, kind uint8) {
		contentType := [...]string{"application/grpc-web", "application/grpc-web-text"}[kind&1]
		method := [...]string{"UnaryCall", "FullDuplexCall"}[kind>>1&1]
		encoding := [...]string{"identity", "gzip"}[kind>>2&1]
		got := server.DoBody(t, "POST /grpc.testing.TestService/"+method, body, "Content-Type: "+contentType, "Grpc-Encoding: "+encoding)
		if got.Status != 200 {
			t.Fatalf("the status is %d", got.Status)
		}
		if kind&1 == 1 {
			return
		}
		answer := []byte(got.Body)
		for len(answer) > 0 {
			size := int(binary.BigEndian.Uint32(answer[1:]))
			if answer[0] == 0x80 && (5+size != len(answer) || !bytes.Contains(answer, []byte("grpc-status: "))) {
				t.Errorf("the answer ends with %q", answer)
			}
			answer = answer[5+size:]
		}
	})
}

// Over HTTP/1.1 only the handler's goroutine can read the request, so gathered messages are sent before it waits for the client.
func TestMessagesLeaveBeforeLockedReads(t *testing.T) {
	const messages = 3
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		for {
			in, err := s.Recv()
			if err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			for range messages {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
					return err
				}
			}
		}
	}})
	c := dialHTTP2(t, start(t, &filo.Server{}, g))
	s := c.Open(false, ":method", "POST", ":scheme", "http", ":path", "/grpc.testing.TestService/FullDuplexCall", ":authority", "filo.test",
		"content-type", "application/grpc-web-text")
	in, _ := proto.Marshal(&testpb.StreamingOutputCallRequest{Payload: payload("hello")})
	out, _ := proto.Marshal(&testpb.StreamingOutputCallResponse{Payload: payload("hello")})
	if err := s.Send([]byte(base64.StdEncoding.EncodeToString([]byte(frame(0, string(in))))), false); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat(base64.StdEncoding.EncodeToString([]byte(frame(0, string(out)))), messages)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	s.CloseWrite()
	if rest, err := io.ReadAll(s); err != nil || len(rest) == 0 {
		t.Errorf("the trailer is %q, %v", rest, err)
	}
}

// Between messages a client may be silent for any time. Within a message, ReadTimeout limits how long each piece of it may take.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := grpcfilo.New()
		testpb.RegisterTestServiceServer(g, service{duplex: echoStream})
		r := router.New()
		g.Mount(r)
		server := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}})
		c, err := h2test.New(server.Dial(t))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const silence, pause = time.Hour, filo.DefaultReadTimeout * 3 / 4
		for _, deadline := range []string{"", "9H"} {
			fields := []string{":method", "POST", ":scheme", "http", ":path", "/grpc.testing.TestService/FullDuplexCall", ":authority", "filo.test",
				"content-type", "application/grpc-web"} // there the status is in the body
			if deadline != "" {
				fields = append(fields, "grpc-timeout", deadline)
			}
			s := c.Open(false, fields...)
			for _, size := range []int{10, 100, 2000, 100_000, 10} {
				in, _ := proto.Marshal(&testpb.StreamingOutputCallRequest{Payload: payload(strings.Repeat("x", size))})
				out, _ := proto.Marshal(&testpb.StreamingOutputCallResponse{Payload: payload(strings.Repeat("x", size))})
				message := []byte(frame(0, string(in)))
				for n := min(40<<10, len(message)/2); len(message) > 0; n = min(40<<10, len(message)) {
					if _, err := s.Write(message[:n]); err != nil {
						t.Fatal(err)
					}
					message = message[n:]
					time.Sleep(pause)
				}
				if got, err := io.ReadAll(io.LimitReader(s, int64(5+len(out)))); string(got) != frame(0, string(out)) {
					t.Fatalf("a message of %d bytes: %.100q, %v", size, got, err)
				}
				time.Sleep(silence)
			}
			if _, err := s.Write([]byte(frame(0, strings.Repeat("x", 1<<20))[:900<<10])); err != nil {
				t.Fatal(err)
			}
			s.SetReadDeadline(time.Now().Add(2 * filo.DefaultReadTimeout))
			if got, err := io.ReadAll(s); err != nil || !bytes.Contains(got, []byte("grpc-status: 4\r\n")) {
				t.Errorf("a part of a message: %q, %v", got, err)
			}
		}
	})
}

// Over HTTP/1.1 a client must send something within ReadTimeout. So a handler can return while another of its goroutines waits for a message.
func TestSilenceOverHTTP1(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		begins := make(chan struct{})
		go func() {
			close(begins)
			for {
				if _, err := s.Recv(); err != nil {
					return
				}
			}
		}()
		<-begins
		return nil
	}})
	address := start(t, &filo.Server{ReadTimeout: 50 * time.Millisecond}, g)
	for _, deadline := range []string{"", "Grpc-Timeout: 9H\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(testTimeout))
		io.WriteString(conn, "POST /grpc.testing.TestService/FullDuplexCall HTTP/1.1\r\nHost: filo.test\r\nContent-Type: application/grpc-web\r\n"+
			deadline+"Transfer-Encoding: chunked\r\n\r\n5\r\n"+frame(0, "")+"\r\n")
		answer, err := io.ReadAll(conn)
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) || !bytes.Contains(answer, []byte("grpc-status: 0")) {
			t.Errorf("%v, %q", err, answer)
		}
	}
}
