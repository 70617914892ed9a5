// Command cmd attacks an HTTP/2 server in each way that h2abuse knows, while a polite client uses the server, and prints a table of how both
// were served. It exits with 1 if the server hasn't ended or bounded an attack, or if a request of the polite client has failed. Times never
// make it fail.
//
// With the numbers of the server's processes, it also measures their processor time and memory. Each attack runs in a process of its own, so
// that it doesn't slow down the polite client.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/h2abuse"
)

// config holds the parameters of a run.
type config struct {
	addr     string
	tls      bool
	pids     []string
	attacks  []*h2abuse.Attack
	duration time.Duration // of each attack
	before   time.Duration // how long the polite client is alone before each
	timeouts bool
	rate     float64
}

func main() {
	c := config{addr: "127.0.0.1:8080", attacks: h2abuse.Attacks(), duration: 3 * time.Second, before: time.Second, rate: 400}
	var one, serve string
	flag.StringVar(&c.addr, "addr", c.addr, "the server's `address`")
	flag.BoolVar(&c.tls, "tls", false, "use TLS, without checking the certificate")
	flag.Func("pid", "the server's `processes`, with commas between them", func(s string) error {
		c.pids = strings.Split(s, ",")
		return nil
	})
	flag.Func("only", "the only `attacks` to run, with commas between them", c.choose)
	flag.DurationVar(&c.duration, "for", c.duration, "how long each attack lasts")
	flag.DurationVar(&c.before, "before", c.before, "how long the polite client is alone before each attack")
	flag.BoolVar(&c.timeouts, "timeouts", false, "attacks last longer than the server's time-outs, so it must end the slow ones too")
	flag.Float64Var(&c.rate, "rate", c.rate, "the polite client's requests per second")
	flag.StringVar(&serve, "serve", "", "attack nothing: be a server to attack at this `address`, net/http's without TLS")
	flag.StringVar(&one, oneFlag, "", "run one `attack` alone, and print its figure as JSON")
	flag.Parse()
	if flag.NArg() > 0 || c.duration <= 0 || c.before <= 0 || c.rate <= 0 {
		fmt.Fprintln(os.Stderr, "h2abuse: the times and the rate must be positive, and there are no arguments but flags")
		flag.Usage()
		os.Exit(2)
	}
	var err error
	ok := true
	switch {
	case serve != "":
		err = serveSite(serve)
	case one != "":
		err = c.runOne(os.Stdout, one)
	default:
		ok, err = c.runAll(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "h2abuse:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// oneFlag is how a process is told to run one attack.
const oneFlag = "one"

// choose leaves only the attacks of these names, which have commas between them.
func (c *config) choose(names string) error {
	c.attacks = nil
	for name := range strings.SplitSeq(names, ",") {
		a, err := h2abuse.Find(name)
		if err != nil {
			return err
		}
		c.attacks = append(c.attacks, a)
	}
	return nil
}

// serveSite serves what attacks ask for by net/http.
func serveSite(addr string) error {
	s := &http.Server{Addr: addr, Handler: new(h2abuse.Site), Protocols: protocols()}
	return s.ListenAndServe()
}

// protocols is HTTP/2 without TLS, by prior knowledge, and HTTP/1, so that the server can be behind another one.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// dial opens a connection. Its send buffer is small, so that what was sent is about what the server has had to deal with.
func (c *config) dial() (net.Conn, error) {
	nc, err := net.DialTimeout("tcp", c.addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	nc.(*net.TCPConn).SetWriteBuffer(16 << 10)
	if !c.tls {
		return nc, nil
	}
	secured := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
	secured.SetDeadline(time.Now().Add(5 * time.Second))
	err = secured.Handshake()
	if err == nil && secured.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("the server doesn't take HTTP/2 by TLS's ALPN")
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	secured.SetDeadline(time.Time{})
	return secured, nil
}

// runOne runs one attack, and prints its figure.
func (c *config) runOne(w io.Writer, name string) error {
	a, err := h2abuse.Find(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.duration)
	defer cancel()
	return json.NewEncoder(w).Encode(a.Run(ctx, c.dial))
}

// attack runs an attack in a process of its own.
func (c *config) attack(a *h2abuse.Attack) (f h2abuse.Figure, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.Command(self, "-"+oneFlag, a.Name, "-addr", c.addr, fmt.Sprintf("-tls=%t", c.tls), "-for", c.duration.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("the process of %s: %w", a.Name, err)
	}
	return f, json.Unmarshal(out, &f)
}

// runAll runs one attack after the other, and reports whether the server has withstood them.
func (c *config) runAll(w io.Writer) (ok bool, err error) {
	polite, err := h2abuse.StartPolite(c.dial, c.rate)
	if err != nil {
		return false, err
	}
	defer polite.Stop()
	fmt.Fprintf(w, "Each attack for %v; the polite client asks %v times a second.\n\n%s", c.duration, c.rate, header)
	ok = true
	for _, a := range c.attacks {
		r := row{attack: a}
		if err := c.runRow(&r, polite); err != nil {
			return false, err
		}
		r.judge(c)
		fmt.Fprintln(w, &r)
		ok = ok && len(r.complaints) == 0
	}
	return ok, nil
}

// runRow measures an attack.
func (c *config) runRow(r *row, polite *h2abuse.Polite) (err error) {
	r.before, err = c.measure(polite, func() error {
		time.Sleep(c.before)
		return nil
	}, &r.politeBefore)
	if err != nil {
		return err
	}
	calls, _, counted := c.calls()
	r.during, err = c.measure(polite, func() (err error) {
		r.figure, err = c.attack(r.attack)
		return err
	}, &r.politeDuring)
	if err != nil || !counted {
		return err
	}
	after, peak, counted := c.calls()
	r.counted, r.calls, r.peak = counted, after-calls, peak
	return nil
}

// calls asks the server for the counts of its Site; false if it has none.
func (c *config) calls() (calls, peak int, ok bool) {
	status, body, err := h2abuse.Get(context.Background(), c.dial, "/calls")
	if err != nil || status != 200 {
		return 0, 0, false
	}
	n, err := fmt.Sscan(body, &calls, &peak)
	return calls, peak, err == nil && n == 2
}

// row is what is printed of an attack.
type row struct {
	attack                     *h2abuse.Attack
	figure                     h2abuse.Figure
	before, during             usage
	politeBefore, politeDuring h2abuse.PhaseFigure
	counted                    bool
	calls, peak                int
	complaints                 []string
}

// judge says what is wrong.
func (r *row) judge(c *config) {
	complain := func(format string, args ...any) { r.complaints = append(r.complaints, fmt.Sprintf(format, args...)) }
	if s := r.attack.Judge(&r.figure, c.timeouts); s != "" {
		complain("%s", s)
	}
	if grown := r.during.peak - r.before.memory; grown > r.attack.Growth {
		complain("%d MB more memory", grown>>20)
	}
	if limit := r.figure.Conns * r.figure.MaxStreams; r.counted && limit > 0 && r.peak > limit {
		complain("%d handlers ran at once, and %d connections may have %d", r.peak, r.figure.Conns, limit)
	}
	for _, phase := range []h2abuse.PhaseFigure{r.politeBefore, r.politeDuring} {
		if phase.Errors > 0 || phase.Answers == 0 {
			complain("the polite client: %d errors, first: %v", phase.Errors, phase.First)
		}
	}
}

const header = "| attack | ended by | after ms | frames | connections | 1000 frames/s | streams | answers | RST_STREAM received " +
	"| calls | at once | CPU before | CPU | MB before | MB at most | polite p50, p99 before | polite p50, p99 | errors | verdict |" + `
| --- | --- | --: | --: | --: | --: | --: | --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |
`

// String returns the row of the table.
func (r *row) String() string {
	f := &r.figure
	by := counts(f.Ended)
	if f.Endless > 0 {
		by = append(by, fmt.Sprintf("never × %d", f.Endless))
	}
	if f.Undone > 0 {
		by = append(by, fmt.Sprintf("no connection × %d", f.Undone))
	}
	verdict := "good"
	if len(r.complaints) > 0 {
		verdict = strings.Join(r.complaints, "; ")
	}
	calls, peak := "", ""
	if r.counted {
		calls, peak = fmt.Sprint(r.calls), fmt.Sprint(r.peak)
	}
	cells := []any{
		r.attack.Name, strings.Join(by, ", "), f.Longest.Milliseconds(), f.LongestFrames, f.Conns,
		fmt.Sprintf("%.1f", float64(f.Frames)/1000/f.Time.Seconds()), f.Streams, f.Answers, strings.Join(counts(f.Resets), ", "), calls, peak,
		r.before.load(), r.during.load(), r.before.memory >> 20, r.during.peak >> 20,
		latencies(r.politeBefore), latencies(r.politeDuring), r.politeBefore.Errors + r.politeDuring.Errors, verdict,
	}
	return fmt.Sprintf(strings.Repeat("| %v ", len(cells))+"|", cells...)
}

// counts lists how often what has occurred.
func counts(of map[string]int) (list []string) {
	for what, n := range of {
		list = append(list, fmt.Sprintf("%s × %d", what, n))
	}
	slices.Sort(list)
	return list
}

func latencies(f h2abuse.PhaseFigure) string {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return fmt.Sprintf("%.2f, %.2f", ms(f.P50), ms(f.P99))
}
