package conns

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// tlsHalf is one direction of a TLS 1.3 connection after its handshake. The tests need it because crypto/tls can't send key updates.
type tlsHalf struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	serial uint64
}

func newTLSHalf(t *testing.T, secret []byte) *tlsHalf {
	h := &tlsHalf{secret: secret, iv: tlsExpand(t, secret, "iv", 12)}
	block, err := aes.NewCipher(tlsExpand(t, secret, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	if h.aead, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	return h
}

// tlsExpand implements HKDF-Expand-Label of RFC 8446, section 7.1, without a context.
func tlsExpand(t *testing.T, secret []byte, label string, size int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(nil, uint16(size)), byte(len(label)))
	out, err := hkdf.Expand(sha256.New, secret, string(info)+label+"\x00", size)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// next returns the direction's state after a key update.
func (h *tlsHalf) next(t *testing.T) *tlsHalf {
	return newTLSHalf(t, tlsExpand(t, h.secret, "traffic upd", sha256.Size))
}

// nonce returns the nonce of the next record.
func (h *tlsHalf) nonce() []byte {
	nonce := bytes.Clone(h.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, h.serial) {
		nonce[4+i] ^= b
	}
	h.serial++
	return nonce
}

const (
	tlsHandshakeRecord = 22
	tlsDataRecord      = 23
	tlsKeyUpdate       = 24
)

// seal appends an encrypted record to the slice to, and returns the result.
func (h *tlsHalf) seal(to []byte, kind byte, content []byte) []byte {
	content = append(bytes.Clone(content), kind)
	header := binary.BigEndian.AppendUint16([]byte{tlsDataRecord, 3, 3}, uint16(len(content)+h.aead.Overhead()))
	return h.aead.Seal(append(to, header...), h.nonce(), content, header)
}

// open reads and decrypts a record.
func (h *tlsHalf) open(r io.Reader) (kind byte, content []byte, err error) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(r, header); err != nil {
		return 0, nil, err
	}
	sealed := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(r, sealed); err != nil {
		return 0, nil, err
	}
	content, err = h.aead.Open(nil, h.nonce(), sealed, header)
	if err != nil {
		return 0, nil, err
	}
	content = bytes.TrimRight(content, "\x00")
	return content[len(content)-1], content[:len(content)-1], nil
}

// tlsRaw is a TLS 1.3 client whose records the test creates.
type tlsRaw struct {
	net.Conn
	reader   *bufio.Reader
	out, in  *tlsHalf
	body     []byte // the application data read so far
	replaced int    // the number of the server's key updates read so far
}

func dialTLSRaw(t *testing.T, s *filotest.Server) *tlsRaw {
	conn, err := net.Dial("unix", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	var log strings.Builder
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, KeyLogWriter: &log, MinVersion: tls.VersionTLS13})
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if client.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skip("the machine prefers another cipher")
	}
	raw := &tlsRaw{Conn: conn, reader: bufio.NewReader(conn)}
	for line := range strings.Lines(log.String()) {
		fields := strings.Fields(line)
		secret, err := hex.DecodeString(fields[2])
		if err != nil {
			t.Fatal(err)
		}
		switch fields[0] {
		case "CLIENT_TRAFFIC_SECRET_0":
			raw.out = newTLSHalf(t, secret)
		case "SERVER_TRAFFIC_SECRET_0":
			raw.in = newTLSHalf(t, secret)
		}
	}
	return raw
}

// send sends data one byte at a time, and before each byte ten key updates that request a reply. crypto/tls fails after more than sixteen key
// updates in a row.
func (raw *tlsRaw) send(t *testing.T, data string) {
	var out []byte
	for i := range len(data) {
		for range 10 {
			out = raw.out.seal(out, tlsHandshakeRecord, []byte{tlsKeyUpdate, 0, 0, 1, 1})
			raw.out = raw.out.next(t)
		}
		out = raw.out.seal(out, tlsDataRecord, []byte{data[i]})
	}
	if _, err := raw.Write(out); err != nil {
		t.Log(err) // the server has ended the connection
	}
}

// data sends a record with application data.
func (raw *tlsRaw) data(t *testing.T, data string) {
	if _, err := raw.Write(raw.out.seal(nil, tlsDataRecord, []byte(data))); err != nil {
		t.Log(err)
	}
}

// read reads until the text has arrived, or until an error.
func (raw *tlsRaw) read(t *testing.T, text string) error {
	for !bytes.Contains(raw.body, []byte(text)) {
		kind, content, err := raw.in.open(raw.reader)
		switch {
		case err != nil:
			return err
		case kind == tlsDataRecord:
			raw.body = append(raw.body, content...)
		case kind == tlsHandshakeRecord && content[0] == tlsKeyUpdate:
			raw.replaced++
			raw.in = raw.in.next(t)
		}
	}
	return nil
}

