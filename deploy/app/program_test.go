package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// running is the program in a separate process, and the processes that replace it.
type running struct {
	*exec.Cmd
	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// Write adds to the log of the programs.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *running) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// await waits until the log has n matches of the pattern, and returns the first group of the last match.
func (r *running) await(t *testing.T, pattern string, n int) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if all := expression.FindAllStringSubmatch(r.logged(), -1); len(all) >= n {
			return all[n-1][len(all[n-1])-1]
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %d × %s:\n%s", n, pattern, r.logged())
		}
	}
}

// end waits for the end of the first process. exec.Cmd.Wait would also wait for the processes that have replaced it, since they log to the same pipe.
func (r *running) end(t *testing.T) {
	t.Helper()
	if state, err := r.Process.Wait(); err != nil || !state.Success() {
		t.Errorf("the program ended with %v, %v", state, err)
	}
}

func (r *running) signal(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// start starts the program, and waits until it serves both addresses.
func start(t *testing.T, settings ...string) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(os.Args[0])}
	r.Env, r.Stderr = append(append(os.Environ(), "APP_DRAIN=0s"), settings...), r
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Process.Kill()
		if t.Failed() {
			t.Logf("the programs logged:\n%s", r.logged())
		}
	})
	r.await(t, `"msg":"serving"`, 2)
	return r
}

