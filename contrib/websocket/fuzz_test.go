package websocket_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/servertest"
)

// For any bytes of a client, and any way to cut them into pieces, messages stay within the limit, texts are UTF-8, and each connection ends
// with a reason. The result doesn't depend on where the bytes are cut.
func FuzzFrames(f *testing.F) {
	for _, test := range concat(rfc6455, rfc7692) {
		if len(test.send) < 500 {
			f.Add([]byte(test.send), uint16(len(test.send)/2), test.section > "7")
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte, cut uint16, deflate bool) {
		whole := received(t, sent, len(sent), deflate)
		if cut := int(cut) % (len(sent) + 1); cut < len(sent) {
			if other := received(t, sent, cut, deflate); !bytes.Equal(whole, other) {
				t.Errorf("cut at %d: got %q, and %q whole", cut, other, whole)
			}
		}
	})
}

// received returns what a server has received: each message after its type, and finally the status.
func received(t *testing.T, sent []byte, cut int, deflate bool) (all []byte) {
	const limit = 1 << 12
	client, server := servertest.Pipe()
	u := websocket.New(websocket.Options{MaxMessageBytes: limit, Compression: websocket.CompressionContext, CloseTimeout: 1})
	done := make(chan error, 1)
	s := &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error {
		conn, err := u.Accept(c)
		if err != nil {
			return err
		}
		defer conn.CloseNow()
		for {
			kind, message, err := conn.Read()
			if err != nil {
				done <- err
				return nil
			}
			if len(message) > limit || kind == websocket.Text && !utf8.Valid(message) {
				t.Errorf("got %d, %q", kind, message)
			}
			all = append(append(all, byte(kind)), message...)
		}
	}}
	defer s.Close()
	go s.ServeConn(server)
	fields := ""
	if deflate {
		fields = offerDeflate
	}
	io.WriteString(client, handshake+fields+"\r\n")
	go func() {
		client.Write(sent[:cut])
		client.WaitRead()
		client.Write(sent[cut:])
		client.CloseWrite()
	}()
	go io.Copy(io.Discard, client)
	err := <-done
	client.Close()
	var closed *websocket.CloseError
	if !errors.As(err, &closed) {
		return append(all, "lost"...)
	}
	return append(append(all, byte(closed.Code>>8), byte(closed.Code)), closed.Reason...)
}
