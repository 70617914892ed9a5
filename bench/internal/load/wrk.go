package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

// script has wrk send what a file has, each piece behind its length, one after the other, and say what it found as JSON.
const script = `
local file, pieces, turn = assert(io.open(%q, "rb")), {}, 0
while true do
	local size = file:read("*n")
	if not size then break end
	file:read(1)
	pieces[#pieces + 1] = file:read(size)
end
if #pieces == 1 then
	wrk.format = function() return pieces[1] end
else
	function request() turn = turn %% #pieces + 1; return pieces[turn] end
end
function done(summary, latency)
	local e = summary.errors
	io.write(string.format('\n{"Answers":%%d,"Bytes":%%.0f,"Errors":%%d,"Micros":[%%d,%%d,%%d,%%d]}\n', summary.requests, summary.bytes,
		e.connect + e.read + e.write + e.status + e.timeout, summary.duration,
		latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
`

// report is what the script says. Micros are the time of the run, and percentiles.
type report struct {
	Answers, Bytes, Errors float64
	Micros                 [4]float64
}

// Wrk runs a closed loop: wrk with one thread, after a warm-up by another wrk. Each answer's status is wrk's to check; that their
// bodies are as long as they should be follows from how many bytes there were. CPU time in the window includes that of opening the
// connections. Where a row closes connections, every so manieth request of all does it, whosever it is. As to its latencies, wrk
// adds those of requests that a connection would have sent while it waited for a slow answer; where requests are pipelined it counts
// them wrongly, and there are none here.
func Wrk(ctx context.Context, j *Job) (*Result, error) {
	folder, err := os.MkdirTemp("", "filo-wrk")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	_, host, _ := strings.Cut(j.Base, "://")
	all := pieces(j.Row, host)
	var file bytes.Buffer
	for _, piece := range all {
		fmt.Fprintf(&file, "%d\n%s", len(piece), piece)
	}
	data, program := filepath.Join(folder, "requests"), filepath.Join(folder, "script.lua")
	err = errors.Join(os.WriteFile(data, file.Bytes(), 0o600), os.WriteFile(program, fmt.Appendf(nil, script, data), 0o600))
	if err != nil {
		return nil, err
	}
	size, err := answerSize(j.Base, all[0], max(j.Row.Pipeline, 1))
	if err != nil {
		return nil, err
	}
	if j.Warmup > 0 {
		warm, cancel := context.WithTimeout(ctx, j.Warmup)
		j.wrk(warm, program, time.Hour) // ends by being killed
		cancel()
	}
	if err := j.window(true); err != nil {
		return nil, err
	}
	out, err := j.wrk(ctx, program, j.Duration)
	if err := errors.Join(err, j.window(false)); err != nil {
		return nil, err
	}
	result, err := read(out, size, float64(j.Row.Connections*max(j.Row.Pipeline, 1)))
	if err == nil && j.Row.Pipeline > 1 {
		result.Latency = Percentiles{}
	}
	return result, err
}

func (j *Job) wrk(ctx context.Context, program string, d time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(j.Row.Connections), "-d", fmt.Sprintf("%.0fs", d.Seconds()),
		"--timeout", "10s", "-s", program, j.Base)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := proc.Start(cmd, j.CPUs); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("wrk: %w: %s", err, out.String())
	}
	return out.String(), nil
}

// pieces are what wrk sends, one after the other: requests, or as many as are pipelined.
func pieces(r *row.Row, host string) (all [][]byte) {
	if len(r.Requests) > 1 { // each on a connection that stays
		for i := range r.Requests {
			all = append(all, r.Requests[i].Raw(host, false))
		}
		return all
	}
	for i := range max(r.PerConnection, 1) {
		raw := r.Requests[0].Raw(host, i == r.PerConnection-1)
		all = append(all, bytes.Repeat(raw, max(r.Pipeline, 1)))
	}
	return all
}

// answerSize asks once, and returns how many bytes an answer has.
func answerSize(base string, piece []byte, answers int) (float64, error) {
	scheme, address, _ := strings.Cut(base, "://")
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	if _, err := conn.Write(piece); err != nil {
		return 0, err
	}
	counted := &counter{Reader: conn}
	reader := bufio.NewReader(counted)
	for range answers {
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.Body.Close(); err != nil {
			return 0, err
		}
	}
	return float64(counted.n) / float64(answers), nil
}

type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// read reads wrk's report. One that tells of an error is an error: figures from such a run mean nothing, since a failed request is
// often a quick one. So is one with other bytes than its answers have, and up to inFlight more of which it had a part.
func read(out string, size, inFlight float64) (*Result, error) {
	var r report
	_, line, found := strings.Cut(out, "\n{")
	if !found {
		return nil, fmt.Errorf("wrk says only %q", out)
	}
	if err := json.Unmarshal([]byte("{"+line), &r); err != nil {
		return nil, fmt.Errorf("wrk's report %q: %w", line, err)
	}
	switch {
	case r.Errors > 0 || r.Answers == 0:
		return nil, fmt.Errorf("wrk met %.0f errors, and had %.0f answers", r.Errors, r.Answers)
	case r.Bytes < 0.98*r.Answers*size || r.Bytes > 1.02*(r.Answers+inFlight)*size:
		return nil, fmt.Errorf("%.0f answers of %.0f bytes each had %.0f bytes", r.Answers, size, r.Bytes)
	}
	m := r.Micros
	return &Result{Answers: r.Answers, Seconds: m[0] / 1e6, Latency: Percentiles{m[1] / 1e3, m[2] / 1e3, m[3] / 1e3}}, nil
}