// certificate creates a certificate, and writes it and its key to files.
func certificate(t *testing.T, cert, key string, serial int64, from time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: from, NotAfter: from.Add(24 * time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// served returns the serial number of the certificate that a new client gets.
func served(t *testing.T, addr string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// SIGHUP reloads the certificate, SIGUSR2 restarts in place, and SIGTERM drains, in any order and at the same time.
func TestSignals(t *testing.T) {
	dir, addr, metrics := t.TempDir(), filotest.FreeAddress(t), filotest.FreeAddress(t)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	now := time.Now().Add(-time.Hour)
	certificate(t, cert, key, 1, now)
	r := start(t, "ADDR="+addr, "METRICS_ADDR="+metrics, "TLS_CERT="+cert, "TLS_KEY="+key, "APP_DRAIN=5s")
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	ask := func(url string) (status int, err error) {
		response, err := insecure.Get(url)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	wantOK := func() {
		t.Helper()
		for _, url := range []string{"https://" + addr + "/", "https://" + addr + "/readyz", "http://" + metrics + "/metrics"} {
			if status, err := ask(url); status != 200 {
				t.Errorf("%s: %d, %v", url, status, err)
			}
		}
	}
	wantOK()
	want := func(serial int64) {
		t.Helper()
		if got := served(t, addr); got != serial {
			t.Errorf("certificate %d is served, want %d", got, serial)
		}
		wantOK()
	}
	pid := r.Process.Pid

	want(1)
	certificate(t, cert, key, 2, now)
	r.signal(t, pid, syscall.SIGHUP)
	r.await(t, `"certs: reloaded"`, 1)
	want(2)
	certificate(t, cert, key, 3, time.Now().Add(time.Hour))
	r.signal(t, pid, syscall.SIGHUP)
	r.await(t, `certs: reloaded, except for the refused files","error":"[^"]*isn't valid before`, 1)
	want(2)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	r.signal(t, pid, syscall.SIGHUP)
	r.await(t, `certs: reloaded, except for the refused files","error":"[^"]*no such file`, 1)
	want(2)

	// A new process can't serve without the key, so the old one continues.
	r.signal(t, pid, syscall.SIGUSR2)
	r.await(t, `"level":"ERROR","msg":"the program has failed","error":"[^"]*no such file`, 1)
	r.await(t, `the restart failed; this program continues to serve`, 1)
	want(2)

	certificate(t, cert, key, 4, now)
	r.signal(t, pid, syscall.SIGUSR2)
	next, err := strconv.Atoi(r.await(t, `"a new program has taken over; this one finishes","pid":(\d+)`, 1))
	if err != nil {
		t.Fatal(err)
	}
	r.end(t)
	t.Cleanup(func() { syscall.Kill(next, syscall.SIGKILL) })
	want(4)
	certificate(t, cert, key, 5, now)
	r.signal(t, next, syscall.SIGHUP)
	r.await(t, `"certs: reloaded"`, 2)
	want(5)

	// The drain is logged at once, and neither SIGHUP nor another SIGTERM interrupts it. The server of the metrics ends last.
	r.signal(t, next, syscall.SIGTERM)
	r.await(t, `"health: not ready any more, since the program ends","drain":"5s"`, 1)
	r.signal(t, next, syscall.SIGHUP)
	r.signal(t, next, syscall.SIGTERM)
	if status, err := ask("https://" + addr + "/readyz"); status != 503 {
		t.Errorf("/readyz in the drain: %d, %v", status, err)
	}
	r.await(t, `"msg":"stopped","address":"(`+regexp.QuoteMeta(metrics)+`)"`, 2)
	log := r.logged()
	if clients, inside := strings.LastIndex(log, `"msg":"stopped","address":"`+addr), strings.LastIndex(log, `"msg":"stopped","address":"`+metrics); clients < 0 || inside < clients {
		t.Error("the metrics didn't end last")
	}
	if strings.Contains(log, `"msg":"failed"`) {
		t.Error("a server has failed")
	}
}

// Without a certificate, SIGHUP doesn't end the program.
func TestHangUpWithoutCertificate(t *testing.T) {
	addr := filotest.FreeAddress(t)
	r := start(t, "ADDR="+addr, "METRICS_ADDR="+filotest.FreeAddress(t))
	r.signal(t, r.Process.Pid, syscall.SIGHUP)
	r.await(t, `SIGHUP: there is no certificate to reload`, 1)
	if status, body := get(t, "http://"+addr+"/"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	r.signal(t, r.Process.Pid, syscall.SIGTERM)
	r.end(t)
}

// The memory that clients can make the server use is within the limit.
func TestLimitsFit(t *testing.T) {
	for _, memory := range []int64{64 << 20, 230 << 20, 800 << 20, 16 << 30} {
		s := new(filo.Server)
		setLimits(s, memory)
		if s.MaxConns <= 0 || s.Concurrency <= 0 || s.Queue <= 0 || s.MaxBufferedBodies <= 0 || s.MaxBufferedAnswers <= 0 {
			t.Errorf("%d bytes: a limit isn't set: %+v", memory, s)
		}
		if sum := int64(s.MaxConns)*connMemory + int64(s.Concurrency)*requestMemory + s.MaxBufferedBodies + s.MaxBufferedAnswers; sum > memory*5/8 {
			t.Errorf("%d bytes: all limits come to %d", memory, sum)
		}
	}
}

// The test runs the commands of docs/OPERATIONS.md for the operator's address verbatim: as on the machine of the program, and as through kubectl
// port-forward, with the token.
func TestOperationsCommands(t *testing.T) {
	for _, name := range []string{"bash", "curl", "promtool"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("FILO_CI") != "" {
				t.Fatalf("there is no %s; `make deps` installs it", name)
			}
			t.Skipf("there is no %s; `make deps` installs it", name)
		}
	}
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^    (curl .*localhost:6060/.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 6 {
		t.Fatalf("found only %q", commands)
	}
	for _, token := range []string{"", "0123456789abcdef"} {
		t.Run("token "+token, func(t *testing.T) {
			metrics, home := filotest.FreeAddress(t), t.TempDir()
			r := start(t, "ADDR="+filotest.FreeAddress(t), "METRICS_ADDR="+metrics, "METRICS_TOKEN="+token)
			rc := fmt.Sprintf("fail\nconnect-to = \"localhost:6060:%s\"\n", metrics)
			if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte(rc), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, match := range commands {
				line, answer, _ := strings.Cut(match[1], " # ")
				if token != "" {
					line = strings.Replace(line, "curl ", `curl -H "Authorization: Bearer $TOKEN" `, 1)
				}
				command := exec.Command("bash", "-o", "pipefail", "-c", line)
				command.Env = append(os.Environ(), "CURL_HOME="+home, "TOKEN="+token)
				var failed bytes.Buffer
				command.Stderr = &failed
				printed, err := command.Output()
				if strings.Contains(line, "| grep ") && command.ProcessState.ExitCode() == 1 {
					err = nil // grep has found nothing, which isn't an error
				}
				if err != nil || strings.HasPrefix(answer, "{") && strings.TrimSpace(string(printed)) != answer {
					t.Errorf("%s: %v\n%s%s", line, err, printed, &failed)
				}
			}
			r.signal(t, r.Process.Pid, syscall.SIGTERM)
			r.end(t)
		})
	}
}