// If a client sends key updates within its body and doesn't read the replies, the server still reads the body. The client gets the replies
// when it reads. If it never reads, the server ends the connection before the replies fill the memory.
func TestKeyUpdatesOfAClientThatDoesNotRead(t *testing.T) {
	filotest.NeedLoops(t)
	for _, test := range []struct {
		timeout time.Duration // of the handler; 0: none
		updates int           // the number of bytes before each of which the client sends ten key updates
		served  bool
	}{
		{0, 200, true}, {time.Hour, 200, true}, {0, 2_500, false}, {time.Hour, 2_500, false},
	} {
		t.Run(fmt.Sprintf("timeout %v, %d updates", test.timeout, 10*test.updates), func(t *testing.T) {
			type result struct {
				size int
				err  error
			}
			read := make(chan result, 1)
			// A Unix socket buffers some hundred records. A TCP socket buffers many more, and when one direction is full, the system may stop
			// sending in both directions.
			listener := filotest.Listen(t, "unix", filepath.Join(t.TempDir(), "socket"))
			s := filotest.New(&filo.Server{
				TLSConfig:   &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}},
				ReadTimeout: time.Hour, // long, since only few of the received bytes belong to the body
				Handler: func(c *filo.Ctx) error {
					c.SetTimeout(test.timeout, nil)
					body, err := c.Body()
					read <- result{len(body), err}
					return errors.Join(err, c.Text(200, "all read"))
				},
			}, 1)
			s.Addr = listener.Addr().String()
			s.Go(func() { s.Served <- s.ServeTLS(listener, "", "") })
			s.CloseAtEnd(t, 1)
			raw := dialTLSRaw(t, s)
			const rest = 16 << 10 // so long that the server calls the handler before the whole body has arrived
			size := test.updates + rest
			raw.data(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: filo.test\r\nContent-Length: %d\r\n\r\n", size))
			raw.send(t, strings.Repeat("x", test.updates))
			raw.data(t, strings.Repeat("x", rest))
			got := filotest.Recv(t, read, "the body, or an error")
			if !test.served {
				if got.err == nil {
					t.Error("all of the body was read")
				}
				filotest.Await(t, "the connection to end", func() bool { return s.Stats().ConnsOpen == 0 })
				return
			}
			if got.err != nil || got.size != size {
				t.Errorf("%d bytes, %v", got.size, got.err)
			}
			if err := raw.read(t, "all read"); err != nil || raw.replaced != 10*test.updates {
				t.Errorf("%v, behind %d key updates of %d", err, raw.replaced, 10*test.updates)
			}
		})
	}
}

// A client that sends key updates and reads every reply gets at most sixteen replies in a row. Then the server ends the connection, whether
// before a request, in a head or in a body. Until then, it serves other clients.
func TestKeyUpdatesOfAClientThatReads(t *testing.T) {
	const most = 16 // crypto/tls's maxUselessRecords
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		for name, begin := range map[string]string{
			"idle": "", "head": "POST / HTTP/1.1\r\nHost: filo.test\r\n", "body": "POST / HTTP/1.1\r\nHost: filo.test\r\nContent-Length: 100000\r\n\r\nx",
		} {
			t.Run(driver.String()+" "+name, func(t *testing.T) {
				listener := filotest.Listen(t, "unix", filepath.Join(t.TempDir(), "socket"))
				s := filotest.New(&filo.Server{
					Driver:    driver,
					TLSConfig: &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}},
					Handler: func(c *filo.Ctx) error {
						_, err := c.Body()
						return errors.Join(err, c.Text(200, "polite"))
					},
				}, 1)
				s.Addr = listener.Addr().String()
				s.Go(func() { s.Served <- s.ServeTLS(listener, "", "") })
				s.CloseAtEnd(t, 1)
				conn, err := net.Dial("unix", s.Addr)
				if err != nil {
					t.Fatal(err)
				}
				polite := filotest.NewClient(t, tls.Client(conn, filotest.ClientTLS()))
				polite.Get("/")
				polite.Want(200, "polite", false)

				raw := dialTLSRaw(t, s)
				if begin != "" {
					raw.data(t, begin)
				}
				for sent := 0; ; sent++ {
					if sent > most {
						t.Fatalf("the connection goes on after %d key updates", sent)
					}
					raw.update(t)
					if err := raw.readUpdate(t, sent+1); err != nil {
						break
					}
					polite.Get("/")
					polite.Want(200, "polite", false)
				}
				if raw.replaced > most {
					t.Errorf("%d replies", raw.replaced)
				}
				filotest.Await(t, "the connection to end", func() bool { return s.Stats().ConnsOpen == 1 })
				polite.Get("/")
				polite.Want(200, "polite", false)
			})
		}
	}
}

// update sends a key update that requests a reply.
func (raw *tlsRaw) update(t *testing.T) {
	record := raw.out.seal(nil, tlsHandshakeRecord, []byte{tlsKeyUpdate, 0, 0, 1, 1})
	raw.out = raw.out.next(t)
	if _, err := raw.Write(record); err != nil {
		t.Log(err) // the server has ended the connection
	}
}

// readUpdate reads until the server has sent this number of key updates in all, or until the connection ends.
func (raw *tlsRaw) readUpdate(t *testing.T, replaced int) error {
	for raw.replaced < replaced {
		kind, content, err := raw.in.open(raw.reader)
		switch {
		case err != nil:
			return err
		case kind == tlsHandshakeRecord && content[0] == tlsKeyUpdate:
			raw.replaced++
			raw.in = raw.in.next(t)
		case kind != tlsHandshakeRecord: // an alert, or a refusal
			return io.EOF
		}
	}
	return nil
}
